"""Discriminators and reversed gradients by hand."""

from math import exp, log

import pytest
import torch
from torch import nn

from fedrf.methods.adversary import conditioned, discriminator, domain_loss, growing_strength, pair_loss, reverse
from fedrf.models.network import DomainModel
from fedrf.tca.random_features import RandomFourierFeatures


def linear(weights, bias):
    network = nn.Linear(len(weights), 1)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([weights]))
        network.bias.fill_(bias)
    return network


def sigmoid(z):
    return 1 / (1 + exp(-z))


def test_reversal_changes_only_sign_and_size_of_gradients():
    rows = torch.tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=True)
    weights = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
    reversed_rows = reverse(rows, 0.5)
    torch.testing.assert_close(reversed_rows, rows, rtol=0, atol=0)
    (reversed_rows * weights).sum().backward()
    torch.testing.assert_close(rows.grad, -0.5 * weights)
    rows.grad = None
    (reverse(rows) * weights).sum().backward()
    torch.testing.assert_close(rows.grad, -weights)


def test_the_strength_grows_from_0_to_1():
    strengths = [growing_strength(number, 40) for number in range(41)]
    assert strengths[0] == 0
    assert strengths == sorted(strengths)
    assert strengths[4] == pytest.approx(2 / (1 + exp(-1)) - 1)
    assert 0.9999 < strengths[40] < 1


@pytest.mark.parametrize("is_source", [True, False])
def test_the_loss_of_one_domain_by_hand(is_source):
    """z = 2a − b + 1 is 1 and 4; the loss is −log of the sigmoid of ±z, with derivative σ(z) − label."""
    network = linear([2.0, -1.0], 1.0)
    rows = torch.tensor([[0.5, 1.0], [1.0, -1.0]], requires_grad=True)
    loss = domain_loss(network, rows, is_source, 0.3)
    sign = 1 if is_source else -1
    assert float(loss.detach()) == pytest.approx(-(log(sigmoid(sign * 1)) + log(sigmoid(sign * 4))) / 2)
    loss.backward()
    derivatives = [(sigmoid(z) - is_source) / 2 for z in (1, 4)]
    torch.testing.assert_close(network.bias.grad, torch.tensor([sum(derivatives)]))
    torch.testing.assert_close(
        network.weight.grad, torch.tensor([[0.5 * derivatives[0] + derivatives[1], derivatives[0] - derivatives[1]]])
    )
    torch.testing.assert_close(rows.grad, -0.3 * torch.tensor([[2 * d, -d] for d in derivatives]))


@pytest.mark.parametrize("is_source", [True, False])
def test_the_loss_of_a_pair_by_hand(is_source):
    network, rows = linear([1.0], 0.0), torch.tensor([[2.0]], requires_grad=True)
    peers = torch.tensor([[-1.0], [3.0], [0.5]])  # domains count equally, whatever their numbers of samples
    loss = pair_loss(network, rows, peers, is_source, 1.0)
    sign = 1 if is_source else -1
    own = -log(sigmoid(sign * 2))
    others = -sum(log(sigmoid(-sign * z)) for z in (-1, 3, 0.5)) / 3
    assert float(loss.detach()) == pytest.approx((own + others) / 2, rel=1e-5)
    loss.backward()
    torch.testing.assert_close(rows.grad, torch.tensor([[-(sigmoid(2) - is_source) / 2]]))


def test_a_trained_discriminator_is_positive_for_sources():
    torch.manual_seed(0)
    network, source, target = discriminator(3), torch.randn(50, 3) + 2, torch.randn(50, 3) - 2
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        (domain_loss(network, source, True, 1.0) + domain_loss(network, target, False, 1.0)).backward()
        optimizer.step()
    assert (network(source) > 0).float().mean() > 0.9
    assert (network(target) < 0).float().mean() > 0.9


def test_features_times_probabilities_by_hand():
    torch.manual_seed(0)
    model = DomainModel(nn.Identity(), RandomFourierFeatures(2, 3), dim=2, num_classes=3, scale=4.0)
    rows = torch.tensor([[0.6, 0.8], [-1.0, 0.0]], requires_grad=True)
    products = conditioned(model, rows)
    assert products.shape == (2, 6)
    expected = torch.empty(2, 3, 2)
    for i in range(2):
        logits = (4 * rows[i] @ model.classifier.weight.T + model.classifier.bias).tolist()
        for c in range(3):
            expected[i, c] = exp(logits[c]) / sum(map(exp, logits)) * rows[i].detach()
    torch.testing.assert_close(products, expected.flatten(1))
    weights = torch.randn(2, 6)
    (products * weights).sum().backward()
    probabilities = expected[:, :, 0] / rows.detach()[:, :1]
    # Probabilities are constants: no gradient reaches rows or classifier through them.
    torch.testing.assert_close(rows.grad, torch.einsum("ic,icm->im", probabilities, weights.view(2, 3, 2)))
    assert model.classifier.weight.grad is None
