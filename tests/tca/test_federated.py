"""Both federated forms of RF-TCA against the closed form for the pooled samples."""

from math import inf

import numpy as np
import pytest
import scipy.linalg
import torch

from fedrf.tca.federated import SubspaceIteration, from_statistics, scatter_product
from fedrf.tca.problems import DomainStatistics, ScatterProblem
from fedrf.tca.random_features import RandomFourierFeatures

GAMMAS = [0.0, 1e-3, 0.1, inf]
SIZES = [[400], [300, 90, 30]]
DIM = 12


def make_clients(source_sizes=(300, 90, 30), target_size=200, num_features=100, dtype=torch.float64, seed=0):
    """Random features of clients whose samples cluster around shared centres, each client's moved its own way."""
    rng = np.random.RandomState(seed)
    centres = 1.5 * rng.randn(10, 32)
    mapping = RandomFourierFeatures(32, num_features, 12.0, dtype=dtype)
    features = []
    for size in (*source_sizes, target_size):
        rows = centres[rng.randint(10, size=size)] + rng.randn(size, 32) + 0.5 * rng.randn(32)
        features.append(mapping(torch.from_numpy(rows).to(dtype)))
    return features[:-1], features[-1]


def pooled_problem(sources, target):
    return ScatterProblem(DomainStatistics.of(torch.cat(sources).double()), DomainStatistics.of(target.double()))


def from_clients(sources, target, gamma, dim=DIM, **options):
    return from_statistics(
        [DomainStatistics.of(part) for part in sources], DomainStatistics.of(target), gamma, dim, **options
    )


def begin(sources, target, dim=DIM, **options):
    return SubspaceIteration(
        [(len(part), part.mean(0)) for part in sources], (len(target), target.mean(0)), dim, **options
    )


def step(iteration, sources, target):
    iteration.update(sum(scatter_product(part, iteration.basis) for part in (*sources, target)))


def iterate(sources, target, dim=DIM, gamma=0.1, tolerance=1e-9, limit=50, **options):
    iteration, steps = begin(sources, target, dim, **options), 0
    while iteration.residual(gamma) > tolerance:
        assert steps < limit
        step(iteration, sources, target)
        steps += 1
    return iteration, steps


def largest_angle(a, b):
    return scipy.linalg.subspace_angles(np.asarray(a), np.asarray(b)).max()


def assert_same(aligner, expected, tolerance=1e-6):
    """Column by column, signs included."""
    torch.testing.assert_close(aligner, expected, rtol=0, atol=tolerance)


class TestStatistics:
    @pytest.mark.parametrize("sizes", SIZES)
    @pytest.mark.parametrize("gamma", GAMMAS)
    def test_agrees_with_the_pooled_solution(self, sizes, gamma):
        sources, target = make_clients(sizes)
        problem = pooled_problem(sources, target)
        aligner, expected = from_clients(sources, target, gamma), problem.solve(gamma, DIM)
        assert_same(aligner, expected.aligner)
        assert largest_angle(aligner, expected.aligner) < 1e-6
        centred = torch.cat([*sources, target])
        centred -= centred.mean(0)
        torch.testing.assert_close((centred @ aligner).square().sum(0), expected.eigenvalues)

    def test_auto_is_the_geometric_middle_of_the_informative_range(self):
        sources, target = make_clients()
        problem = pooled_problem(sources, target)
        low, high = problem.informative_gamma_range(DIM)
        middle = problem.solve((low * high) ** 0.5, DIM).aligner
        assert_same(from_clients(sources, target, "auto"), middle)
        assert largest_angle(middle, problem.solve(low, DIM).aligner) > 1e-2

    def test_order_and_partition_of_the_sources_do_not_matter(self):
        sources, target = make_clients()
        expected = from_clients(sources, target, 0.1)
        assert_same(from_clients(sources[::-1], target, 0.1), expected)
        assert_same(from_clients([*sources[0].split([70, 230]), *sources[1:]], target, 0.1), expected)

    def test_sources_weigh_by_their_samples(self):
        sources, target = make_clients()
        aligner = from_clients(sources, target, 0.0)
        weighted = torch.cat(sources).mean(0) - target.mean(0)
        unweighted = torch.stack([part.mean(0) for part in sources]).mean(0) - target.mean(0)
        assert (weighted @ aligner).norm() < 1e-9
        assert (unweighted @ aligner).norm() > 1e-3


