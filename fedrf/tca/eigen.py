"""Leading eigenpairs of a symmetric matrix, and of its modifications along one direction.

Transfer component analysis needs the leading eigenvectors of SAS for S = I − c·d dᵀ, or of A − α·d dᵀ, for one
direction d and many c or α. In an orthonormal basis whose first vector is d, such a modification changes only the first
row and column. `EigenSpace` keeps such a basis and A in this basis, so that each further modification costs one small
dense eigenproblem.

For few eigenvectors of a large matrix the basis spans a Krylov space, built by block Lanczos from a few dozen products
with a thin block. LAPACK would first reduce the whole matrix to tridiagonal form, which is cubic and memory-bound.
Small matrices use a basis of the whole space, and so do the rare ones for which Lanczos cannot certify its result.
Everything runs in torch: a second thread pool (SciPy's) next to torch's makes both three times slower.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

BLOCK_SIZE = 10
LANCZOS_MIN_SIZE = 800
LANCZOS_MAX_SHARE = 1 / 8  # of all eigenvectors; for a larger share a basis of the whole space is as fast

Modification = Callable[[Tensor], None]


class EigenSpace:
    """A symmetric matrix, prepared for its leading eigenpairs under modifications along `direction`."""

    def __init__(self, matrix: Tensor, direction: Tensor | None = None) -> None:
        if direction is None or not direction.any():
            direction = torch.ones(len(matrix))
        self._matrix = matrix
        self._direction = direction.to(matrix)
        self._krylov: _Krylov | None = None
        self._whole_space: tuple[Tensor, Tensor] | None = None

    def leading(self, count: int, modify: Modification | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the `count` largest eigenvalues in decreasing order, their vectors in columns, and the basis in rows.

        The vectors are coordinates in the basis: ``basis.T @ vectors`` are the eigenvectors of the matrix itself.

        Parameters
        ----------
        count
            Number of eigenpairs.
        modify
            Gets a copy of the matrix in the basis, whose first vector is the direction, and changes its first column
            in place. Only the lower triangle is read.
        """
        size = len(self._matrix)
        if size >= LANCZOS_MIN_SIZE and count <= size * LANCZOS_MAX_SHARE:
            self._krylov = self._krylov or _Krylov(self._matrix, self._direction)
            eigenpairs = self._krylov.leading(count, modify)
            if eigenpairs is not None:
                return eigenpairs
        if self._whole_space is None:
            basis = _reflection(self._direction)
            self._whole_space = basis, basis @ self._matrix @ basis
        basis, projected = self._whole_space
        return *_leading_dense(projected, count, modify), basis


class _Krylov:
    """An orthonormal basis of span{Q, AQ, A²Q, …} in rows, with A projected onto it; grows on demand."""

    def __init__(self, matrix: Tensor, direction: Tensor) -> None:
        size = len(matrix)
        self.limit = size // 2
        self.tolerance = torch.finfo(matrix.dtype).eps ** 0.75
        self.matrix = matrix
        self.basis = matrix.new_empty(self.limit + BLOCK_SIZE, size)
        self.projected = matrix.new_zeros(self.limit + BLOCK_SIZE, self.limit + BLOCK_SIZE)
        self.dimension = 0
        generator = torch.Generator().manual_seed(0)
        start = torch.randn(BLOCK_SIZE, size, generator=generator, dtype=torch.float64).to(matrix)
        start[0] = direction
        self.block = _orthonormal(start)

    def leading(self, count: int, modify: Modification | None) -> tuple[Tensor, Tensor, Tensor] | None:
        """Grow until the leading eigenpairs have converged; return None if that cannot be certified."""
        required = max(self.dimension, 4 * count)
        while required <= self.limit:
            while self.dimension < required:
                self._grow()
            basis = self.basis[: self.dimension]
            values, vectors = _leading_dense(self.projected[: self.dimension, : self.dimension], count, modify)
            residual = (vectors[-BLOCK_SIZE:].T @ self.remainder).norm(dim=1).max()
            if residual <= self.tolerance * values[0]:
                return None if _may_hide_copies(values, self.tolerance) else (values, vectors, basis)
            required = int(1.15 * self.dimension)
        return None

    def _grow(self) -> None:
        rows = slice(self.dimension, self.dimension + BLOCK_SIZE)
        self.dimension += BLOCK_SIZE
        self.basis[rows] = self.block
        basis = self.basis[: self.dimension]
        image = self.block @ self.matrix
        overlap = image @ basis.T
        self.projected[rows, : self.dimension] = overlap
        self.remainder = image - overlap @ basis
        # Orthogonalising twice is enough. The second pass also corrects the arbitrary rows that QR returns for a
        # rank-deficient block.
        block = _orthonormal(self.remainder)
        self.block = _orthonormal(block - (block @ basis.T) @ basis)


def canonical_signs(vectors: Tensor) -> Tensor:
    """Flip columns so that the entry of largest magnitude of each is positive."""
    peaks = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return vectors * torch.where(peaks < 0, -1.0, 1.0).to(vectors)


def leading_eigenpairs(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest eigenvalues in decreasing order, and their vectors in columns with canonical signs."""
    values, vectors, basis = EigenSpace(matrix).leading(count)
    return values, canonical_signs(basis.T @ vectors)


def noise_level(dtype: torch.dtype) -> float:
    """Return the relative size below which a number counts as rounding error."""
    return 32 * torch.finfo(dtype).eps


def _leading_dense(matrix: Tensor, count: int, modify: Modification | None) -> tuple[Tensor, Tensor]:
    if modify is not None:
        matrix = matrix.clone()
        modify(matrix)
    values, vectors = torch.linalg.eigh(matrix)
    return values[-count:].flip(0), vectors[:, -count:].flip(1)


def _orthonormal(rows: Tensor) -> Tensor:
    factor: Tensor = torch.linalg.qr(rows.T).Q
    return factor.T


def _reflection(direction: Tensor) -> Tensor:
    """Return a symmetric orthogonal matrix whose first row is parallel to `direction` (Householder)."""
    normal = direction / direction.norm()
    normal[0] += 1.0 if normal[0] >= 0 else -1.0
    identity = torch.ones_like(direction).diag()
    return identity.sub_(torch.outer(normal, normal) * (2 / normal.square().sum()))


def _may_hide_copies(values: Tensor, tolerance: float) -> bool:
    """Return whether BLOCK_SIZE consecutive values are equal: a block finds at most so many copies of an eigenvalue."""
    spreads = values[: 1 - BLOCK_SIZE] - values[BLOCK_SIZE - 1 :]
    return bool((spreads <= tolerance * values[0]).any())
