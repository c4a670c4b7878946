"""The closed forms against dense generalised eigenproblems, and the properties that the paper states."""

import warnings
from math import inf

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrf.tca.problems import (
    DomainStatistics,
    GramProblem,
    ScatterProblem,
    intrinsic_dimension,
    suggest_num_features,
)
from fedrf.tca.random_features import KERNELS, RandomFourierFeatures, kernel_matrix
from tests.conftest import make_domains


def scatter_problem(rows, domain, num_features=40, sigma=2.0, kernel="gaussian", seed=0):
    features = RandomFourierFeatures(rows.shape[1], num_features, sigma, kernel, seed, dtype=torch.float64)
    mapped = features(torch.from_numpy(rows))
    is_source = torch.from_numpy(domain > 0)
    return ScatterProblem(DomainStatistics.of(mapped[is_source]), DomainStatistics.of(mapped[~is_source])), mapped


def textbook(features, domain):
    """S, v and n of the paper, from n × n matrices: `features` has one sample a row."""
    count = len(features)
    centring = np.eye(count) - np.ones((count, count)) / count
    labels = np.where(domain > 0, 1 / (domain > 0).sum(), -1 / (domain < 0).sum())
    return features.T @ centring @ features, features.T @ labels


def dense_solution(scatter, penalty, dim):
    """The leading generalised eigenvectors of S w = λ B w."""
    values, vectors = scipy.linalg.eigh(scatter, penalty)
    return values[::-1][:dim], vectors[:, ::-1][:, :dim]


def largest_angle(a, b):
    return scipy.linalg.subspace_angles(np.asarray(a), np.asarray(b)).max()


def centred(values):
    return values - values.mean(axis=0)


DIM = 5


