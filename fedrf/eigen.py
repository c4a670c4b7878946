"""The leading eigenpairs of a symmetric matrix, and only those.

LAPACK reduces the whole matrix to tridiagonal form before it can look for a few vectors, which is cubic and
bound by memory. Where few vectors of a large matrix are wanted, a block Lanczos iteration needs a few dozen
products with a thin block instead. Small matrices, and the rare ones that Lanczos cannot certify, go to LAPACK.
All of it is torch: a second thread pool (SciPy's) spinning beside torch's makes both three times slower.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 10
DENSE_BELOW = 800
DENSE_SHARE = 1 / 8  # of all vectors; for a larger share LAPACK is as fast


def leading_eigenpairs(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest eigenvalues, in decreasing order, and their vectors in columns.

    The sign of each vector is canonical: its entry of largest magnitude is positive.
    """
    size = len(matrix)
    pairs = None
    if size >= DENSE_BELOW and count <= size * DENSE_SHARE:
        pairs = _block_lanczos(matrix, count)
    values, vectors = pairs or _dense(matrix, count)
    return values, canonical_signs(vectors)


def canonical_signs(vectors: Tensor) -> Tensor:
    """Flip columns so that the entry of largest magnitude of each is positive."""
    peaks = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return vectors * torch.where(peaks < 0, -1.0, 1.0).to(vectors)


def _dense(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(matrix)
    return values[-count:].flip(0), vectors[:, -count:].flip(1)


def _block_lanczos(matrix: Tensor, count: int) -> tuple[Tensor, Tensor] | None:
    """Rayleigh–Ritz on span{Q, AQ, A²Q, …} with full reorthogonalisation; None where it cannot be certified."""
    size, limit = len(matrix), len(matrix) // 2
    tolerance = torch.finfo(matrix.dtype).eps ** 0.75
    generator = torch.Generator().manual_seed(0)
    block = _orthonormal(torch.randn(BLOCK, size, generator=generator, dtype=torch.float64).to(matrix))
    basis = matrix.new_empty(limit + BLOCK, size)
    projected = matrix.new_zeros(limit + BLOCK, limit + BLOCK)
    used, next_check = 0, 4 * count
    while used < limit:
        rows = slice(used, used + BLOCK)
        used += BLOCK
        basis[rows], known = block, basis[:used]
        image = block @ matrix
        projected[rows, :used] = overlap = image @ known.T
        leftover = image - overlap @ known
        if used >= next_check:
            values, weights = _dense(projected[:used, :used], count)
            residual = (weights[-BLOCK:].T @ leftover).norm(dim=1).max()
            if residual <= tolerance * values[0]:
                return None if _may_hide_copies(values, tolerance) else (values, known.T @ weights)
            next_check = int(1.15 * used)
        # Orthogonalising twice is enough. The second time also repairs rows that QR made up for a deficient block.
        block = _orthonormal(leftover)
        block = _orthonormal(block - (block @ known.T) @ known)
    return None


def _orthonormal(rows: Tensor) -> Tensor:
    factor: Tensor = torch.linalg.qr(rows.T).Q
    return factor.T


def _may_hide_copies(values: Tensor, tolerance: float) -> bool:
    """Tell whether BLOCK values in a row are equal: a block can only see so many copies of one eigenvalue."""
    spreads = values[: 1 - BLOCK] - values[BLOCK - 1 :]
    return bool((spreads <= tolerance * values[0]).any())
