"""Σℓ of all samples of a fixed extractor is sent once; results have the same bits as if it were sent every round."""

import numpy as np
import pytest

import fedrf
from fedrf.protocol.messages import MeanEmbedding
from fedrf.protocol.repeats import Repeats, Same
from tests.conftest import final_weights
from tests.federation.recording import SYNC, exchanges, run_recorded, run_until
from tests.federation.toy_coordinator import A, B, T, coordinator, envelope, exchange_all, run

KEYS = {**SYNC, "method": "fedrf-plus", "model.sharing": "frozen"}
RANDOM = {"federation.participants": "random", "federation.drop": 0.3, "train.rounds": 12}
SIZE = 4 * 60


def send_all(monkeypatch):
    monkeypatch.setattr(Repeats, "shorten", lambda self, message: message)


@pytest.mark.parametrize("more", [{}, RANDOM])
def test_results_have_the_same_bits_as_if_everything_was_sent(tmp_path, monkeypatch, more):
    once = fedrf.run(None, {**KEYS, **more}, out=tmp_path / "once", local=True)
    with monkeypatch.context() as patch:
        send_all(patch)
        always = fedrf.run(None, {**KEYS, **more}, out=tmp_path / "always", local=True)
    assert final_weights(once) == final_weights(always)
    assert once.target_accuracy == always.target_accuracy
    sent, all_sent = (each.summary["communication"]["bytes_by_kind"] for each in (once, always))
    assert sent.pop("mean_embedding") < 0.5 * all_sent.pop("mean_embedding")
    assert sent == all_sent


def test_each_array_is_sent_once_to_each_receiver(tmp_path):
    """Three sources and the target: 4 arrays up; 3 to the target and its own to each source down."""
    result, calls = run_recorded(KEYS, tmp_path / "run")
    up = [
        message
        for envelope_, _ in exchanges(calls)
        for message in envelope_.messages
        if message.kind == "mean_embedding"
    ]
    down = [message for _, reply in exchanges(calls) for message in reply.embeddings]
    for messages, arrays in ((up, 4), (down, 6)):
        assert sum(isinstance(message.values, np.ndarray) for message in messages) == arrays
        assert sum(isinstance(message.values, Same) for message in messages) == 5 * arrays
    assert result.summary["communication"]["bytes_by_kind"]["mean_embedding"] == 10 * (SIZE + 5 * 8)


def test_messages_of_an_extractor_that_learns_are_sent_when_they_change(tmp_path):
    """Σℓ is computed in rounds 1 and 4, and again in 5 and 6 after extractors were averaged in round 4."""
    more = {"model.sharing": "averaged", "model.extractor_interval": 4, "align.refresh": 3, "train.rounds": 6}
    _, calls = run_recorded({**KEYS, **more}, tmp_path / "run")
    sent = [
        message.round
        for envelope_, _ in exchanges(calls)
        for message in envelope_.messages
        if isinstance(message, MeanEmbedding) and isinstance(message.values, np.ndarray) and message.sender == "street"
    ]
    assert sent == [1, 4, 5]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_clients_that_are_started_again_send_and_receive_everything_again(tmp_path, monkeypatch, mode):
    keys = {**KEYS, "federation.mode": mode, "federation.checkpoint_seconds": 0}
    undisturbed = fedrf.run(None, keys, out=tmp_path / "undisturbed", local=True)
    run_until(keys, tmp_path / "run", 4, monkeypatch)
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert resumed.summary["communication"]["refused"] == {}
    if mode == "sync":
        assert final_weights(resumed) == final_weights(undisturbed)


# A coordinator with toy clients.


def embedded(sender, number, values, attempt=0):
    call = envelope(sender, number, attempt=attempt)
    return type(call)(sender, number, attempt, "round", (MeanEmbedding(sender, number, attempt, values),))


FIRST = np.array([0.1, 0.2], np.float32)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_what_stands_for_an_array_counts_as_one(tmp_path, mode):
    async def main():
        server = coordinator(tmp_path, federation__mode=mode)
        for number, values in ((1, FIRST), (2, Same(1))):
            calls = (embedded(A, number, values), embedded(B, number, FIRST + number), embedded(T, number, values))
            replies = await exchange_all(server, *calls)
        return server, replies

    server, replies = run(main())
    stored = server.state.aggregate.embeddings
    assert [stored[name][0].round for name in (A, T)] == [2, 2]
    np.testing.assert_array_equal(stored[A][0].values, FIRST)
    if mode == "sync":  # in async mode A is answered before T has sent its own
        assert [message.values for message in replies[A].embeddings] == [Same(1)]


@pytest.mark.parametrize(("number", "attempt"), [(2, 0), (1, 1)])
def test_an_array_that_is_not_known_is_refused_and_the_next_one_is_used(tmp_path, number, attempt):
    async def main():
        server = coordinator(tmp_path, federation__mode="async")
        await server.exchange(embedded(A, 1, FIRST))
        server.liveness.admit(A, attempt)
        refused = await server.exchange(embedded(A, 3, Same(number), attempt))
        await server.exchange(embedded(A, 4, FIRST, attempt))
        return refused, server.state.aggregate.embeddings[A][0]

    refused, stored = run(main())
    assert refused.refused == (f"mean_embedding of {A} repeats one that is not known",)
    assert stored.round == 4


def test_a_client_that_greets_again_gets_whole_messages(tmp_path):
    async def main():
        server, kinds = coordinator(tmp_path, federation__mode="async"), []
        await server.exchange(embedded(A, 3, FIRST))
        for number in (1, 2, 3):
            reply = await server.exchange(embedded(T, number, FIRST))
            kinds += [type(message.values) for message in reply.embeddings]
            if number == 2:
                server.replies.catch_up(T, 2)
        return kinds

    assert run(main()) == [np.ndarray, Same, np.ndarray]