class TestAgainstDenseReference:
    @pytest.mark.parametrize("gamma", [1e-3, 0.1, 10.0])
    @pytest.mark.parametrize("kernel", KERNELS)
    def test_rf_tca(self, domains, gamma, kernel):
        problem, mapped = scatter_problem(*domains, kernel=kernel)
        scatter, v = textbook(mapped.numpy(), domains[1])
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
        scatter, v = textbook(kernel.numpy(), domain)
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
        # the Laplace kernel matrix is well conditioned, so that the reference can be trusted
        kernel = kernel_matrix(torch.from_numpy(rows), torch.from_numpy(rows), 4.0, "laplace")
        scatter, v = textbook(kernel.numpy(), domain)
        values, vectors = dense_solution(scatter, gamma * kernel.numpy() + np.outer(v, v), DIM)
        solution = GramProblem.regularised(kernel, torch.from_numpy(domain > 0)).solve(gamma, DIM)
        np.testing.assert_allclose(solution.eigenvalues, gamma * values, rtol=1e-8)
        assert largest_angle(solution.aligner, vectors) < 1e-6
        constraint = solution.whitened.numpy().T @ scatter @ solution.whitened.numpy()
        np.testing.assert_allclose(constraint, np.eye(DIM), atol=1e-8)

    def test_eigenvalues_are_those_of_algorithm_1(self, domains):
        problem, mapped = scatter_problem(*domains)
        scatter, v = textbook(mapped.numpy(), domains[1])
        matrix = scatter - np.outer(v, v) @ scatter / (0.05 + v @ v)
        expected = np.sort(np.linalg.eigvals(matrix).real)[::-1][:DIM]
        np.testing.assert_allclose(problem.solve(0.05, DIM).eigenvalues, expected, rtol=1e-9)

    def test_lemma_1_gives_the_features_of_vanilla_tca(self, domains):
        rows, domain = domains
        kernel = kernel_matrix(torch.from_numpy(rows), torch.from_numpy(rows), 2.0)
        solution = GramProblem.vanilla(kernel, torch.from_numpy(domain > 0)).solve(1.0, DIM)
        K, count = kernel.numpy(), len(rows)
        labels = np.where(domain > 0, 1 / (domain > 0).sum(), -1 / (domain < 0).sum())
        centring = np.eye(count) - 1 / count
        square = K @ K
        pull = np.outer(square @ labels, square @ labels) / (1.0 + labels @ square @ labels)
        leading = np.linalg.eigh(centring @ (square - pull) @ centring)[1][:, -DIM:]
        assert largest_angle(centred(K @ solution.aligner.numpy()), leading) < 1e-6

    def test_single_precision_agrees(self):
        problem, _ = scatter_problem(*make_domains(400, 300, 10), num_features=200, sigma=4.0)
        exact = problem.solve(0.01, DIM)
        single = ScatterProblem(problem.source, problem.target, torch.float32).solve(0.01, DIM)
        assert largest_angle(single.aligner, exact.aligner) < 1e-3
        np.testing.assert_allclose(single.eigenvalues, exact.eigenvalues, rtol=1e-4)

    def test_large_problems_go_through_lanczos_to_the_same_solution(self):
        rows, domain = make_domains(900, 700, 12)
        problem, mapped = scatter_problem(rows, domain, num_features=500, sigma=5.0)
        scatter, v = textbook(mapped.numpy(), domain)
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

    def test_solutions_are_continuous_down_to_zero_and_up_to_infinity(self, domains):
        problem, _ = scatter_problem(*domains)
        for near, limit in ((1e-13, 0.0), (1e13, inf)):
            torch.testing.assert_close(
                problem.solve(near, DIM).aligner, problem.solve(limit, DIM).aligner, rtol=0, atol=1e-5
            )

    @pytest.mark.parametrize("pose", [GramProblem.vanilla, GramProblem.regularised])
    def test_kernel_forms_at_the_limits(self, domains, pose):
        rows, domain = domains
        kernel = kernel_matrix(torch.from_numpy(rows), torch.from_numpy(rows), 4.0, "laplace")
        problem = pose(kernel, torch.from_numpy(domain > 0))
        moved = kernel @ problem.labels
        assert (moved @ problem.solve(0.0, DIM).aligner).abs().max() < 1e-9
        assert torch.isfinite(problem.solve(inf, DIM).aligner).all()

    def test_domains_with_equal_means_need_no_shrinking(self):
        rows, _ = make_domains(40, 40)
        # in another order, so that the means differ by rounding error
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
    def test_components_without_variance_are_zero_and_said(self):
        rows, domain = make_domains(3, 3)
        problem, _ = scatter_problem(rows, domain)
        with pytest.warns(UserWarning, match="only 5 of the 8 components carry any variance"):
            solution = problem.solve(0.1, 8)
        assert (solution.aligner[:, 5:] == 0).all()
        assert (solution.eigenvalues[5:] == 0).all()
        assert torch.isfinite(solution.whitened).all()
        assert (solution.whitened[:, 5:] == 0).all()

    def test_nothing_but_one_sample_repeated(self):
        rows, domain = np.ones((10, 3)), np.repeat([1, -1], 5)
        problem, _ = scatter_problem(rows, domain)
        with pytest.raises(ValueError, match="no component stands out from rounding error"):
            problem.solve(0.1, 2)

    def test_signs_are_canonical(self, domains):
        aligner = scatter_problem(*domains)[0].solve(0.01, DIM).aligner
        peaks = aligner.gather(0, aligner.abs().argmax(0, keepdim=True))
        assert (peaks > 0).all()

    def test_ties_give_some_orthogonal_basis(self):
        kernel = torch.eye(40, dtype=torch.float64)
        problem = GramProblem.regularised(kernel, torch.arange(40) < 20)
        solution = problem.solve(0.1, 6)
        torch.testing.assert_close(solution.eigenvalues, torch.ones(6, dtype=torch.float64))
        torch.testing.assert_close(solution.aligner.T @ solution.aligner, torch.eye(6, dtype=torch.float64))


