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
        Σ_j w_j f_j f_jᵀ over all samples (2N × 2N); None if it is not needed.
    sensitivity
        Largest Euclidean norm by which each of the three changes if one sample is added to the source or removed, for
        random features of unit norm and weights n_c^(−1/2). In a class of n samples, ‖Σf‖ ≤ n, so that the change is at
        most (n+1)^(−1/2) + n (n^(−1/2) − (n+1)^(−1/2)): 1 for n = 0 and n = 1, and less for larger n.
    """

    weights: Tensor
    totals: Tensor
    gram: Tensor | None
    sensitivity: ClassVar[float] = 1.0

    @classmethod
    @torch.no_grad()
    def of(cls, features: Tensor, labels: Tensor, class_weights: Tensor, with_gram: bool = True) -> ClassSums:
        """Return the sums over rows of random features.

        Parameters
        ----------
        class_weights
            Weight of a sample of each class.
        with_gram
            Whether second moments are needed.
        """
        sample_weights = class_weights.to(features)[labels]
        indicators = one_hot(labels, len(class_weights)).to(features)
        totals = features.T @ (sample_weights[:, None] * indicators)
        gram = gram_matrix(sample_weights.sqrt()[:, None] * features).double() if with_gram else None
        return cls((sample_weights @ indicators).double(), totals.double(), gram)

    def __add__(self, other: ClassSums) -> ClassSums:
        gram = None if self.gram is None or other.gram is None else self.gram + other.gram
        return ClassSums(self.weights + other.weights, self.totals + other.totals, gram)

    def __sub__(self, other: ClassSums) -> ClassSums:
        gram = None if self.gram is None or other.gram is None else self.gram - other.gram
        return ClassSums(self.weights - other.weights, self.totals - other.totals, gram)

    def centred(self) -> SourceStatistics:
        """Return covariances of the source: its own mean is removed, and the weights are divided by their sum."""
        shares, means = self.weights / self.weights.sum(), self.totals / self.weights.sum()
        mean = means.sum(1)
        covariance = None
        if self.gram is not None:
            covariance = (self.gram / self.weights.sum() - torch.outer(mean, mean)).cpu().numpy()
        return SourceStatistics(1, (means - torch.outer(mean, shares)).cpu().numpy(), covariance)


def class_weights(labels: Tensor, num_classes: int) -> Tensor:
    """Return n_c^(−1/2) for each class; 0 for classes without samples."""
    counts = torch.bincount(labels, minlength=num_classes).double()
    return torch.where(counts > 0, counts.clamp(min=1).rsqrt(), 0)


def statistics_of_source(
    pieces: Iterable[tuple[Tensor, Tensor]], labels: Tensor, num_classes: int, with_gram: bool = True
) -> SourceStatistics:
    """Return what a source sends, from pieces of its random features with their labels.

    Parameters
    ----------
    labels
        Labels of all samples.
    """
    weights = class_weights(labels, num_classes)
    sums = (ClassSums.of(features, classes, weights, with_gram) for features, classes in pieces)
    return reduce(add, sums).centred()
