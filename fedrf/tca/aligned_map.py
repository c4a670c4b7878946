r"""RF-TCA from additive statistics: aligned components in closed form, and a ridge regression on them.

Up to the scale of its columns, W minimises Σ_i |Wᵀv_i|² + γ|W|² subject to WᵀSW = I, where v_i = Σℓ_i − Σℓ_target are
the discrepancies, one for each source, and S is the total scatter of sources and target. With P = (I + VVᵀ/γ)^(−1/2),
W = PU for the leading eigenvectors U of PSP. The map to class scores is M = W (WᵀAW + λaI)⁻¹ WᵀB. For γ → ∞ and all
components, it is the map of the ridge regression alone.
"""

from __future__ import annotations

import numpy as np

from fedrf.tca.source_statistics import Matrix, SourceStatistics


def aligned_components(scatter: Matrix, discrepancies: Matrix, gamma: float, dim: int) -> Matrix:
    """Return W with `dim` columns, or as many as `scatter` has.

    Parameters
    ----------
    scatter
        S.
    discrepancies
        V, one column for each source.
    """
    from scipy.linalg import eigh

    directions, lengths, _ = np.linalg.svd(discrepancies, full_matrices=False)
    squares = np.square(lengths)
    kept = np.divide(gamma, gamma + squares, out=np.ones_like(squares), where=gamma + squares > 0)
    size = len(scatter)
    shrink = np.eye(size) - (directions * (1 - np.sqrt(kept))) @ directions.T
    wanted = [size - min(dim, size), size - 1]
    vectors = eigh(shrink @ scatter @ shrink, subset_by_index=wanted, check_finite=False)[1]
    return np.asarray(shrink @ vectors[:, ::-1])


def aligned_class_map(
    sources: SourceStatistics, target: SourceStatistics, discrepancies: Matrix, gamma: float, dim: int, ridge: float
) -> Matrix:
    """Return M from the statistics of all sources and of the target; the two count alike in the scatter."""
    mean = discrepancies.mean(1)
    scatter = (sources.covariance / sources.weight + target.covariance) / 2 + np.outer(mean, mean) / 4
    aligner = aligned_components(scatter, discrepancies, gamma, dim)
    aligned = SourceStatistics(
        sources.weight,
        aligner.T @ sources.class_covariance,
        aligner.T @ sources.covariance @ aligner,
        sources.variance,
    )
    return np.asarray(aligner @ aligned.class_map(ridge))
