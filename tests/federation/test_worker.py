"""What a worker hands to its client: the target's client never gets labels."""

import pytest
import torch

import fedrf
from fedrf.federation import worker
from fedrf.federation.client import Client
from tests.conftest import TINY


@pytest.fixture
def clients(monkeypatch):
    """All clients that workers make, by name."""
    made = {}

    class RecordedClient(Client):
        def __init__(self, config, channel, samples, *arguments):
            made[channel.info.name] = (self, samples.labels)
            super().__init__(config, channel, samples, *arguments)

    monkeypatch.setattr(worker, "Client", RecordedClient)
    return made


@pytest.mark.parametrize("method", ["fedrf-plus", "target-oracle"])
def test_a_target_client_has_no_labels(clients, tmp_path, method):
    """The samples that the worker hands over have no labels, and neither has anything that the client keeps."""
    settings = {**TINY, "method": method, "train.rounds": 2, "adapt.steps": 1}
    result = fedrf.run(None, settings, out=tmp_path / "run", local=True)
    target, *sources = (clients.pop("handwritten"), *clients.values())
    client, labels = target
    assert result.target_accuracy is not None  # the evaluator has them
    assert labels is None
    assert client.module.samples.labels is None
    assert client.module.samples.batch(1, 8).labels is None
    assert client.module.samples.held_out is None
    for client, labels in sources:
        assert labels is not None
        assert torch.equal(client.module.samples.labels, torch.from_numpy(labels))


def test_pooled_samples_of_the_target_have_no_labels(monkeypatch, tmp_path):
    seen = []
    original = worker.open_samples

    def opened(*arguments):
        seen.append(original(*arguments))
        return seen[-1]

    monkeypatch.setattr(worker, "open_samples", opened)
    settings = {**TINY, "method": "pooled-dann", "train.rounds": 2}
    fedrf.run(None, settings, out=tmp_path / "run", local=True)
    pooled = [local.target_samples for local in seen if local.target_samples is not None]
    assert len(pooled) == 1
    assert pooled[0].labels is None
