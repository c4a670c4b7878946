"""The closed forms against dense generalised eigenproblems, and the properties that the paper states."""

import warnings
from math import inf

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrf.tca.problems import GramProblem, ScatterProblem
from fedrf.tca.random_features import KERNELS, kernel_matrix
from tests.conftest import make_domains
from tests.tca.reference import centred, dense_solution, largest_angle, scatter_and_discrepancy, scatter_problem

DIM = 5


class TestAgainstDenseReference:
    @pytest.mark.parametrize("gamma", [1e-3, 0.1, 10.0])
    @pytest.mark.parametrize("kernel", KERNELS)
    def test_rf_tca(self, domains, gamma, kernel):
        problem, mapped = scatter_problem(*domains, kernel=kernel)
        scatter, v = scatter_and_discrepancy(mapped.numpy(), domains[1])
        values, vectors = dense_solution(scatter, gamma * np.eye(len(v)) + np.outer(v, v), DIM)
        solution = problem.solve(gamma, DIM)
        np.testing.assert_allclose(solution.eigenvalues, gamma * values, rtol=1e-9)
        assert largest_angle(solution.aligner, vectors) < 1e-7
        constraint = solution.whitened.numpy().T @ scatter @ solution.whitened.numpy()
        np.testing.assert_allclose(constraint, np.eye(DIM), atol=1e-9)
        weighted = solution.aligner.numpy().T @ scatter @ solution.aligner.numpy()
        np.testing.assert_allclose(weighted, np.diag(solution.eigenvalues), atol=1e-9 * float(values[0]))

    @pytest.mark.parametrize("gamma", [1e-2, 1.0, 100.0])
    def test_vanilla_tca(self, domains, gamma):
        rows, domain = domains
        kernel = kernel_matrix(torch.from_numpy(rows), torch.from_numpy(rows), 2.0)
        scatter, v = scatter_and_discrepancy(kernel.numpy(), domain)
        values, vectors = dense_solution(scatter, gamma * np.eye(len(v)) + np.outer(v, v), DIM)
        solution = GramProblem.vanilla(kernel, torch.from_numpy(domain > 0)).solve(gamma, DIM)
        np.testing.assert_allclose(solution.eigenvalues, gamma * values, rtol=1e-8)
        assert largest_angle(kernel @ solution.aligner, kernel.numpy() @ vectors) < 1e-6
        assert largest_angle(solution.aligner, vectors) < 1e-6
        constraint = solution.whitened.numpy().T @ scatter @ solution.whitened.numpy()
        np.testing.assert_allclose(constraint, np.eye(DIM), atol=1e-8)

    @pytest.mark.parametrize("gamma", [1e-3, 0.1, 10.0])
    def test_regularised_tca(self, domains, gamma):
        rows, domain = domains
        # The Laplace kernel matrix is well conditioned, so that the reference is accurate.
        kernel = kernel_matrix(torch.from_numpy(rows), torch.from_numpy(rows), 4.0, "laplace")
        scatter, v = scatter_and_discrepancy(kernel.numpy(), domain)
        values, vectors = dense_solution(scatter, gamma * kernel.numpy() + np.outer(v, v), DIM)
        solution = GramProblem.regularised(kernel, torch.from_numpy(domain > 0)).solve(gamma, DIM)
        np.testing.assert_allclose(solution.eigenvalues, gamma * values, rtol=1e-8)
        assert largest_angle(solution.aligner, vectors) < 1e-6
        constraint = solution.whitened.numpy().T @ scatter @ solution.whitened.numpy()
        np.testing.assert_allclose(constraint, np.eye(DIM), atol=1e-8)

    def test_eigenvalues_are_those_of_algorithm_1(self, domains):
        problem, mapped = scatter_problem(*domains)
        scatter, v = scatter_and_discrepancy(mapped.numpy(), domains[1])
        matrix = scatter - np.outer(v, v) @ scatter / (0.05 + v @ v)
        expected = np.sort(np.linalg.eigvals(matrix).real)[::-1][:DIM]
        np.testing.assert_allclose(problem.solve(0.05, DIM).eigenvalues, expected, rtol=1e-9)

    def test_lemma_1_gives_the_features_of_vanilla_tca(self, domains):
        rows, domain = domains
        kernel = kernel_matrix(torch.from_numpy(rows), torch.from_numpy(rows), 2.0)
        solution = GramProblem.vanilla(kernel, torch.from_numpy(domain > 0)).solve(1.0, DIM)
        K, count = kernel.numpy(), len(rows)
        domain_weights = np.where(domain > 0, 1 / (domain > 0).sum(), -1 / (domain < 0).sum())
        centring = np.eye(count) - 1 / count
        square = K @ K
        penalty = np.outer(square @ domain_weights, square @ domain_weights) / (
            1.0 + domain_weights @ square @ domain_weights
        )
        leading = np.linalg.eigh(centring @ (square - penalty) @ centring)[1][:, -DIM:]
        assert largest_angle(centred(K @ solution.aligner.numpy()), leading) < 1e-6

    def test_single_precision_agrees(self):
        problem, _ = scatter_problem(*make_domains(400, 300, 10), num_features=200, sigma=4.0)
        exact = problem.solve(0.01, DIM)
        single = ScatterProblem(problem.source, problem.target, torch.float32).solve(0.01, DIM)
        assert largest_angle(single.aligner, exact.aligner) < 1e-3
        np.testing.assert_allclose(single.eigenvalues, exact.eigenvalues, rtol=1e-4)

    def test_large_problems_have_the_same_solution_by_lanczos(self):
        rows, domain = make_domains(900, 700, 12)
        problem, mapped = scatter_problem(rows, domain, num_features=500, sigma=5.0)
        scatter, v = scatter_and_discrepancy(mapped.numpy(), domain)
        _, vectors = dense_solution(scatter, 0.01 * np.eye(len(v)) + np.outer(v, v), DIM)
        assert largest_angle(problem.solve(0.01, DIM).aligner, vectors) < 1e-6


