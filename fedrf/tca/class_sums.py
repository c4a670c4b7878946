r"""Sums of one source's random features by class: what a classifier from additive statistics needs of the source.

A sample of a class with n_c samples has the weight n_c^(−1/2), so that a class counts √n_c: rare classes keep a voice,
and a class with a single sample does not count as much as one with a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedrf.tca.precision import in_double
from fedrf.tca.source_statistics import SourceStatistics
from fedrf.tca.statistics import gram_matrix


@dataclass(frozen=True)
class ClassSums:
    """Weighted sums over samples of one source. Sums over parts of the samples add up, and can be subtracted.

    Attributes
    ----------
    weights
        Sum of the weights of each class's samples (classes).
    totals
        Σ_j w_j f_j over the samples of each class (2N × classes).
    gram
        Σ_j w_j f_j f_jᵀ over all samples (2N × 2N).
    sensitivity
        Largest Euclidean norm by which each of the three changes if one sample is added to the source or removed, for
        random features of unit norm and weights n_c^(−1/2). In a class of n samples, ‖Σf‖ ≤ n, so that the change is at
        most (n+1)^(−1/2) + n (n^(−1/2) − (n+1)^(−1/2)): 1 for n = 0 and n = 1, and less for larger n.
    """

    weights: Tensor
    totals: Tensor
    gram: Tensor
    sensitivity: ClassVar[float] = 1.0

    @classmethod
    @torch.no_grad()
    def of(cls, features: Tensor, labels: Tensor, class_weights: Tensor) -> ClassSums:
        """Return the sums over rows of random features.

        Parameters
        ----------
        class_weights
            Weight of a sample of each class.
        """
        sample_weights = class_weights.to(features)[labels]
        indicators = one_hot(labels, len(class_weights)).to(features)
        totals = features.T @ (sample_weights[:, None] * indicators)
        gram = gram_matrix(sample_weights.sqrt()[:, None] * features)
        return cls(in_double(sample_weights @ indicators), in_double(totals), in_double(gram))

    def __add__(self, other: ClassSums) -> ClassSums:
        return ClassSums(self.weights + other.weights, self.totals + other.totals, self.gram + other.gram)

    def __sub__(self, other: ClassSums) -> ClassSums:
        return ClassSums(self.weights - other.weights, self.totals - other.totals, self.gram - other.gram)

    @property
    def shares(self) -> Tensor:
        """The share of each class in the sum of all weights."""
        return self.weights / self.weights.sum()

    @property
    def mean(self) -> Tensor:
        """Σℓ of the source, with the samples' weights."""
        return self.totals.sum(1) / self.weights.sum()

    def centred(self) -> SourceStatistics:
        """Return covariances of the source: its own mean is removed, and the weights are divided by their sum."""
        class_covariance = self.totals / self.weights.sum() - torch.outer(self.mean, self.shares)
        covariance = self.gram / self.weights.sum() - torch.outer(self.mean, self.mean)
        return SourceStatistics.of_source(class_covariance.cpu().numpy(), covariance.cpu().numpy())


def class_weights(labels: Tensor, num_classes: int) -> Tensor:
    """Return n_c^(−1/2) for each class; 0 for classes without samples."""
    counts = in_double(torch.bincount(labels, minlength=num_classes))
    return torch.where(counts > 0, counts.clamp(min=1).rsqrt(), 0)


def sums_of_source(pieces: Iterable[tuple[Tensor, Tensor]], labels: Tensor, num_classes: int) -> ClassSums:
    """Return the sums over all samples of a source, from pieces of its random features with their labels.

    Parameters
    ----------
    labels
        Labels of all samples.
    """
    weights = class_weights(labels, num_classes)
    return reduce(add, (ClassSums.of(features, classes, weights) for features, classes in pieces))
