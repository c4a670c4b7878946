"""Jobs that compare RF-TCA with R-TCA on samples of known distributions (theorem 1)."""

from __future__ import annotations

from collections.abc import Mapping
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrf.paper.plan import Job, job

COLUMNS, CLUSTERS = 10, 4
DIM = 3  # m: four clusters span three directions, which gives an eigen-gap
GAMMA, SIGMA = 0.1, 3.0


def approximation(count: int, num_features: int, seed: int) -> Job:
    """Return the job for n samples and N random frequencies."""
    settings = {"count": count, "num_features": num_features, "seed": seed}
    return job(f"{__name__}:run_approximation", settings, 0.5 + (count / 400) ** 2)


def run_approximation(settings: Mapping[str, Any], folder: Path, session: object) -> dict[str, float]:
    """Compare the aligned rows of RF-TCA with those of R-TCA.

    Returns
    -------
    `error`: |HΣᵀW_RF − HKW_R|_F, both with orthonormal columns, as in the theorem. `kernel`: |ΣᵀΣ − K|₂ / |K|₂.
    `davis-kahan`: the bound √(8m) · |A_RF − A_R|₂ / gap of its proof, from the matrices of this draw.
    `predicted`: √(dim(K) log(n) / N), the rate of the theorem without its constant.
    """
    from fedrf.estimators import RFTCA, RTCA

    count, num_features = settings["count"], settings["num_features"]
    rows, domain = _draw(count, settings["seed"])
    common: dict[str, Any] = {"dim": DIM, "sigma": SIGMA, "gamma": GAMMA, "whiten": True}
    exact = RTCA(**common).fit(rows, sample_domain=domain)
    random = RFTCA(num_features=num_features, random_state=settings["seed"], **common).fit(rows, sample_domain=domain)
    expected, aligned = (fit.transform(rows, sample_domain=domain) / sqrt(count) for fit in (exact, random))
    signs = np.sign((expected * aligned).sum(axis=0))  # of eigenvectors are arbitrary
    kernel, features = exact.kernel_matrix_.numpy(), _features(random, rows)
    approximate = features @ features.T
    weights = np.where(domain > 0, 1 / (domain > 0).sum(), -1 / (domain < 0).sum())
    norm = float(np.linalg.norm(kernel, 2))
    matrix, other = _matrix(kernel, weights), _matrix(approximate, weights)
    values = np.linalg.eigvalsh(matrix)[::-1]
    gap = float(np.min(values[:DIM] - values[1 : DIM + 1]))
    return {
        "error": float(np.linalg.norm(expected - aligned * signs)),
        "kernel": float(np.linalg.norm(approximate - kernel, 2)) / norm,
        "davis-kahan": sqrt(8 * DIM) * float(np.linalg.norm(other - matrix, 2)) / gap,
        "predicted": sqrt(count / norm * log(count) / num_features),
    }


def _draw(count: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return clusters of normally distributed rows; the second half is the target, which is shifted."""
    random = np.random.RandomState([seed, 0x7E0])
    centres = np.random.RandomState(0x7E0).randn(CLUSTERS, COLUMNS) * 2
    # Unequal clusters, because equal ones would give equal eigenvalues.
    rows = centres[random.choice(CLUSTERS, count, p=[0.4, 0.3, 0.2, 0.1])] + 0.5 * random.randn(count, COLUMNS)
    domain = np.where(np.arange(count) < count // 2, 1, -1)
    return rows + 0.3 * (domain < 0)[:, None], domain


def _features(fitted: Any, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    import torch

    features: NDArray[np.float64] = (
        fitted.features_(torch.from_numpy(rows).to(fitted.features_.frequencies.dtype)).double().numpy()
    )
    return features


def _matrix(kernel: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return γA = H (K − KℓℓᵀK / (γ + ℓᵀKℓ)) H."""
    image = kernel @ weights
    inner = kernel - np.outer(image, image) / (GAMMA + weights @ image)
    centred: NDArray[np.float64] = inner - inner.mean(0) - inner.mean(1)[:, None] + inner.mean()
    return centred
