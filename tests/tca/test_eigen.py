import numpy as np
import pytest
import torch

from fedrf.tca import eigen
from fedrf.tca.eigen import EigenSpace, canonical_signs, leading_eigenpairs


def symmetric(spectrum, seed=0):
    """Return a symmetric matrix with this spectrum and random eigenvectors."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(len(spectrum), len(spectrum), generator=generator, dtype=torch.float64)).Q
    return (basis * spectrum) @ basis.T


def check_leading_eigenpairs(matrix, count, tolerance):
    values, vectors = leading_eigenpairs(matrix, count)
    expected = torch.linalg.eigvalsh(matrix.double()).flip(0)[:count]
    scale = float(expected[0])
    assert vectors.shape == (len(matrix), count)
    torch.testing.assert_close(values.double(), expected, rtol=0, atol=tolerance * scale)
    residual = (matrix.double() @ vectors.double() - vectors.double() * values.double()).norm(dim=0)
    assert residual.max() <= tolerance * scale
    gram = vectors.double().T @ vectors.double()
    torch.testing.assert_close(gram, torch.eye(count, dtype=torch.float64), rtol=0, atol=tolerance)


SPECTRA = {
    "decaying": lambda size: torch.exp(-torch.arange(size) / 50.0),
    "slow": lambda size: 1 / (1 + torch.arange(size) / 100.0),
    "pairs": lambda size: torch.exp(-(torch.arange(size) // 2) / 50.0),
    "many copies at the top": lambda size: torch.where(torch.arange(size) < 40, 1.0, 0.3),
    "copies inside": lambda size: torch.where(
        (torch.arange(size) > 10) & (torch.arange(size) < 60), 0.5, torch.exp(-torch.arange(size) / 90.0)
    ),
    "one value": lambda size: torch.ones(size),
    "low rank": lambda size: torch.where(torch.arange(size) < 15, 1.0 + torch.arange(size), 0.0),
    "negative tail": lambda size: torch.linspace(1, -2, size),
}


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("size", [50, 900])
def test_leading_eigenpairs_are_those_of_lapack(spectrum, size):
    check_leading_eigenpairs(symmetric(SPECTRA[spectrum](size).double()), 30, 1e-9)


def test_single_precision():
    check_leading_eigenpairs(symmetric(SPECTRA["slow"](900).double()).float(), 50, 3e-5)


def test_lanczos_is_used_only_for_few_eigenpairs_of_large_matrices(monkeypatch):
    calls = []
    krylov = eigen._Krylov
    monkeypatch.setattr(eigen, "_Krylov", lambda *args: calls.append(1) or krylov(*args))
    leading_eigenpairs(symmetric(SPECTRA["slow"](300).double()), 10)
    leading_eigenpairs(symmetric(SPECTRA["slow"](900).double()), 400)
    assert calls == []
    leading_eigenpairs(symmetric(SPECTRA["slow"](900).double()), 10)
    assert calls == [1]


def test_more_copies_of_an_eigenvalue_than_a_block_finds_are_rejected():
    matrix = symmetric(SPECTRA["copies inside"](900).double())
    assert eigen._Krylov(matrix, torch.ones(900)).leading(30, None) is None


def test_the_same_matrix_gives_the_same_bits():
    matrix = symmetric(SPECTRA["slow"](900).double())
    torch.manual_seed(1)
    first = leading_eigenpairs(matrix, 20)
    torch.manual_seed(2)
    second = leading_eigenpairs(matrix, 20)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_signs_are_canonical():
    vectors = torch.from_numpy(np.array([[1.0, -3.0, 0.0], [-2.0, 1.0, 0.0]]))
    expected = [[-1.0, 3.0, 0.0], [2.0, -1.0, 0.0]]
    assert canonical_signs(vectors).tolist() == expected
    assert torch.equal(canonical_signs(-vectors), canonical_signs(vectors))


@pytest.mark.parametrize("size", [60, 900])
@pytest.mark.parametrize("spectrum", ["slow", "many copies at the top", "low rank"])
def test_modifications_along_one_direction_share_a_space(size, spectrum):
    matrix = symmetric(SPECTRA[spectrum](size).double())
    direction = torch.randn(size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    unit = direction / direction.norm()
    space = EigenSpace(matrix, direction)
    for shrinkage in (1.0, 0.5, 0.0):

        def shrink(projected, shrinkage=shrinkage):
            projected[:, 0] *= shrinkage
            projected[0, 0] *= shrinkage

        scaling = torch.eye(size, dtype=torch.float64) - (1 - shrinkage) * torch.outer(unit, unit)
        modified = scaling @ matrix @ scaling
        values, coordinates, basis = space.leading(10, shrink)
        vectors = basis.T @ coordinates
        torch.testing.assert_close(values, torch.linalg.eigvalsh(modified).flip(0)[:10], rtol=0, atol=1e-9)
        torch.testing.assert_close(modified @ vectors, vectors * values, rtol=0, atol=1e-8)


def test_a_krylov_basis_stays_orthonormal_beyond_the_numerical_rank():
    krylov = eigen._Krylov(symmetric(torch.exp(-torch.arange(900) / 3.0).double()), torch.ones(900))
    while krylov.dimension < 400:
        krylov._grow()
    basis = krylov.basis[: krylov.dimension]
    torch.testing.assert_close(basis @ basis.T, torch.eye(400, dtype=torch.float64), rtol=0, atol=1e-12)


def test_a_krylov_space_grows_only_if_needed():
    space = EigenSpace(symmetric(SPECTRA["slow"](900).double()))
    space.leading(20)
    dimension = space._krylov.dimension
    space.leading(20)
    space.leading(10)
    assert space._krylov.dimension == dimension
    space.leading(60)
    assert space._krylov.dimension > dimension
