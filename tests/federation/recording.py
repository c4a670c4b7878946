"""Federations in threads that record all calls, and clients that do not train."""

import pytest

import fedrf
from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.loader import load_config
from fedrf.data.domains import clients_of, load_samples
from fedrf.errors import RunFailedError
from fedrf.experiment.driver import Experiment
from fedrf.experiment.results import RunFolder
from fedrf.federation.channel import Channel
from fedrf.federation.client import Client
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.module import FederatedModule
from fedrf.federation.storage import storage_of
from fedrf.protocol.envelope import Reply
from fedrf.protocol.wire import unpack_call
from fedrf.runtime.local import LocalFederation
from tests.conftest import TINY

SYNC = {**TINY, "federation.mode": "sync"}
FIXED_SIGMA = {**TINY, "model.sigma": 1.0}


class RecordingFederation(LocalFederation):
    """Records every call of a client, with its arguments and its result."""

    def __init__(self, *arguments):
        self.calls = []
        super().__init__(*arguments)

    def _send(self, content):
        answer = super()._send(content)
        call = unpack_call(content, 10**9)
        has_sender = call.arguments and hasattr(call.arguments[0], "sender")
        self.calls.append((call.name, call.arguments if has_sender else (call.sender, *call.arguments), answer))
        return answer


def run_recorded(overrides, folder):
    """Run a federation; return its result and the calls of the clients."""
    config, federations = load_config(None, overrides), []

    def make(*arguments):
        federations.append(RecordingFederation(*arguments))
        return federations[-1]

    with RunFolder.create(config, folder) as owned:
        result = Experiment(config, owned, False).run(make)
    return result, [call for call in federations[0].calls if call[0] != "beat"]


def run_until(keys, folder, number, monkeypatch):
    """Run a federation in threads whose target fails at the beginning of a round."""
    step = FederatedModule.training_step

    def stopping(module, batch, index):
        if batch.round == number and module.schedule.is_target:
            raise RuntimeError("stopped by the test")
        step(module, batch, index)

    with monkeypatch.context() as patch:
        patch.setattr(FederatedModule, "training_step", stopping)
        with pytest.raises(RunFailedError, match="stopped by the test"):
            fedrf.run(None, keys, out=folder, local=True)


def exchanges(calls):
    """Return the envelope and the reply of every exchange."""
    return [(arguments[0], answer) for name, arguments, answer in calls if name == "exchange"]


def new_client(config, name, folder, target_samples=None, samples=None):
    """A client that has greeted, but does not train; it has the samples of a run unless others are given."""
    sources, target = clients_of(config)
    samples, sigma = samples or load_samples(config, name), config.model.sigma

    def send(content):
        assert unpack_call(content, 10**6).name == "greet"
        return 1.0 if sigma == "median" else sigma, Reply()

    local = samples.without_labels() if name == target else samples
    channel = Channel(ClientInfo(name, sources, target, folder), send, config.train.rounds)
    evaluator, storage = Evaluator(samples.labels), storage_of(channel)
    return Client(config, channel, local, evaluator, storage, target_samples=target_samples)
