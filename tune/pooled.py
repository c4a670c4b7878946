"""The samples of all domains in one place, for sweeps in closed form.

Rows are those of a federated run: the output of the fixed part of the extractor, normalised to norm 1. A value of σ, γ
or N therefore has the same meaning in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.schema import Config
from fedrf.data.domains import clients_of, load_samples
from fedrf.data.samples import Labels
from fedrf.estimators import RFTCA
from fedrf.models.fixed_features import fixed_features
from fedrf.tca.random_features import median_sigma


@dataclass(frozen=True)
class PooledData:
    """Rows of all domains, sources first, with the labels of the sources only.

    Attributes
    ----------
    evaluator
        Computes the accuracy of predictions for the target, if it has labels; only recorded.
    gamma_unit, sigma_unit
        The values of γ and σ that correspond to 1 in a grid.
    """

    rows: Tensor
    labels: Labels
    evaluator: Evaluator
    gamma_unit: float
    sigma_unit: float
    kernel: str
    dim: int
    seed: int

    @classmethod
    def from_rows(cls, config: Config, rows: Tensor, labels: Labels, evaluator: Evaluator) -> PooledData:
        """Compute the units of γ and σ from the rows."""
        model, count, sources = config.model, len(rows), len(labels)
        width = median_sigma(rows, model.kernel) if model.sigma == "median" else model.sigma
        gamma_unit = count / (sources * (count - sources))
        return cls(rows, labels, evaluator, gamma_unit, width / 10, model.kernel, model.dim, config.seed)

    @property
    def domain(self) -> NDArray[np.int64]:
        """1 for rows of the sources, -1 for rows of the target."""
        return np.where(np.arange(len(self.rows)) < len(self.labels), 1, -1)

    def estimator(self, num_features: int, sigma: float) -> RFTCA:
        """Return an estimator for one N and one σ of the grid; at most n − 1 components can have variance."""
        dim = min(self.dim, 2 * num_features, len(self.rows) - 1)
        return RFTCA(dim, num_features, sigma * self.sigma_unit, kernel=self.kernel, random_state=self.seed)


def load_pooled(config: Config, progress: Callable[[int, int], None] = lambda done, total: None) -> PooledData:
    """Load the domains of a resolved configuration, and apply the fixed part of its extractor.

    `progress` is called with the number of samples of a domain that a backbone has processed, and their total.
    """
    sources, target = clients_of(config)
    samples = [load_samples(config, client) for client in (*sources, target)]
    labels = np.concatenate([domain.labels for domain in samples[:-1] if domain.labels is not None])
    if len(np.unique(labels)) < 2:
        raise ValueError(f"{', '.join(sources)}: all samples are of one class; a classifier needs two")
    rows = torch.cat([fixed_features(config, domain, progress) for domain in samples])
    return PooledData.from_rows(config, rows, labels, Evaluator(samples[-1].labels))
