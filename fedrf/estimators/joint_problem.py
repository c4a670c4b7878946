"""The eigenproblem of joint distribution adaptation; `fedrf.estimators.jda` has the derivation."""

from __future__ import annotations

from functools import cached_property
from math import sqrt

import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor
from torch.nn.functional import one_hot

from fedrf.tca.eigen import leading_eigenpairs
from fedrf.tca.problems import Solution, significant

NOISE = 32 * torch.finfo(torch.float64).eps  # relative size below which a number is taken for rounding error


class JointProblem:
    """The eigenproblem of JDA, `dim` components of it, for centred features and any guess of the target's labels."""

    def __init__(self, features: Tensor, is_source: Tensor, codes: Tensor, num_classes: int, dim: int) -> None:
        self.dim = dim
        self.source, self.target = features[is_source], features[~is_source]
        self.codes, self.num_classes = codes, num_classes
        self.scatter = features.T @ features
        self.variance = float(self.scatter.trace()) / len(features)

    def discrepancies(self, guesses: Tensor | None) -> Tensor:
        """Return v_0 and, where labels are guessed, v_c of each class that both domains have, in columns."""
        columns = [(self.source.mean(0) - self.target.mean(0))[:, None]]
        if guesses is not None:
            known, guessed = (one_hot(labels, self.num_classes).double() for labels in (self.codes, guesses))
            both = guessed.any(0)  # every class is one of the source
            means = self.source.T @ (known / known.sum(0)) - self.target.T @ (guessed / guessed.sum(0).clamp(min=1))
            columns.append(means[:, both])
        return torch.cat(columns, dim=1)

    def balanced_gamma(self, discrepancies: Tensor) -> float:
        """Return a γ at which the discrepancies are on even ground with the rest; see `fedrf.tca.problems`."""
        squares = self._solid_squares(discrepancies.norm(dim=0).square())
        if not squares.any():
            return 0.0
        spread = float(torch.einsum("ic,ij,jc->", discrepancies, self.scatter, discrepancies))
        return float(squares.mean()) * sqrt(min(1.0, self._weakest * float(squares.sum()) / spread))

    def solve(self, discrepancies: Tensor, gamma: float) -> Solution:
        """Return the leading components for one γ."""
        directions, lengths, _ = torch.linalg.svd(discrepancies, full_matrices=False)
        squares = self._solid_squares(lengths.square())
        removed = torch.where(squares > 0, 1 - (1 + squares / gamma).rsqrt(), 0.0)

        def shrink(columns: Tensor) -> Tensor:
            return torch.addmm(columns, directions * removed, directions.T @ columns, alpha=-1)

        values, vectors = leading_eigenpairs(shrink(shrink(self.scatter).T), self.dim)
        return significant(shrink(vectors), values, self.scatter)

    def nearest_labels(self, weights: Tensor) -> Tensor:
        """Guess for each target row the label of the nearest source row after alignment."""
        classifier = KNeighborsClassifier(n_neighbors=1).fit((self.source @ weights).numpy(), self.codes.numpy())
        return torch.from_numpy(classifier.predict((self.target @ weights).numpy()))

    def _solid_squares(self, squares: Tensor) -> Tensor:
        """Zero what does not stand out from rounding error: a direction of noise is none."""
        return squares.where(squares > NOISE * self.variance, 0.0)

    @cached_property
    def _weakest(self) -> float:
        """The least that a component varies which is kept where no discrepancy counts."""
        values = leading_eigenpairs(self.scatter, self.dim)[0]
        return float(values[values > NOISE * self.scatter.trace()][-1])
