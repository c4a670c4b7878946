from math import inf

import pytest
import torch

from fedrf.tca.mmd import mean_embedding, mmd_loss, proximal_step
from fedrf.tca.random_features import RandomFourierFeatures, kernel_matrix


def test_mmd_by_hand():
    source = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    target = torch.tensor([[1.0, 1.0]])
    aligner = torch.tensor([[2.0], [4.0]])
    # The means are (0.5, 0.5) and (1, 1); their difference (-0.5, -0.5) times the aligner is -3.
    assert mmd_loss(mean_embedding(source), mean_embedding(target), aligner) == 9.0


def test_mmd_of_many_random_features_is_the_kernel_mmd():
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    target = torch.randn(30, 3, generator=generator, dtype=torch.float64) + 1
    features = RandomFourierFeatures(3, 50000, dtype=torch.float64)
    estimate = mmd_loss(
        mean_embedding(features(source)), mean_embedding(features(target)), torch.eye(100000, 1, dtype=torch.float64)
    )
    difference = mean_embedding(features(source)) - mean_embedding(features(target))
    exact = (
        kernel_matrix(source, source, 1.0).mean()
        + kernel_matrix(target, target, 1.0).mean()
        - 2 * kernel_matrix(source, target, 1.0).mean()
    )
    assert estimate == difference[0] ** 2
    torch.testing.assert_close(difference.square().sum(), exact, rtol=0.02, atol=0)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("gamma", [1e-6, 0.005, 1.0, 1e6])
@pytest.mark.parametrize("count", [1, 3, 12])
def test_proximal_step_is_the_dense_inverse(gamma, count):
    aligner, discrepancies = random(20, 4), random(20, count, seed=1)
    dense = gamma * torch.eye(20, dtype=torch.float64) + discrepancies @ discrepancies.T
    expected = gamma * torch.linalg.solve(dense, aligner)
    torch.testing.assert_close(proximal_step(aligner, discrepancies, gamma), expected, rtol=0, atol=1e-8)
    if count == 1:
        torch.testing.assert_close(proximal_step(aligner, discrepancies[:, 0], gamma), expected, rtol=0, atol=1e-8)


def test_proximal_step_minimises_its_objective():
    aligner, discrepancies = random(6, 2), random(6, 2, seed=1)

    def objective(candidate):
        return (discrepancies.T @ candidate).square().sum() + 0.1 * (candidate - aligner).square().sum()

    step = proximal_step(aligner, discrepancies, 0.1).requires_grad_()
    objective(step).backward()
    torch.testing.assert_close(step.grad, torch.zeros_like(step), rtol=0, atol=1e-12)


def test_proximal_step_at_the_limits():
    aligner, v = random(6, 2), random(6, seed=1)
    assert (v @ proximal_step(aligner, v, 0.0)).abs().max() < 1e-12
    twice = torch.stack([v, v], dim=1)
    torch.testing.assert_close(proximal_step(aligner, twice, 0.0), proximal_step(aligner, v, 0.0))
    for unchanged in (proximal_step(aligner, v, inf), proximal_step(aligner, torch.zeros(6), 0.0)):
        torch.testing.assert_close(unchanged, aligner)


@pytest.mark.parametrize("gamma", [0.0, 1e-12, 0.005])
def test_proximal_step_in_single_precision_for_nearly_equal_columns(gamma):
    """For two columns that differ by 1e-4, dividing by γI + VᵀV would amplify rounding errors by 1e8."""
    aligner, v, difference = random(50, 4).float(), random(50, seed=1), random(50, seed=2)
    columns = torch.stack([v, v + 1e-4 * difference], dim=1).float()
    exact = proximal_step(aligner.double(), columns.double(), gamma)
    dense = (
        torch.eye(50, dtype=torch.float64)
        - columns.double()
        @ torch.linalg.pinv(torch.cat([columns.double(), gamma**0.5 * torch.eye(2, dtype=torch.float64)]))[:, :50]
    )
    torch.testing.assert_close(exact, dense @ aligner.double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(proximal_step(aligner, columns, gamma).double(), exact, rtol=0, atol=1e-5)


def test_proximal_step_keeps_the_precision_and_its_argument():
    aligner, v = random(6, 2).float(), random(6, seed=1).float()
    before = aligner.clone()
    assert proximal_step(aligner, v * 1e-4, 1e-10).dtype == torch.float32
    assert torch.equal(aligner, before)
    with pytest.raises(ValueError, match="gamma must be a number, at least 0"):
        proximal_step(aligner, v, -1.0)
