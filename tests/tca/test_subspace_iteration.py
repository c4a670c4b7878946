"""Federated RF-TCA by subspace iteration against the closed form for the pooled samples."""

from math import inf

import numpy as np
import pytest
import torch

from fedrf.tca.federated import scatter_product
from tests.tca.clients import (
    DIM,
    GAMMAS,
    SIZES,
    aligner_of_clients,
    assert_same,
    iterate,
    make_clients,
    pooled_problem,
    start_iteration,
    step,
)
from tests.tca.reference import largest_angle


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("gamma", [*GAMMAS, "auto"])
def test_agrees_with_the_pooled_solution(sizes, gamma):
    sources, target = make_clients(sizes)
    problem = pooled_problem(sources, target)
    number = np.sqrt(np.prod(problem.informative_gamma_range(DIM))) if gamma == "auto" else gamma
    expected = problem.solve(number, DIM)
    solution = iterate(sources, target, gamma=gamma)[0].solution(gamma)
    assert largest_angle(solution.aligner, expected.aligner) < 1e-6
    assert_same(solution.aligner, expected.aligner)
    torch.testing.assert_close(solution.eigenvalues, expected.eigenvalues, rtol=1e-9, atol=0)


@pytest.mark.parametrize(("num_features", "dim"), [(200, 20), (500, 20), (500, 50)])
def test_eight_steps_are_enough(num_features, dim):
    sources, target = make_clients([600, 300, 150], 400, num_features)
    expected = pooled_problem(sources, target).solve(0.1, dim)
    iteration, steps = iterate(sources, target, dim, tolerance=3e-4)
    assert steps <= 8
    assert steps * (dim + 1) < num_features
    assert largest_angle(iteration.solution(0.1).aligner, expected.aligner) < 1e-3
    torch.testing.assert_close(iteration.solution(0.1).eigenvalues, expected.eigenvalues, rtol=1e-5, atol=0)