class TestLimits:
    def test_small_gamma_makes_the_means_coincide(self, domains):
        problem, _ = scatter_problem(*domains)
        for gamma in (0.0, 1e-300, 1e-14):
            aligner = problem.solve(gamma, DIM).aligner
            assert (problem.discrepancy @ aligner).abs().max() < 1e-6 * problem.discrepancy.norm()

    def test_large_gamma_gives_principal_components(self, domains):
        problem, mapped = scatter_problem(*domains)
        principal = np.linalg.svd(centred(mapped.numpy()), full_matrices=False)[2][:DIM].T
        for gamma in (inf, 1e12):
            assert largest_angle(problem.solve(gamma, DIM).aligner, principal) < 1e-6

    def test_solutions_are_continuous_at_gamma_zero_and_infinity(self, domains):
        problem, _ = scatter_problem(*domains)
        for near, limit in ((1e-13, 0.0), (1e13, inf)):
            torch.testing.assert_close(
                problem.solve(near, DIM).aligner, problem.solve(limit, DIM).aligner, rtol=0, atol=1e-5
            )

    @pytest.mark.parametrize("make_problem", [GramProblem.vanilla, GramProblem.regularised])
    def test_kernel_problems_at_the_limits(self, domains, make_problem):
        rows, domain = domains
        kernel = kernel_matrix(torch.from_numpy(rows), torch.from_numpy(rows), 4.0, "laplace")
        problem = make_problem(kernel, torch.from_numpy(domain > 0))
        discrepancy = kernel @ problem.domain_weights
        assert (discrepancy @ problem.solve(0.0, DIM).aligner).abs().max() < 1e-9
        assert torch.isfinite(problem.solve(inf, DIM).aligner).all()

    def test_domains_with_equal_means_give_principal_components(self):
        rows, _ = make_domains(40, 40)
        # In another order, so that the means differ by rounding error.
        doubled, domain = np.vstack([rows, rows[::-1]]), np.repeat([1, -1], 80)
        kernel = kernel_matrix(torch.from_numpy(doubled), torch.from_numpy(doubled), 2.0)
        is_source = torch.from_numpy(domain > 0)
        for problem in (
            scatter_problem(doubled, domain)[0],
            GramProblem.vanilla(kernel, is_source),
            GramProblem.regularised(kernel, is_source),
        ):
            assert problem.informative_gamma_range(DIM) == (0.0, 0.0)
            for gamma in (0.0, 1e-20, 1.0):
                torch.testing.assert_close(problem.solve(gamma, DIM), problem.solve(inf, DIM), rtol=0, atol=1e-6)

    def test_mmd_grows_with_gamma(self, domains):
        problem, _ = scatter_problem(*domains)
        discrepancies = [
            float((problem.discrepancy @ problem.solve(gamma, DIM).aligner).norm()) for gamma in (0, 1e-3, 1e-2, 0.1, 1)
        ]
        assert discrepancies == sorted(discrepancies)