class TestTheorem1:
    """With R-TCA as the bridge: RF-TCA's leading space of centred features approaches it as N grows."""

    def test_projectors_converge_with_the_root_of_num_features(self):
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
        moved = kernel @ np.where(domain > 0, 1 / (domain > 0).sum(), -1 / (domain < 0).sum())
        W = np.random.RandomState(0).randn(len(rows), DIM)
        spectrum = np.linalg.eigvalsh(kernel)

        def loss(gamma, metric):
            return np.square(moved @ W).sum() + gamma * np.trace(W.T @ metric @ W)

        middle = loss(0.3, kernel)
        assert loss(0.3 * spectrum[0], np.eye(len(rows))) <= middle <= loss(0.3 * spectrum[-1], np.eye(len(rows)))


class TestStatistics:
    def test_by_hand(self):
        part = DomainStatistics.of(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64))
        assert part.count == 2
        assert part.total.tolist() == [4.0, 6.0]
        assert part.gram.tolist() == [[10.0, 14.0], [14.0, 20.0]]
        assert part.mean.tolist() == [2.0, 3.0]
        assert part.nbytes == 8 * (2 + 4)

    @settings(deadline=None, max_examples=25)
    @given(cuts=st.lists(st.integers(1, 99), max_size=4), size=st.integers(1, 30), seed=st.integers(0, 1000))
    def test_parts_add_up_to_the_whole_in_any_order(self, cuts, size, seed):
        features = torch.from_numpy(np.random.RandomState(seed).randn(100, size))
        parts = [DomainStatistics.of(part) for part in features.tensor_split(sorted(cuts))]
        whole = DomainStatistics.of(features)
        for order in (parts, parts[::-1]):
            total = sum(order, DomainStatistics.empty(size))
            assert total.count == whole.count
            torch.testing.assert_close((total.total, total.gram), (whole.total, whole.gram), rtol=1e-10, atol=1e-10)

    def test_single_precision_features_are_summed_in_double(self):
        # single precision stops counting at 2**24
        features = torch.full((3, 1), 1.0)
        many = DomainStatistics(2**24, torch.tensor([2.0**24]).double(), torch.tensor([[2.0**24]]).double())
        assert (many + DomainStatistics.of(features)).gram.item() == 2**24 + 3

    def test_different_sizes_do_not_add(self):
        with pytest.raises(ValueError, match="num_features must be the same"):
            DomainStatistics.of(torch.ones(2, 4)) + DomainStatistics.of(torch.ones(2, 6))