def test_power_iteration_is_inaccurate_after_as_many_steps():
    sources, target = make_clients()
    problem = pooled_problem(sources, target)
    exact = problem.solve(inf, DIM).aligner
    rows = torch.cat([*sources, target])
    rows -= rows.mean(0)
    iteration, steps = iterate(sources, target, gamma=inf, tolerance=1e-3)
    basis = torch.randn(200, DIM + 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for _ in range(steps):
        basis = torch.linalg.qr(rows.T @ (rows @ basis)).Q
    best = basis @ torch.linalg.svd(rows @ basis, full_matrices=False).Vh[:DIM].T
    assert largest_angle(iteration.solution(inf).aligner, exact) < 2e-3
    assert largest_angle(best, exact) > 0.1


def test_one_iteration_gives_the_solutions_for_all_gamma():
    sources, target = make_clients()
    problem = pooled_problem(sources, target)
    iteration, _ = iterate(sources, target, gamma=inf)
    for gamma in GAMMAS:
        assert iteration.residual(gamma) < 1e-8
        assert_same(iteration.solution(gamma).aligner, problem.solve(gamma, DIM).aligner)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_residual_estimates_the_angle(gamma):
    sources, target = make_clients()
    exact = pooled_problem(sources, target).solve(gamma, DIM).aligner
    iteration, compared = start_iteration(sources, target), 0
    assert iteration.residual(gamma) == inf
    for _ in range(12):
        step(iteration, sources, target)
        if 1e-6 < iteration.residual(gamma) < 1e-2:
            angle = largest_angle(iteration.solution(gamma).aligner, exact)
            assert 0.5 < angle / iteration.residual(gamma) < 3
            compared += 1
    assert compared > 2


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_residual_is_that_of_the_eigenvectors(gamma):
    sources, target = make_clients()
    problem = pooled_problem(sources, target)
    mean, v = problem.pooled.mean, problem.discrepancy
    scatter = problem.pooled.gram - problem.pooled.count * torch.outer(mean, mean)
    shrinkage = 1.0 if gamma == inf else (gamma / (gamma + float(v @ v))) ** 0.5
    iteration = start_iteration(sources, target)
    for _ in range(3):
        step(iteration, sources, target)
        W, values = iteration.solution(gamma)
        image = scatter @ W
        along_v = torch.outer(v, v) / (v @ v)
        U = W + (1 / shrinkage - 1) * along_v @ W if shrinkage else W
        residual = image - (1 - shrinkage) * along_v @ image - U * values
        expected = float(torch.linalg.matrix_norm(residual, 2) / values[-1])
        assert iteration.residual(gamma) == pytest.approx(expected, rel=1e-6)
        torch.testing.assert_close(U.T @ U, torch.eye(DIM, dtype=torch.float64))
        weighted = W.T @ scatter @ W
        torch.testing.assert_close(weighted, values.diag(), rtol=0, atol=1e-9 * float(values[0]))


def test_order_and_partition_of_the_sources_do_not_matter():
    sources, target = make_clients()
    split = [*sources[0].split([70, 230]), *sources[1:]]
    for rearranged in (sources[::-1], split):
        first, second = start_iteration(sources, target), start_iteration(rearranged, target)
        for _ in range(4):
            # Compared before convergence, where only equal messages give equal solutions.
            torch.testing.assert_close(second.basis, first.basis, rtol=0, atol=1e-6)
            step(first, sources, target)
            step(second, rearranged, target)
            assert_same(second.solution(0.1).aligner, first.solution(0.1).aligner)
            torch.testing.assert_close(second.solution(0.1).eigenvalues, first.solution(0.1).eigenvalues)


def test_empty_clients_do_not_matter():
    sources, target = make_clients()
    with_empty = [*sources, sources[0][:0]]
    assert_same(iterate(with_empty, target)[0].solution(0.1).aligner, aligner_of_clients(sources, target, 0.1))


@pytest.mark.parametrize("factor", [1, 10])
def test_messages_do_not_grow_with_the_samples(factor):
    sources, target = make_clients([30 * factor, 20 * factor], 40 * factor)
    iteration = start_iteration(sources, target)
    for _ in range(3):
        products = [scatter_product(part, iteration.basis) for part in (*sources, target)]
        assert {message.numel() for message in (iteration.basis, *products)} == {200 * (DIM + 1)}
        iteration.update(sum(products))


def test_all_bases_together_are_orthonormal_and_start_with_the_discrepancy():
    sources, target = make_clients()
    iteration, bases = start_iteration(sources, target), []
    for _ in range(6):
        bases.append(iteration.basis)
        step(iteration, sources, target)
    together = torch.cat(bases, dim=1)
    assert together.shape == (200, 6 * (DIM + 1))
    torch.testing.assert_close(together.T @ together, torch.eye(6 * (DIM + 1), dtype=torch.float64))
    v = torch.cat(sources).mean(0) - target.mean(0)
    assert abs(float(v @ bases[0][:, 0])) == pytest.approx(float(v.norm()))


def test_the_seed_determines_the_first_basis():
    sources, target = make_clients()
    first, again, other = (start_iteration(sources, target, seed=seed).basis for seed in (1, 1, 2))
    assert first.equal(again)
    assert not first[:, 1:].allclose(other[:, 1:])
    aligners = [iterate(sources, target, seed=seed)[0].solution(0.1).aligner for seed in (1, 2)]
    assert_same(*aligners)


def test_single_precision_is_enough_for_a_warm_start():
    expected = pooled_problem(*make_clients()).solve(0.1, DIM)
    sources, target = make_clients(dtype=torch.float32)
    iteration, steps = iterate(sources, target, tolerance=1e-4, dtype=torch.float32)
    assert steps <= 12
    assert iteration.basis.dtype == torch.float32
    assert scatter_product(target, iteration.basis).dtype == torch.float32
    solution = iteration.solution(0.1)
    assert solution.aligner.dtype == torch.float64
    assert largest_angle(solution.aligner, expected.aligner) < 1e-3
    torch.testing.assert_close(solution.eigenvalues, expected.eigenvalues, rtol=1e-4, atol=0)
