"""The eigenproblem of joint distribution adaptation; `fedrf.estimators.jda` has the derivation."""

from __future__ import annotations

from functools import cached_property
from math import sqrt

import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor
from torch.nn.functional import one_hot

from fedrf.tca.eigen import leading_eigenpairs, noise_level
from fedrf.tca.problems import Solution, significant_solution

NOISE = noise_level(torch.float64)


class JointProblem:
    """The eigenproblem of JDA with `dim` components, for centred features and any pseudo-labels of the target."""

    def __init__(self, features: Tensor, is_source: Tensor, codes: Tensor, num_classes: int, dim: int) -> None:
        self.dim = dim
        self.source, self.target = features[is_source], features[~is_source]
        self.codes, self.num_classes = codes, num_classes
        self.scatter = features.T @ features
        self.variance = float(self.scatter.trace()) / len(features)

    def discrepancies(self, pseudo_labels: Tensor | None) -> Tensor:
        """Return v_0 and, given pseudo-labels, v_c of each class that both domains have, in columns."""
        columns = [(self.source.mean(0) - self.target.mean(0))[:, None]]
        if pseudo_labels is not None:
            source, target = (one_hot(labels, self.num_classes).double() for labels in (self.codes, pseudo_labels))
            in_both = target.any(0)  # the source has every class
            means = self.source.T @ (source / source.sum(0)) - self.target.T @ (target / target.sum(0).clamp(min=1))
            columns.append(means[:, in_both])
        return torch.cat(columns, dim=1)

    def balanced_gamma(self, discrepancies: Tensor) -> float:
        """Return a γ for which the discrepancies and the rest have similar weight; see `fedrf.tca.problems`."""
        squares = self._significant_squares(discrepancies.norm(dim=0).square())
        if not squares.any():
            return 0.0
        spread = float(torch.einsum("ic,ij,jc->", discrepancies, self.scatter, discrepancies))
        return float(squares.mean()) * sqrt(min(1.0, self._weakest * float(squares.sum()) / spread))

    def solve(self, discrepancies: Tensor, gamma: float) -> Solution:
        """Return the leading components for one γ."""
        directions, lengths, _ = torch.linalg.svd(discrepancies, full_matrices=False)
        squares = self._significant_squares(lengths.square())
        removed = torch.where(squares > 0, 1 - (1 + squares / gamma).rsqrt(), 0.0)

        def shrink(columns: Tensor) -> Tensor:
            return torch.addmm(columns, directions * removed, directions.T @ columns, alpha=-1)

        values, vectors = leading_eigenpairs(shrink(shrink(self.scatter).T), self.dim)
        return significant_solution(shrink(vectors), values, self.scatter)

    def nearest_labels(self, weights: Tensor) -> Tensor:
        """Return for each target row the label of the nearest source row after alignment."""
        classifier = KNeighborsClassifier(n_neighbors=1).fit((self.source @ weights).numpy(), self.codes.numpy())
        return torch.from_numpy(classifier.predict((self.target @ weights).numpy()))

    def _significant_squares(self, squares: Tensor) -> Tensor:
        """Set squares that are rounding error to zero."""
        return squares.where(squares > NOISE * self.variance, 0.0)

    @cached_property
    def _weakest(self) -> float:
        """The smallest significant eigenvalue of S among the first `dim`."""
        values = leading_eigenpairs(self.scatter, self.dim)[0]
        return float(values[values > NOISE * self.scatter.trace()][-1])