class TestScatterProduct:
    def test_by_hand(self):
        features = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
        product = scatter_product(features, torch.tensor([[1.0], [0.0]], dtype=torch.float64))
        assert product.tolist() == [[10.0], [14.0]]

    def test_chunks_add_up(self):
        _, target = make_clients()
        basis = torch.randn(200, 5, dtype=torch.float64)
        torch.testing.assert_close(scatter_product(iter(target.split(7)), basis), target.T @ target @ basis)

    def test_chunks_in_single_precision_are_added_in_double(self):
        # single precision stops counting at 2**24
        chunks = [torch.tensor([[2.0**12]]), *torch.ones(3, 1, 1)]
        assert scatter_product(chunks, torch.ones(1, 1, dtype=torch.float64)).item() == 2**24 + 3

    def test_has_the_precision_and_the_gradients_of_a_message(self):
        features = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
        product = scatter_product(features, torch.ones(2, 1))
        assert product.dtype == torch.float32
        assert not product.requires_grad


class TestSubspaceIteration:
    @pytest.mark.parametrize("sizes", SIZES)
    @pytest.mark.parametrize("gamma", [*GAMMAS, "auto"])
    def test_agrees_with_the_pooled_solution(self, sizes, gamma):
        sources, target = make_clients(sizes)
        problem = pooled_problem(sources, target)
        number = np.sqrt(np.prod(problem.informative_gamma_range(DIM))) if gamma == "auto" else gamma
        expected = problem.solve(number, DIM)
        solution = iterate(sources, target, gamma=gamma)[0].solution(gamma)
        assert largest_angle(solution.aligner, expected.aligner) < 1e-6
        assert_same(solution.aligner, expected.aligner)
        torch.testing.assert_close(solution.eigenvalues, expected.eigenvalues, rtol=1e-9, atol=0)

    @pytest.mark.parametrize(("num_features", "dim"), [(200, 20), (500, 20), (500, 50)])
    def test_eight_steps_are_enough(self, num_features, dim):
        sources, target = make_clients([600, 300, 150], 400, num_features)
        expected = pooled_problem(sources, target).solve(0.1, dim)
        iteration, steps = iterate(sources, target, dim, tolerance=3e-4)
        assert steps <= 8
        assert steps * (dim + 1) < num_features
        assert largest_angle(iteration.solution(0.1).aligner, expected.aligner) < 1e-3
        torch.testing.assert_close(iteration.solution(0.1).eigenvalues, expected.eigenvalues, rtol=1e-5, atol=0)

    def test_power_iteration_is_far_off_after_as_many_steps(self):
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

    def test_one_iteration_serves_all_gamma(self):
        sources, target = make_clients()
        problem = pooled_problem(sources, target)
        iteration, _ = iterate(sources, target, gamma=inf)
        for gamma in GAMMAS:
            assert iteration.residual(gamma) < 1e-8
            assert_same(iteration.solution(gamma).aligner, problem.solve(gamma, DIM).aligner)

    @pytest.mark.parametrize("gamma", GAMMAS)
    def test_the_residual_tells_the_angle(self, gamma):
        sources, target = make_clients()
        exact = pooled_problem(sources, target).solve(gamma, DIM).aligner
        iteration, seen = begin(sources, target), 0
        assert iteration.residual(gamma) == inf
        for _ in range(12):
            step(iteration, sources, target)
            if 1e-6 < iteration.residual(gamma) < 1e-2:
                angle = largest_angle(iteration.solution(gamma).aligner, exact)
                assert 0.5 < angle / iteration.residual(gamma) < 3
                seen += 1
        assert seen > 2

    @pytest.mark.parametrize("gamma", GAMMAS)
    def test_the_residual_is_that_of_the_eigenvectors(self, gamma):
        sources, target = make_clients()
        problem = pooled_problem(sources, target)
        mean, v = problem.pooled.mean, problem.discrepancy
        scatter = problem.pooled.gram - problem.pooled.count * torch.outer(mean, mean)
        kept = 1.0 if gamma == inf else (gamma / (gamma + float(v @ v))) ** 0.5
        iteration = begin(sources, target)
        for _ in range(3):
            step(iteration, sources, target)
            W, values = iteration.solution(gamma)
            image = scatter @ W
            along_v = torch.outer(v, v) / (v @ v)
            U = W + (1 / kept - 1) * along_v @ W if kept else W
            missing = image - (1 - kept) * along_v @ image - U * values
            expected = float(torch.linalg.matrix_norm(missing, 2) / values[-1])
            assert iteration.residual(gamma) == pytest.approx(expected, rel=1e-6)
            torch.testing.assert_close(U.T @ U, torch.eye(DIM, dtype=torch.float64))
            weighted = W.T @ scatter @ W
            torch.testing.assert_close(weighted, values.diag(), rtol=0, atol=1e-9 * float(values[0]))

    def test_order_and_partition_of_the_sources_do_not_matter(self):
        sources, target = make_clients()
        split = [*sources[0].split([70, 230]), *sources[1:]]
        for others in (sources[::-1], split):
            one, other = begin(sources, target), begin(others, target)
            for _ in range(4):
                # Far from convergence too, where nothing but equal messages makes equal solutions.
                torch.testing.assert_close(other.basis, one.basis, rtol=0, atol=1e-6)
                step(one, sources, target)
                step(other, others, target)
                assert_same(other.solution(0.1).aligner, one.solution(0.1).aligner)
                torch.testing.assert_close(other.solution(0.1).eigenvalues, one.solution(0.1).eigenvalues)

    def test_empty_clients_do_not_matter(self):
        sources, target = make_clients()
        with_empty = [*sources, sources[0][:0]]
        assert_same(iterate(with_empty, target)[0].solution(0.1).aligner, from_clients(sources, target, 0.1))

    @pytest.mark.parametrize("factor", [1, 10])
    def test_messages_do_not_grow_with_the_samples(self, factor):
        sources, target = make_clients([30 * factor, 20 * factor], 40 * factor)
        iteration = begin(sources, target)
        for _ in range(3):
            products = [scatter_product(part, iteration.basis) for part in (*sources, target)]
            assert {message.numel() for message in (iteration.basis, *products)} == {200 * (DIM + 1)}
            iteration.update(sum(products))

    def test_bases_are_orthonormal_together_and_begin_with_the_discrepancy(self):
        sources, target = make_clients()
        iteration, bases = begin(sources, target), []
        for _ in range(6):
            bases.append(iteration.basis)
            step(iteration, sources, target)
        together = torch.cat(bases, dim=1)
        assert together.shape == (200, 6 * (DIM + 1))
        torch.testing.assert_close(together.T @ together, torch.eye(6 * (DIM + 1), dtype=torch.float64))
        v = torch.cat(sources).mean(0) - target.mean(0)
        assert abs(float(v @ bases[0][:, 0])) == pytest.approx(float(v.norm()))

    def test_the_seed_decides_the_start(self):
        sources, target = make_clients()
        first, again, other = (begin(sources, target, seed=seed).basis for seed in (1, 1, 2))
        assert first.equal(again)
        assert not first[:, 1:].allclose(other[:, 1:])
        aligners = [iterate(sources, target, seed=seed)[0].solution(0.1).aligner for seed in (1, 2)]
        assert_same(*aligners)

    def test_single_precision_is_enough_for_a_warm_start(self):
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


