"""While a client skips rounds, its training state is in a store and not in its memory."""

from functools import partialmethod

import numpy as np
import torch

import fedrf
from fedrf.federation.channel import Channel
from fedrf.federation.resting import moved, training_state
from tests.conftest import SYNC, final_weights


class Shelf:
    """A store that keeps copies, as Ray's shared memory does."""

    def __init__(self):
        self.kept, self.count = {}, 0

    def put(self, arrays):
        self.count += 1
        self.kept[self.count] = [array.copy() for array in arrays]
        return self.count

    def get(self, key):
        arrays = self.kept.pop(key)
        for array in arrays:
            array.flags.writeable = False
        return arrays


def trained(steps, rest_after=()):
    """Train a small network; return it and the bytes that its tensors had while it rested."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 3))
    network[1].bias.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in network.parameters() if p.requires_grad], lr=0.1, fused=True)
    inputs, held = torch.randn(8, 5), []
    for step in range(steps):
        optimizer.zero_grad()
        network(inputs).square().mean().backward()
        optimizer.step()
        if step in rest_after:
            tensors = training_state(network.parameters(), [optimizer])
            with moved(tensors, Shelf()):
                held.append(sum(tensor.untyped_storage().nbytes() for tensor in tensors))
    return network, len(training_state(network.parameters(), [optimizer])), held


def test_training_goes_on_with_the_same_bits():
    expected, _, _ = trained(6)
    network, count, held = trained(6, rest_after=(1, 4))
    assert held == [0, 0]
    assert count == 3 * 4  # of each parameter that is trained: itself, two moments and a step counter
    for ours, theirs in zip(network.parameters(), expected.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_tensors_that_share_memory_stay():
    values = torch.arange(6.0)
    with moved([values[:3], values[3:]], Shelf()):
        np.testing.assert_array_equal(values, np.arange(6))


def test_sources_rest_in_the_rounds_that_they_skip_and_change_no_bit(tmp_path, monkeypatch):
    settings = {**SYNC, "data.partition": "even", "data.clients": 2, "federation.participants": 2}
    expected = final_weights(fedrf.run(None, settings, out=tmp_path / "expected", local=True))
    shelf = Shelf()
    monkeypatch.setattr(Channel, "__init__", partialmethod(Channel.__init__, store=shelf))
    assert final_weights(fedrf.run(None, settings, out=tmp_path / "run", local=True)) == expected
    assert shelf.count >= 6  # each of the sources rests
    assert not shelf.kept
