"""Federated RF-TCA from statistics against the closed form for the pooled samples, and invalid arguments."""

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
)
from tests.tca.reference import largest_angle


class TestStatistics:
    @pytest.mark.parametrize("sizes", SIZES)
    @pytest.mark.parametrize("gamma", GAMMAS)
    def test_agrees_with_the_pooled_solution(self, sizes, gamma):
        sources, target = make_clients(sizes)
        problem = pooled_problem(sources, target)
        aligner, expected = aligner_of_clients(sources, target, gamma), problem.solve(gamma, DIM)
        assert_same(aligner, expected.aligner)
        assert largest_angle(aligner, expected.aligner) < 1e-6
        centred = torch.cat([*sources, target])
        centred -= centred.mean(0)
        torch.testing.assert_close((centred @ aligner).square().sum(0), expected.eigenvalues)

    def test_auto_is_the_geometric_mean_of_the_informative_range(self):
        sources, target = make_clients()
        problem = pooled_problem(sources, target)
        low, high = problem.informative_gamma_range(DIM)
        middle = problem.solve((low * high) ** 0.5, DIM).aligner
        assert_same(aligner_of_clients(sources, target, "auto"), middle)
        assert largest_angle(middle, problem.solve(low, DIM).aligner) > 1e-2

    def test_order_and_partition_of_the_sources_do_not_matter(self):
        sources, target = make_clients()
        expected = aligner_of_clients(sources, target, 0.1)
        assert_same(aligner_of_clients(sources[::-1], target, 0.1), expected)
        assert_same(aligner_of_clients([*sources[0].split([70, 230]), *sources[1:]], target, 0.1), expected)

    def test_sources_are_weighted_by_their_samples(self):
        sources, target = make_clients()
        aligner = aligner_of_clients(sources, target, 0.0)
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
        # In single precision, 2**24 + 1 == 2**24.
        chunks = [torch.tensor([[2.0**12]]), *torch.ones(3, 1, 1)]
        assert scatter_product(chunks, torch.ones(1, 1, dtype=torch.float64)).item() == 2**24 + 3

    def test_has_the_precision_of_the_basis_and_no_gradient(self):
        features = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
        product = scatter_product(features, torch.ones(2, 1))
        assert product.dtype == torch.float32
        assert not product.requires_grad


class TestInvalidArguments:
    @pytest.mark.parametrize("gamma", [-1.0, float("nan"), "large"])
    def test_gamma(self, gamma):
        sources, target = make_clients()
        iteration, _ = iterate(sources, target)
        for solve in (lambda: aligner_of_clients(sources, target, gamma), lambda: iteration.solution(gamma)):
            with pytest.raises(ValueError, match="gamma must be a number, at least 0, or 'auto'"):
                solve()

    def test_domain_without_samples(self):
        sources, target = make_clients()
        for start in (lambda *clients: aligner_of_clients(*clients, 0.1), start_iteration):
            for clients in (([], target), ([target[:0]], target), (sources, target[:0])):
                with pytest.raises(ValueError, match="both domains need samples"):
                    start(*clients)

    def test_dim(self):
        sources, target = make_clients()
        for start in (lambda: aligner_of_clients(sources, target, 0.1, 0), lambda: start_iteration(sources, target, 0)):
            with pytest.raises(ValueError, match="dim must be a positive integer"):
                start()

    def test_product_of_another_basis(self):
        sources, target = make_clients()
        with pytest.raises(ValueError, match=r"product must be \[200, 13\], like the basis; got \[200, 12\]"):
            start_iteration(sources, target).update(torch.zeros(200, 12))
