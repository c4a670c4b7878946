"""Thousands of fuzzed calls: none ends the coordinator, none is aggregated, and the real clients go on.

`FEDRF_FAULTS` is the number of fuzzed calls; `make faults` takes 10,000.
"""

import asyncio
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedrf.federation.liveness import SupersededError
from fedrf.protocol.envelope import Envelope, Reply
from fedrf.protocol.message import KINDS, BadMessageError
from fedrf.protocol.messages import Aligner, Classifier, MeanEmbedding, Metrics
from fedrf.protocol.wire import CALLS, pack_call
from tests.federation.test_calls import exchange, started
from tests.federation.toy_coordinator import ONES, A, B, T, envelope

COUNT = int(os.environ.get("FEDRF_FAULTS", "1000"))
ROUND = 5  # that all clients have reached
CLIENTS = (A, B, T)
sender = st.sampled_from(CLIENTS)
# An aggregate of them would not be that of the real clients.
shapes = st.sampled_from([(0,), (1,), (2,), (3,), (2, 3), (3, 2), (2, 2, 2), (30,), (31,), (1000,)])
numbers = st.sampled_from([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e30, -1e20])
dtypes = st.sampled_from([np.float32, np.float64, np.float16, np.int8, np.int64])
junk = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=3)
)


def valid(name, number=ROUND + 1):
    """Return the envelope that a client sends next."""
    return envelope(name, number, embedding=[0.1, 0.1], aligner=ONES, classifier=[1.0], attempt=1)


def damaged(data):
    """Cut, extend, flip or splice the bytes of a valid call."""
    content = bytearray(pack_call("exchange", A, 1, valid(A)))
    kind = data.draw(st.sampled_from(["cut", "flip", "splice", "front", "junk"]))
    if kind == "cut":
        return bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    if kind == "flip":
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        return bytes(content)
    if kind == "splice":
        other = pack_call("exchange", B, 1, valid(B))
        cut = data.draw(st.integers(1, len(content) - 1))
        return bytes(content[:cut]) + other[cut:]
    if kind == "front":
        return bytes(content[data.draw(st.integers(1, len(content) - 1)) :])
    return data.draw(st.binary(max_size=300))


def bad_array(data):
    """Send an array of a wrong shape, type, size or content."""
    name, kind = data.draw(sender), data.draw(st.sampled_from([Aligner, Classifier, MeanEmbedding, *KINDS.values()]))
    right = {"aligner": (2, 2), "classifier": (30,), "mean_embedding": (2,)}.get(kind.kind)
    shape = data.draw(shapes)
    values = np.full(shape, data.draw(numbers), np.float32) if shape == right else np.ones(shape, data.draw(dtypes))
    try:
        message = kind(name, ROUND + 1, 1, values)
    except TypeError:  # kinds with other fields
        message = kind(name, ROUND + 1, 1, values, *([values] * 2), 1.0) if kind.kind == "class_statistics" else "text"
    return pack_call("exchange", name, 1, Envelope(name, ROUND + 1, 1, "round", (message,)))


def wrong_sender(data):
    """Send for a stranger, for another client, or as an older or a future process."""
    name = data.draw(sender)
    attempt = data.draw(st.sampled_from([-1, 0, 2, 10**9]))
    other = data.draw(st.sampled_from(["mallory", "", "coordinator", *CLIENTS]))
    if other == name or data.draw(st.booleans()):
        return exchange(name, ROUND + 1, attempt=attempt, aligner=9 * ONES)
    return pack_call("exchange", other, 1, replace(valid(name), sender=name))


def old_or_unknown_round(data):
    """Send late, out of order, or for a round or phase that does not exist."""
    name = data.draw(sender)
    number = data.draw(st.sampled_from([-1, 0, *range(1, ROUND), 10**6]))
    phase = data.draw(st.sampled_from(["commit", "round", "final", "party", ""]))
    messages = tuple(replace(message, round=number) for message in valid(name).messages)
    return pack_call("exchange", name, 1, replace(valid(name), round=number, phase=phase, messages=messages))


def mixed_messages(data):
    """Send messages of another round or sender in an envelope that is right."""
    name, other = data.draw(sender), data.draw(st.sampled_from(["mallory", *CLIENTS]))
    number = data.draw(st.sampled_from([0, 1, ROUND, ROUND + 2]))
    part = Aligner(other, number, 1, 9 * ONES)
    return pack_call("exchange", name, 1, Envelope(name, ROUND + 1, 1, "commit", (part,)))


def wrong_arguments(data):
    """Call with arguments of other types."""
    name = data.draw(st.sampled_from([*CALLS, "poll", "stop", "leave", "__init__", ""]))
    metrics = st.just(Metrics(A, ROUND, 1, {"loss": "high"}))
    arguments = data.draw(st.lists(junk | metrics, min_size=1, max_size=3))
    if [type(value) for value in arguments] in ([int], [float], [str]):
        arguments.append(None)
    return pack_call(name, data.draw(sender), 1, *arguments)


FUZZERS = (damaged, bad_array, wrong_sender, old_or_unknown_round, mixed_messages, wrong_arguments)


class Federation:
    """A coordinator in the middle of a run, in an event loop of its own."""

    def __init__(self, folder, mode):
        self.loop = asyncio.new_event_loop()
        self.server = self.run(started(folder, federation__mode=mode, federation__aligner_interval=1))
        for number in range(1, ROUND + 1):
            self.everyone(number)

    def run(self, coroutine):
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, 20))

    def everyone(self, number):
        async def calls():
            return await asyncio.gather(
                *(self.server.call(pack_call("exchange", n, 1, valid(n, number))) for n in CLIENTS)
            )

        return dict(zip(CLIENTS, self.run(calls()), strict=True))

    def shared(self):
        """Return all that clients receive from each other."""
        aggregate = self.server.state.aggregate
        embeddings = {name: message.values.tobytes() for name, (message, _) in aggregate.embeddings.items()}
        return {part: values.tobytes() for part, values in aggregate.current.items()} | embeddings

    def call(self, content):
        """Make a call that must be refused; return the reason."""
        try:
            answer = self.run(asyncio.wait_for(self.server.call(content), 0.05))
        except (BadMessageError, SupersededError) as error:
            return str(error)
        except TimeoutError:  # sync: an envelope whose messages were all refused waits for the others
            return "waits"
        if not isinstance(answer, Reply):  # figures that were not recorded
            assert self.server.state.ledger.refused["metrics"]
            return "refused"
        assert answer.refused or answer.round > ROUND
        return "; ".join(answer.refused)


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    return Federation(tmp_path_factory.mktemp("fuzz"), "async")


@settings(
    max_examples=COUNT,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_no_fuzzed_call_is_aggregated_or_ends_the_coordinator(federation, data):
    content = data.draw(st.sampled_from(FUZZERS))(data)
    before = federation.shared()
    reason = federation.call(content)
    assert federation.shared() == before, reason
    assert len(federation.server.state.ledger.failures) <= 100


def test_after_all_of_them_rounds_go_on(federation):
    """The average of the real clients, with nothing of the fuzzed calls in it; doubled calls get one answer."""
    replies = federation.everyone(ROUND + 2)
    np.testing.assert_array_equal(replies[T].parts["aligner"], ONES)
    traffic = dict(federation.server.state.ledger.traffic)
    again = federation.everyone(ROUND + 2)
    assert all(again[name] is replies[name] for name in CLIENTS)
    assert dict(federation.server.state.ledger.traffic) == traffic
