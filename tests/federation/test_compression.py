"""Compressed parts in a federation: bytes, resuming, damaged codes, async mode, Ray."""

import asyncio
from math import ceil

import numpy as np
import pytest

import fedrf
from fedrf.protocol.compression import CODECS, Difference
from fedrf.protocol.message import BadMessageError
from fedrf.protocol.messages import Aligner
from fedrf.protocol.wire import pack_call
from tests.conftest import final_weights
from tests.federation.recording import SYNC, exchanges, run_recorded, run_until
from tests.federation.toy_coordinator import A, B, T, coordinator, envelope, exchange_all, run

ALL = list(CODECS)
# W and C are averaged in rounds 2, 4 and after the last, 6; G in 3 and after the last.
KEYS = {**SYNC, "method": "fedrf-plus", "federation.aligner_interval": 2, "federation.classifier_interval": 2}
KEYS |= {"model.sharing": "averaged", "model.extractor_interval": 3}
WIDTHS = {"half": 2, "int8": 1, "int4": 0.5}


def settings(compression, **more):
    return {**KEYS, "federation.compression": compression, **{key.replace("__", "."): more[key] for key in more}}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return a function that runs with a compression once, however often it is called."""
    runs = {}

    def recorded_run(compression):
        if compression not in runs:
            runs[compression] = run_recorded(settings(compression), tmp_path_factory.mktemp(compression) / "run")
        return runs[compression]

    return recorded_run


def coded_bytes(name, count, shape):
    """Return the size of one change: a number of 8 bytes, and the code."""
    if name == "low-rank" and len(shape) == 2:
        return 8 + 2 * max(1, round(0.1 * min(shape))) * sum(shape)
    width, factors = WIDTHS.get(name, 1), 0 if name == "half" else 4 * ceil(count / 256)
    return 8 + ceil(width * count) + factors


@pytest.mark.parametrize("compression", ALL)
def test_the_ledger_has_the_bytes_of_codes(recorded, compression):
    """The first average is sent whole; three sources send, and they and the target receive."""
    result, _ = recorded(compression)
    counted = result.summary["communication"]["bytes_by_kind"]
    shapes = {"aligner": (60, 8), "classifier": (90,)}
    for part, shape in shapes.items():
        count = int(np.prod(shape))
        assert counted[part] == 7 * (4 * count + 2 * coded_bytes(compression, count, shape)), part


@pytest.mark.parametrize("compression", ALL)
def test_bytes_that_cross_are_those_of_the_ledger(recorded, compression):
    result, calls = recorded(compression)
    sent = dict.fromkeys(("aligner", "classifier", "extractor"), 0)
    for envelope_, reply in exchanges(calls):
        for message in envelope_.messages:
            if message.kind in sent:
                sent[message.kind] += message.values.nbytes
        for part, values in reply.parts.items():
            sent[part] += values.nbytes
    counted = result.summary["communication"]["bytes_by_kind"]
    assert sent == {part: counted[part] for part in sent}


@pytest.mark.parametrize("compression", ALL)
def test_a_resumed_run_ends_with_the_same_bits(recorded, tmp_path, monkeypatch, compression):
    monkeypatch.setattr("fedrf.experiment.driver.POLL_SECONDS", 0.02)
    keys = settings(compression, federation__checkpoint_seconds=0)
    run_until(keys, tmp_path / "run", 5, monkeypatch)
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert resumed.finished
    assert resumed.summary["communication"]["refused"] == {}
    assert final_weights(resumed) == final_weights(recorded(compression)[0])


@pytest.mark.parametrize("compression", ALL)
def test_async_and_random_participants(tmp_path, compression):
    for mode in ("sync", "async"):
        more = {"federation__mode": mode, "federation__participants": "random", "federation__drop": 0.2}
        keys = settings(compression, train__rounds=12, **more)
        result = fedrf.run(None, keys, out=tmp_path / mode, local=True)
        assert result.finished
        assert result.summary["communication"]["refused"] == {}
        assert result.summary["suspicions"] == {}


@pytest.mark.ray
@pytest.mark.parametrize("compression", ["int8", "low-rank"])
def test_actors_and_threads_give_the_same_bits(ray_session, tmp_path, compression):
    """W has 512 kB; a change of it with int8 is large enough for shared memory."""
    keys = settings(compression, model__num_features=1000, model__dim=64)
    actors = fedrf.run(None, keys, out=tmp_path / "actors", session=ray_session)
    threads = fedrf.run(None, keys, out=tmp_path / "threads", local=True)
    assert final_weights(actors) == final_weights(threads)
    assert actors.summary["communication"] == threads.summary["communication"]


# A coordinator with toy clients, who all hold W number 1, 2 · ONES; T says that it has none.

ONES = np.ones((16, 4), np.float32)
SHAPE = {"model__num_features": 8, "model__dim": 4}
CODE = CODECS["int8"].encode(ONES)


def coded(sender, base=1, steps=(CODE,), number=3):
    return Aligner(sender, number, 0, Difference(base, steps))


async def second_round(server, message):
    await exchange_all(server, *(envelope(name, 2, aligner=2 * ONES) for name in (A, B)), envelope(T, 2))
    held = {"held": {"aligner": 1}}
    first, second = (envelope(name, 3) for name in (A, B))
    first = type(first)(A, 3, 0, "round", (message,), 0, **held)
    second = type(second)(B, 3, 0, "round", (coded(B),), 0, **held)
    return await exchange_all(server, first, second, envelope(T, 3))


def test_differences_are_added_to_what_the_sender_has(tmp_path):
    async def main():
        server = coordinator(tmp_path, federation__compression="int8", **SHAPE)
        replies = await second_round(server, coded(A))
        return server, replies

    server, replies = run(main())
    assert replies[A].refused == ()
    np.testing.assert_allclose(server.state.aggregate.current["aligner"], 3 * ONES, rtol=1e-6)
    assert isinstance(replies[A].parts["aligner"], Difference)
    assert isinstance(replies[T].parts["aligner"], np.ndarray)  # says that it has none
    assert replies[A].parts["aligner"] is replies[B].parts["aligner"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (coded(A, base=7), "not one change of an average that it was sent"),
        (coded(A, base=0), "not one change of an average that it was sent"),
        (coded(A, base="1"), "not one change of an average that it was sent"),
        (coded(A, steps=(CODE, CODE)), "not one change of an average that it was sent"),
        (coded(A, steps=()), "not one change of an average that it was sent"),
        (coded(A, steps=(CODE[:1],)), "cannot be decoded: a code has arrays"),
        (coded(A, steps=((np.zeros(10**6, np.int8), CODE[1]),)), "cannot be decoded: a code has arrays"),
        (coded(A, steps=((CODE[0], np.array([np.nan], np.float32)),)), "has numbers that are not finite"),
        (coded(A, steps=((CODE[0], np.array([1e30], np.float32)),)), "allowed next to the average"),
        (coded(A, steps=((CODE[0], np.array([1.0], np.float32)),)), "allowed next to the average"),
    ],
)
def test_damaged_codes_are_refused_and_their_sender_gets_the_average(tmp_path, message, reason):
    replies = run(second_round(coordinator(tmp_path, federation__compression="int8", **SHAPE), message))
    (refused,) = replies[A].refused
    assert reason in refused
    assert "aligner" in replies[A].parts
    assert replies[B].refused == ()


def test_codes_without_compression_are_refused(tmp_path):
    replies = run(second_round(coordinator(tmp_path, **SHAPE), coded(A)))
    assert "not one change" in replies[A].refused[0]


def test_numbers_of_averages_must_be_integers(tmp_path):
    server = coordinator(tmp_path, begun=True)
    call = envelope(A, 2)
    content = pack_call("exchange", A, 0, type(call)(A, 2, 0, "round", (), 0, {"aligner": [1]}))
    with pytest.raises(BadMessageError, match="wrong argument"):
        asyncio.run(server.call(content))