class TestGuides:
    @pytest.mark.parametrize("shift", [0.3, 1.0, 3.0])
    def test_gamma_matters_inside_the_informative_range_and_hardly_outside(self, shift):
        rows, domain = make_domains(150, 100, 6, shift)
        problem, mapped = scatter_problem(rows, domain, num_features=100)
        low, high = problem.informative_gamma_range(DIM)
        bases = {
            gamma: np.linalg.qr(centred(mapped.numpy() @ problem.solve(gamma, DIM).aligner.numpy()))[0]
            for gamma in (0.0, low, 30 * low, high / 30, high, inf)
        }

        def distance(a, b):
            return np.linalg.norm(bases[a] @ bases[a].T - bases[b] @ bases[b].T)

        total = distance(0.0, inf)
        assert distance(0.0, low) < 0.2 * total
        assert distance(high, inf) < 0.2 * total
        assert distance(0.0, 30 * low) > 0.4 * total
        assert distance(high / 30, inf) > 0.4 * total

    def test_the_range_scales_with_the_discrepancy(self):
        near, far = (scatter_problem(*make_domains(shift=shift))[0] for shift in (0.2, 2.0))
        assert far.informative_gamma_range(DIM)[1] > 5 * near.informative_gamma_range(DIM)[1]

    def test_kernel_and_feature_forms_agree_on_the_range(self, domains):
        rows, domain = domains
        kernel = kernel_matrix(torch.from_numpy(rows), torch.from_numpy(rows), 2.0)
        exact = GramProblem.regularised(kernel, torch.from_numpy(domain > 0)).informative_gamma_range(DIM)
        estimate = scatter_problem(rows, domain, num_features=2000)[0].informative_gamma_range(DIM)
        np.testing.assert_allclose(estimate, exact, rtol=0.2)

    def test_intrinsic_dimension_is_trace_over_norm(self):
        rows, domain = make_domains(200, 100)
        problem, mapped = scatter_problem(rows, domain, num_features=30)
        matrix = mapped.numpy() @ mapped.numpy().T
        expected = np.trace(matrix) / np.linalg.norm(matrix, 2)
        assert intrinsic_dimension(problem.pooled) == pytest.approx(expected)

    @pytest.mark.parametrize("error", [0.5, 0.2])
    def test_suggested_num_features_reaches_the_promised_error(self, error):
        rows, domain = make_domains(150, 100)
        problem, _ = scatter_problem(rows, domain, num_features=100)
        suggested = suggest_num_features(problem.pooled, error)
        kernel = kernel_matrix(torch.from_numpy(rows), torch.from_numpy(rows), 2.0).numpy()
        _, mapped = scatter_problem(rows, domain, suggested)
        gram = mapped.numpy() @ mapped.numpy().T
        assert np.linalg.norm(gram - kernel, 2) <= error * np.linalg.norm(kernel, 2)

    def test_suggested_num_features_by_hand(self):
        # 50 samples at right angles: dim(K) = 50. For error 0.75, s + s²/3 = 0.75 gives s = 1.5 (√2 − 1).
        statistics = DomainStatistics.of(torch.eye(50, 400, dtype=torch.float64))
        expected = 2 * 50 * np.log(100) / (1.5 * (np.sqrt(2) - 1)) ** 2
        assert suggest_num_features(statistics, 0.75) == int(np.ceil(expected))

    def test_an_intrinsic_dimension_near_its_ceiling_is_not_trusted(self):
        with pytest.warns(UserWarning, match="may well be larger"):
            intrinsic_dimension(DomainStatistics.of(torch.eye(50, dtype=torch.float64)))

    def test_components_without_variance_do_not_widen_the_range(self):
        problem, _ = scatter_problem(*make_domains(10, 10), num_features=100)
        assert problem.informative_gamma_range(30) == problem.informative_gamma_range(19)
        assert problem.informative_gamma_range(19)[0] > 0

    def test_error_must_be_a_fraction(self):
        with pytest.raises(ValueError, match="error must be between 0 and 1"):
            suggest_num_features(DomainStatistics.of(torch.ones(3, 2)), 1.5)


@settings(deadline=None, max_examples=30)
@given(
    gamma=st.floats(1e-6, 1e6),
    num_source=st.integers(3, 40),
    num_target=st.integers(3, 40),
    shift=st.floats(-5, 5),
    seed=st.integers(0, 10000),
)
def test_the_solution_beats_random_ones_on_the_objective(gamma, num_source, num_target, shift, seed):
    """Minimality itself: no admissible W has a smaller |Wᵀv|² + γ|W|²."""
    rows, domain = make_domains(num_source, num_target, 3, shift, seed)
    problem, mapped = scatter_problem(rows, domain, num_features=15)
    scatter, v = textbook(mapped.numpy(), domain)
    dim = 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        W = problem.solve(gamma, dim).whitened.numpy()

    def objective(W):
        return np.square(v @ W).sum() + gamma * np.square(W).sum()

    rng = np.random.RandomState(0)
    for _ in range(5):
        rival = W + 0.1 * np.abs(W).max() * rng.randn(*W.shape)
        rival = rival @ np.linalg.inv(scipy.linalg.sqrtm(rival.T @ scatter @ rival).real)
        assert objective(W) <= objective(rival) * (1 + 1e-6)
