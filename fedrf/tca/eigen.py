"""The leading eigenpairs of a symmetric matrix, and of all its modifications along one direction, at one price.

Transfer component analysis needs the leading eigenvectors of SAS for S = I − c·d dᵀ, for one direction d and many
c, or of A − α·d dᵀ for many α. In an orthonormal basis that begins with d such a modification touches only the first
row and column. `EigenSpace` holds such a basis and A in it.

For few vectors of a large matrix the basis is a Krylov space: LAPACK would reduce the whole matrix to tridiagonal form
before it could look for a few vectors, cubic and bound by memory, where block Lanczos needs a few dozen products with
a thin block. Once it is there, every further modification costs one small dense problem. Small matrices, and the rare
ones that Lanczos cannot certify, get a basis of the whole space. All of it is torch: a second thread pool (SciPy's)
spinning beside torch's makes both three times slower.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

BLOCK = 10
DENSE_BELOW = 800
DENSE_SHARE = 1 / 8  # of all vectors; for a larger share a basis of the whole space is as fast

Modification = Callable[[Tensor], None]


class EigenSpace:
    """A symmetric matrix, ready for its leading eigenpairs under modifications along `direction`."""

    def __init__(self, matrix: Tensor, direction: Tensor | None = None) -> None:
        if direction is None or not direction.any():
            direction = torch.ones(len(matrix))
        self._matrix = matrix
        self._direction = direction.to(matrix)
        self._krylov: _Krylov | None = None
        self._whole: tuple[Tensor, Tensor] | None = None

    def leading(self, count: int, modify: Modification | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the `count` largest eigenvalues, decreasing, their vectors in columns, and the basis in rows.

        `modify` gets a copy of the matrix in the basis, whose first vector is the direction, and changes its first
        column in place (only the lower triangle counts). Vectors are coordinates: those in the space of the matrix are
        basis.T @ vectors.
        """
        size = len(self._matrix)
        if size >= DENSE_BELOW and count <= size * DENSE_SHARE:
            self._krylov = self._krylov or _Krylov(self._matrix, self._direction)
            found = self._krylov.leading(count, modify)
            if found is not None:
                return found
        if self._whole is None:
            basis = _reflection(self._direction)
            self._whole = basis, basis @ self._matrix @ basis
        basis, projected = self._whole
        return *_dense(projected, count, modify), basis


class _Krylov:
    """An orthonormal basis of span{Q, AQ, A²Q, …} in rows, with A projected onto it; it grows when it must."""

    def __init__(self, matrix: Tensor, direction: Tensor) -> None:
        size = len(matrix)
        self.limit = size // 2
        self.tolerance = torch.finfo(matrix.dtype).eps ** 0.75
        self.matrix = matrix
        self.basis = matrix.new_empty(self.limit + BLOCK, size)
        self.projected = matrix.new_zeros(self.limit + BLOCK, self.limit + BLOCK)
        self.used = 0
        generator = torch.Generator().manual_seed(0)
        start = torch.randn(BLOCK, size, generator=generator, dtype=torch.float64).to(matrix)
        start[0] = direction
        self.block = _orthonormal(start)

    def leading(self, count: int, modify: Modification | None) -> tuple[Tensor, Tensor, Tensor] | None:
        """Grow until the leading pairs have converged; None where that cannot be certified."""
        wanted = max(self.used, 4 * count)
        while wanted <= self.limit:
            while self.used < wanted:
                self._grow()
            basis = self.basis[: self.used]
            values, vectors = _dense(self.projected[: self.used, : self.used], count, modify)
            residual = (vectors[-BLOCK:].T @ self.leftover).norm(dim=1).max()
            if residual <= self.tolerance * values[0]:
                return None if _may_hide_copies(values, self.tolerance) else (values, vectors, basis)
            wanted = int(1.15 * self.used)
        return None

    def _grow(self) -> None:
        rows = slice(self.used, self.used + BLOCK)
        self.used += BLOCK
        self.basis[rows] = self.block
        known = self.basis[: self.used]
        image = self.block @ self.matrix
        overlap = image @ known.T
        self.projected[rows, : self.used] = overlap
        self.leftover = image - overlap @ known
        # Orthogonalising twice is enough. The second time also repairs rows that QR made up for a deficient block.
        block = _orthonormal(self.leftover)
        self.block = _orthonormal(block - (block @ known.T) @ known)


def canonical_signs(vectors: Tensor) -> Tensor:
    """Flip columns so that the entry of largest magnitude of each is positive."""
    peaks = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return vectors * torch.where(peaks < 0, -1.0, 1.0).to(vectors)


def leading_eigenpairs(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest eigenvalues, decreasing, and their vectors in columns, with canonical signs."""
    values, vectors, basis = EigenSpace(matrix).leading(count)
    return values, canonical_signs(basis.T @ vectors)


def _dense(matrix: Tensor, count: int, modify: Modification | None) -> tuple[Tensor, Tensor]:
    if modify is not None:
        matrix = matrix.clone()
        modify(matrix)
    values, vectors = torch.linalg.eigh(matrix)
    return values[-count:].flip(0), vectors[:, -count:].flip(1)


def _orthonormal(rows: Tensor) -> Tensor:
    factor: Tensor = torch.linalg.qr(rows.T).Q
    return factor.T


def _reflection(direction: Tensor) -> Tensor:
    """Return a symmetric orthogonal matrix whose first row is along `direction` (Householder)."""
    normal = direction / direction.norm()
    normal[0] += 1.0 if normal[0] >= 0 else -1.0
    identity = torch.eye(len(direction), dtype=direction.dtype, device=direction.device)
    return identity.sub_(torch.outer(normal, normal) * (2 / normal.square().sum()))


def _may_hide_copies(values: Tensor, tolerance: float) -> bool:
    """Tell whether BLOCK values in a row are equal: a block can only see so many copies of one eigenvalue."""
    spreads = values[: 1 - BLOCK] - values[BLOCK - 1 :]
    return bool((spreads <= tolerance * values[0]).any())
