"""Both algorithms of federated RF-TCA on domains with equal means, deficient rank or repeated eigenvalues."""

from math import inf

import pytest
import torch

from tests.tca.clients import (
    DIM,
    GAMMAS,
    aligner_of_clients,
    assert_same,
    iterate,
    make_clients,
    pooled_problem,
    start_iteration,
    step,
)


@pytest.mark.parametrize("gamma", [*GAMMAS, "auto"])
@pytest.mark.parametrize("rounding", [False, True])
def test_equal_means_give_principal_components(gamma, rounding):
    sources, _ = make_clients()
    target = torch.cat(sources)
    target = target.flip(0) if rounding else target
    sources = [target.flip(0)] if rounding else [target]
    principal = pooled_problem(sources, target).solve(inf, DIM)
    assert_same(aligner_of_clients(sources, target, gamma), principal.aligner)
    assert_same(iterate(sources, target, gamma=gamma)[0].solution(gamma).aligner, principal.aligner)


@pytest.mark.parametrize(("gamma", "rank"), [(0.0, 8), (0.1, 9), (inf, 9)])
def test_components_without_variance_are_zero_with_a_warning(gamma, rank):
    sources, target = make_clients([4, 3], 3)
    with pytest.warns(UserWarning, match=f"only {rank} of the 12 components carry any variance"):
        expected = pooled_problem(sources, target).solve(gamma, DIM)
    with pytest.warns(UserWarning, match=f"only {rank} of the 12 components carry any variance"):
        assert_same(aligner_of_clients(sources, target, gamma), expected.aligner)
    with pytest.warns(UserWarning, match=f"only {rank} of the 12 components carry any variance"):
        iteration, steps = iterate(sources, target, gamma=gamma)
    with pytest.warns(UserWarning, match=f"only {rank} of the 12 components carry any variance"):
        solution = iteration.solution(gamma)
    assert steps == 2
    assert_same(solution.aligner, expected.aligner)
    torch.testing.assert_close(solution.eigenvalues, expected.eigenvalues)
    assert (solution.aligner[:, rank:] == 0).all()


def test_rounding_error_depends_on_the_precision_of_the_clients():
    sources, target = make_clients([4], 3, dtype=torch.float32)
    with pytest.warns(UserWarning, match="only 6 of the 12 components"):
        aligner = aligner_of_clients(sources, target, 0.1, dtype=torch.float32)
    with pytest.warns(UserWarning, match="only 6 of the 12 components"):
        iteration, _ = iterate(sources, target, tolerance=1e-4, dtype=torch.float32)
    with pytest.warns(UserWarning, match="only 6 of the 12 components"):
        iterated = iteration.solution(0.1).aligner
    assert_same(iterated, aligner, 1e-3)
    assert (iterated[:, 6:] == 0).all()


def test_steps_after_convergence_do_not_change_the_solution():
    sources, target = make_clients([9], 8, num_features=30)
    iteration = start_iteration(sources, target)
    widths = []
    for _ in range(7):
        widths.append(iteration.basis.shape[1])
        step(iteration, sources, target)
    assert widths == [13, 13, 13, 13, 8, 0, 0]
    assert iteration.residual(0.1) < 1e-12
    expected = pooled_problem(sources, target).solve(0.1, DIM)
    assert_same(iteration.solution(0.1).aligner, expected.aligner)
    torch.testing.assert_close(iteration.solution(0.1).eigenvalues, expected.eigenvalues)


@pytest.mark.parametrize("dim", [1, 60])
def test_one_component_and_all_components(dim):
    sources, target = make_clients(num_features=30)
    expected = pooled_problem(sources, target).solve(0.1, dim).aligner
    solution = iterate(sources, target, dim)[0].solution(0.1)
    assert_same(solution.aligner, expected, 1e-5)


def test_all_copies_of_an_eigenvalue_are_found():
    # Pairs of opposite samples have S = 2·diag(scales²).
    scales = torch.ones(52, dtype=torch.float64)
    scales[[7, 30]] = torch.tensor([3.0, 2.0], dtype=torch.float64)
    half = scales.diag()
    iteration, steps = iterate([half], -half, dim=6, gamma=inf)
    assert steps <= 4
    eigenvalues = torch.tensor([18.0, 8.0, 2.0, 2.0, 2.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(iteration.solution(inf).eigenvalues, eigenvalues)


def test_equal_samples_are_an_error():
    sources, target = [torch.ones(5, 8).double() / 8**0.5], torch.ones(3, 8).double() / 8**0.5
    with pytest.raises(ValueError, match="no component has more variance than rounding error"):
        aligner_of_clients(sources, target, 0.1, 2)
    iteration = start_iteration(sources, target, 2)
    step(iteration, sources, target)
    with pytest.raises(ValueError, match="no component has more variance than rounding error"):
        iteration.solution(0.1)
