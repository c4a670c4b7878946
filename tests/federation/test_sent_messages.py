"""What leaves a client: between whom, of which size, and never a sample."""

import pickle
from math import ceil

import numpy as np
import pytest

from fedrf.data.domains import clients_of
from tests.conftest import TINY
from tests.federation.recording import SYNC, exchanges, new_client, run_recorded
from tests.federation.reference import participants


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """One synchronous run with a fixed σ and 97 samples a domain."""
    return run_recorded({**SYNC, "data.samples": 97, "model.sigma": 1.0}, tmp_path_factory.mktemp("recorded") / "run")


def test_only_embeddings_pass_between_clients_and_none_between_sources(recorded):
    result, calls = recorded
    _, target = clients_of(result.config)
    for envelope, reply in exchanges(calls):
        senders = {message.sender for message in reply.embeddings}
        assert all(type(message).__name__ == "MeanEmbedding" for message in reply.embeddings)
        assert senders <= ({target} if envelope.sender != target else set(result.summary["sources"]))


def test_no_array_has_the_size_of_samples(recorded, tmp_path):
    """No array that leaves has as many rows or columns as there are samples, trunk features or pixels."""
    result, calls = recorded
    module = new_client(result.config, "street", tmp_path).module
    trunk_features = module.samples.rows[[0]].shape[1]
    shapes = {
        message.values.shape
        for envelope, _ in exchanges(calls)
        for message in envelope.messages
        if isinstance(message.values, np.ndarray)
    }
    extractor = sum(value.numel() for value in module.extractor.adapter.parameters())
    assert shapes == {(60,), (60, 8), (90,), (extractor,)}
    assert not {97, trunk_features, 256} & {number for shape in shapes for number in shape}


@pytest.mark.parametrize("method", ["fedrf-plus", "fedavg", "source-only"])
def test_the_size_of_calls_does_not_depend_on_the_number_of_samples(tmp_path, method):
    """Byte for byte: the whole of every call, pickled, from clients with 60 and with 150 samples."""

    def sizes(samples):
        settings = {**SYNC, "method": method, "data.samples": samples, "federation.aggregation": "mean"}
        _, calls = run_recorded(settings, tmp_path / f"{samples}")
        by_sender = {}
        for name, arguments, _ in calls:
            sender = getattr(arguments[0], "sender", arguments[0])
            by_sender.setdefault(sender, []).append((name, len(pickle.dumps(arguments))))
        return by_sender

    few = sizes(60)
    assert len(few) == 4
    assert few == sizes(150)


def test_number_of_calls(recorded, tmp_path):
    """One call a round and one at the end; with averaged extractors one more every T_G rounds."""
    assert len(exchanges(recorded[1])) == 4 * (6 + 1)
    _, calls = run_recorded({**SYNC, "model.sharing": "averaged", "model.extractor_interval": 2}, tmp_path / "run")
    assert len(exchanges(calls)) == 4 * (6 + 1 + ceil(6 / 2) - 1)


@pytest.mark.parametrize(
    ("embeddings", "aligners", "classifiers"),
    [("ordered", "same", "same"), ("participants", "subset", "subset")],
)
def test_async_target_sees_no_more_sources_than_the_setting_allows(tmp_path, embeddings, aligners, classifiers):
    settings = {
        **TINY,
        "method": "fedrf-tca",
        "federation.participants": "random",
        "federation.embeddings_from": embeddings,
        "federation.aligners_from": aligners,
        "federation.classifiers_from": classifiers,
        "train.rounds": 20,
    }
    result, calls = run_recorded(settings, tmp_path / "run")
    sources, target = clients_of(result.config)
    replies = [pair for pair in exchanges(calls) if pair[0].sender == target and pair[0].phase == "round"]
    assert len(replies) == 20
    for envelope, reply in replies:
        allowed = participants(sources, result.config, envelope.round)[0]
        assert {message.sender for message in reply.embeddings} <= allowed