class TestDegenerate:
    @pytest.mark.parametrize("gamma", [*GAMMAS, "auto"])
    @pytest.mark.parametrize("rounding", [False, True])
    def test_equal_means_need_no_shrinking(self, gamma, rounding):
        sources, _ = make_clients()
        target = torch.cat(sources)
        target = target.flip(0) if rounding else target
        sources = [target.flip(0)] if rounding else [target]
        principal = pooled_problem(sources, target).solve(inf, DIM)
        assert_same(from_clients(sources, target, gamma), principal.aligner)
        assert_same(iterate(sources, target, gamma=gamma)[0].solution(gamma).aligner, principal.aligner)

    @pytest.mark.parametrize(("gamma", "rank"), [(0.0, 8), (0.1, 9), (inf, 9)])
    def test_components_without_variance_are_zero_and_said(self, gamma, rank):
        sources, target = make_clients([4, 3], 3)
        with pytest.warns(UserWarning, match=f"only {rank} of the 12 components carry any variance"):
            expected = pooled_problem(sources, target).solve(gamma, DIM)
        with pytest.warns(UserWarning, match=f"only {rank} of the 12 components carry any variance"):
            assert_same(from_clients(sources, target, gamma), expected.aligner)
        with pytest.warns(UserWarning, match=f"only {rank} of the 12 components carry any variance"):
            iteration, steps = iterate(sources, target, gamma=gamma)
        with pytest.warns(UserWarning, match=f"only {rank} of the 12 components carry any variance"):
            solution = iteration.solution(gamma)
        assert steps == 2
        assert_same(solution.aligner, expected.aligner)
        torch.testing.assert_close(solution.eigenvalues, expected.eigenvalues)
        assert (solution.aligner[:, rank:] == 0).all()

    def test_noise_is_that_of_the_clients_precision(self):
        sources, target = make_clients([4], 3, dtype=torch.float32)
        with pytest.warns(UserWarning, match="only 6 of the 12 components"):
            aligner = from_clients(sources, target, 0.1, dtype=torch.float32)
        with pytest.warns(UserWarning, match="only 6 of the 12 components"):
            iteration, _ = iterate(sources, target, tolerance=1e-4, dtype=torch.float32)
        with pytest.warns(UserWarning, match="only 6 of the 12 components"):
            iterated = iteration.solution(0.1).aligner
        assert_same(iterated, aligner, 1e-3)
        assert (iterated[:, 6:] == 0).all()

    def test_steps_after_convergence_do_no_harm(self):
        sources, target = make_clients([9], 8, num_features=30)
        iteration = begin(sources, target)
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
    def test_one_component_and_all(self, dim):
        sources, target = make_clients(num_features=30)
        expected = pooled_problem(sources, target).solve(0.1, dim).aligner
        solution = iterate(sources, target, dim)[0].solution(0.1)
        assert_same(solution.aligner, expected, 1e-5)

    def test_copies_of_an_eigenvalue_are_all_found(self):
        # Pairs of opposite samples have S = 2·diag(scales²).
        scales = torch.ones(52, dtype=torch.float64)
        scales[[7, 30]] = torch.tensor([3.0, 2.0], dtype=torch.float64)
        half = scales.diag()
        iteration, steps = iterate([half], -half, dim=6, gamma=inf)
        assert steps <= 4
        eigenvalues = torch.tensor([18.0, 8.0, 2.0, 2.0, 2.0, 2.0], dtype=torch.float64)
        torch.testing.assert_close(iteration.solution(inf).eigenvalues, eigenvalues)

    def test_one_sample_repeated(self):
        sources, target = [torch.ones(5, 8).double() / 8**0.5], torch.ones(3, 8).double() / 8**0.5
        with pytest.raises(ValueError, match="no component stands out"):
            from_clients(sources, target, 0.1, 2)
        iteration = begin(sources, target, 2)
        step(iteration, sources, target)
        with pytest.raises(ValueError, match="no component stands out"):
            iteration.solution(0.1)


class TestArguments:
    @pytest.mark.parametrize("gamma", [-1.0, float("nan"), "large"])
    def test_gamma(self, gamma):
        sources, target = make_clients()
        iteration, _ = iterate(sources, target)
        for solve in (lambda: from_clients(sources, target, gamma), lambda: iteration.solution(gamma)):
            with pytest.raises(ValueError, match="gamma must be a number, at least 0, or 'auto'"):
                solve()

    def test_both_domains_must_have_samples(self):
        sources, target = make_clients()
        for start in (lambda *clients: from_clients(*clients, 0.1), begin):
            for clients in (([], target), ([target[:0]], target), (sources, target[:0])):
                with pytest.raises(ValueError, match="both domains need samples"):
                    start(*clients)

    def test_dim(self):
        sources, target = make_clients()
        for start in (lambda: from_clients(sources, target, 0.1, 0), lambda: begin(sources, target, 0)):
            with pytest.raises(ValueError, match="dim must be a positive integer"):
                start()

    def test_a_product_of_another_basis(self):
        sources, target = make_clients()
        with pytest.raises(ValueError, match=r"product must be \[200, 13\], like the basis; got \[200, 12\]"):
            begin(sources, target).update(torch.zeros(200, 12))