class TestDeficientRank:
    def test_components_without_variance_are_zero_with_a_warning(self):
        rows, domain = make_domains(3, 3)
        problem, _ = scatter_problem(rows, domain)
        with pytest.warns(UserWarning, match="only 5 of the 8 components carry any variance"):
            solution = problem.solve(0.1, 8)
        assert (solution.aligner[:, 5:] == 0).all()
        assert (solution.eigenvalues[5:] == 0).all()
        assert torch.isfinite(solution.whitened).all()
        assert (solution.whitened[:, 5:] == 0).all()

    def test_equal_samples_are_an_error(self):
        rows, domain = np.ones((10, 3)), np.repeat([1, -1], 5)
        problem, _ = scatter_problem(rows, domain)
        with pytest.raises(ValueError, match="no component has more variance than rounding error"):
            problem.solve(0.1, 2)

    def test_signs_are_canonical(self, domains):
        aligner = scatter_problem(*domains)[0].solve(0.01, DIM).aligner
        peaks = aligner.gather(0, aligner.abs().argmax(0, keepdim=True))
        assert (peaks > 0).all()

    def test_equal_eigenvalues_give_an_orthogonal_basis(self):
        kernel = torch.eye(40, dtype=torch.float64)
        problem = GramProblem.regularised(kernel, torch.arange(40) < 20)
        solution = problem.solve(0.1, 6)
        torch.testing.assert_close(solution.eigenvalues, torch.ones(6, dtype=torch.float64))
        torch.testing.assert_close(solution.aligner.T @ solution.aligner, torch.eye(6, dtype=torch.float64))


class TestTheorem1:
    """The leading space of RF-TCA's centred features converges to that of R-TCA as N grows."""

    def test_projectors_converge_with_the_square_root_of_num_features(self):
        rows, domain = make_domains(60, 40, 3, shift=0.5, seed=4)
        kernel = kernel_matrix(torch.from_numpy(rows), torch.from_numpy(rows), 2.0)
        exact = GramProblem.regularised(kernel, torch.from_numpy(domain > 0)).solve(0.01, 3)
        leading = np.linalg.qr(centred(kernel.numpy() @ exact.aligner.numpy()))[0]
        sizes, distances = [50, 200, 800, 3200], []
        for size in sizes:
            squares = []
            for seed in range(4):
                problem, mapped = scatter_problem(rows, domain, size, seed=seed)
                aligned = centred(mapped.numpy() @ problem.solve(0.01, 3).aligner.numpy())
                basis = np.linalg.qr(aligned)[0]
                squares.append(np.linalg.norm(basis @ basis.T - leading @ leading.T, 2) ** 2)
            distances.append(np.sqrt(np.mean(squares)))
        assert np.polyfit(np.log(sizes), np.log(distances), 1)[0] == pytest.approx(-0.5, abs=0.15)
        assert distances[-1] < 0.15

    def test_lemma_2_orders_the_losses(self, domains):
        rows, domain = domains
        kernel = kernel_matrix(torch.from_numpy(rows), torch.from_numpy(rows), 2.0).numpy()
        discrepancy = kernel @ np.where(domain > 0, 1 / (domain > 0).sum(), -1 / (domain < 0).sum())
        W = np.random.RandomState(0).randn(len(rows), DIM)
        spectrum = np.linalg.eigvalsh(kernel)

        def loss(gamma, metric):
            return np.square(discrepancy @ W).sum() + gamma * np.trace(W.T @ metric @ W)

        middle = loss(0.3, kernel)
        assert loss(0.3 * spectrum[0], np.eye(len(rows))) <= middle <= loss(0.3 * spectrum[-1], np.eye(len(rows)))


@settings(deadline=None, max_examples=30)
@given(
    gamma=st.floats(1e-6, 1e6),
    num_source=st.integers(3, 40),
    num_target=st.integers(3, 40),
    shift=st.floats(-5, 5),
    seed=st.integers(0, 10000),
)
def test_the_solution_has_a_smaller_objective_than_random_candidates(gamma, num_source, num_target, shift, seed):
    """No W that satisfies the constraint has a smaller |Wᵀv|² + γ|W|²."""
    rows, domain = make_domains(num_source, num_target, 3, shift, seed)
    problem, mapped = scatter_problem(rows, domain, num_features=15)
    scatter, v = scatter_and_discrepancy(mapped.numpy(), domain)
    dim = 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        W = problem.solve(gamma, dim).whitened.numpy()

    def objective(W):
        return np.square(v @ W).sum() + gamma * np.square(W).sum()

    rng = np.random.RandomState(0)
    for _ in range(5):
        candidate = W + 0.1 * np.abs(W).max() * rng.randn(*W.shape)
        candidate = candidate @ np.linalg.inv(scipy.linalg.sqrtm(candidate.T @ scatter @ candidate).real)
        assert objective(W) <= objective(candidate) * (1 + 1e-6)
