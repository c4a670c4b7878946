"""A client's Σℓ: the samples that it averages over, and its state between rounds."""

import torch

from fedrf.models.mean_embedding import OwnEmbedding

FIRST, SECOND = torch.full((3, 4), 1.0), torch.full((3, 4), 4.0)


def test_batch_is_the_mean_of_the_batch():
    own = OwnEmbedding(4, "batch")
    torch.testing.assert_close(own(FIRST, []), torch.ones(4))
    torch.testing.assert_close(own(SECOND, []), torch.full((4,), 4.0))


def test_running_is_bias_corrected():
    """By hand with memory 1/2: 1, then (1/4 · 1 + 1/2 · 4) / (3/4) = 3."""
    own = OwnEmbedding(4, "running", memory=0.5)
    torch.testing.assert_close(own(FIRST, []), torch.ones(4))
    torch.testing.assert_close(own(SECOND, []), torch.full((4,), 3.0))


def test_exact_is_the_mean_of_the_whole_set_with_the_gradient_of_the_batch():
    own = OwnEmbedding(4, "exact")
    batch = FIRST.clone().requires_grad_()
    value = own(batch, [FIRST, SECOND, SECOND])
    torch.testing.assert_close(value, torch.full((4,), 3.0))
    value.sum().backward()
    torch.testing.assert_close(batch.grad, torch.full((3, 4), 1 / 3))


def test_exact_is_recomputed_every_few_rounds_only_if_the_extractor_learns():
    changing = OwnEmbedding(4, "exact", refresh=2)
    fixed = OwnEmbedding(4, "exact", extractor_learns=False)
    for own in (changing, fixed):
        own(FIRST, [FIRST])
    assert [float(changing(FIRST, [SECOND])[0]) for _ in range(2)] == [1.0, 4.0]
    assert [float(fixed(FIRST, [SECOND])[0]) for _ in range(5)] == [1.0] * 5


def test_exact_is_recomputed_after_the_extractor_was_replaced():
    own = OwnEmbedding(4, "exact", refresh=100)
    own(FIRST, [FIRST])
    own.renew()
    resumed = OwnEmbedding(4, "exact", refresh=100)
    resumed.load_state_dict(own.state_dict())  # a checkpoint between the two
    assert [float(resumed(FIRST, [piece])[0]) for piece in (SECOND, FIRST)] == [4.0, 4.0]


def test_the_running_mean_is_in_the_state_dict():
    own, other = OwnEmbedding(4, "running", memory=0.5), OwnEmbedding(4, "running", memory=0.5)
    own(FIRST, [])
    other.load_state_dict(own.state_dict())
    torch.testing.assert_close(other(SECOND, []), own(SECOND, []))
