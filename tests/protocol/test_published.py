"""Averages as clients receive them, with a client that decodes them by itself."""

from itertools import pairwise

import numpy as np
import pytest

from fedrf.protocol.compression import CODECS, Difference
from fedrf.protocol.published import Published

SHAPE = (60, 40)


def averages(count):
    steps = np.random.RandomState(0).randn(count, *SHAPE)
    return [array.astype(np.float32) for array in 5 + 0.01 * steps.cumsum(0)]


def decoded(codec, held, sent):
    """Return what a client has after a message."""
    if not isinstance(sent, Difference):
        return sent
    for code in sent.steps:
        held = held + codec.decode(code, held.shape)
    return held


@pytest.mark.parametrize("feeds_back", [True, False])
@pytest.mark.parametrize("name", CODECS)
def test_a_client_has_the_bits_that_the_coordinator_says_it_has(name, feeds_back):
    codec, published, held = CODECS[name], Published(), {1: None, 2: None, 3: None}
    for number, average in enumerate(averages(12), 1):
        handed_out = published.publish(average, codec, feeds_back)
        for every in held:  # one client gets every average, the others every second and every third
            if number % every == 0:
                held[every] = decoded(codec, held[every], published.since(number - every))
                np.testing.assert_array_equal(held[every], handed_out)


@pytest.mark.parametrize("name", CODECS)
def test_averages_that_are_given_are_followed(name):
    published, steps = Published(), averages(40)
    for average in [*steps, *[steps[-1]] * 40]:
        handed_out = published.publish(average, CODECS[name], feeds_back=False)
    allowed = 1e-3 if name == "low-rank" else 1e-6
    assert np.abs(handed_out - steps[-1]).max() < allowed


@pytest.mark.parametrize("name", CODECS)
def test_steps_that_clients_take_from_what_they_get_all_arrive(name):
    """Sums of steps and of what arrives differ by the last residual alone."""
    published, meant = Published(), np.ones(SHAPE)
    current = published.publish(np.ones(SHAPE, np.float32), CODECS[name], feeds_back=True)
    for before, after in pairwise(averages(30)):
        meant = meant + (after - before)
        current = published.publish(current + (after - before), CODECS[name], feeds_back=True)
    np.testing.assert_allclose(current + published.residual, meant, atol=1e-5)


def test_changes_are_sent_as_long_as_they_are_fewer_bytes():
    """Three changes of one byte for each number and 10 factors in a matrix of 2,400 numbers; the whole has 9,600."""
    published = Published()
    for average in averages(8):
        published.publish(average, CODECS["int8"], True)
    assert [published.since(base).nbytes for base in (8, 7, 5)] == [8, 8 + 2440, 8 + 3 * 2440]
    for base in (4, 1, 0, -1, 9):
        np.testing.assert_array_equal(published.since(base), published.arrays[8])


def test_only_arrays_that_a_client_may_hold_are_kept():
    published = Published()
    for number, average in enumerate(averages(6), 1):
        published.publish(average, CODECS["int8"], True)
        published.note_held("a", number - 1)
        published.note_sent("a")
        if number == 2:
            published.note_held("b", 2)
    assert set(published.arrays) == {2, 4, 5, 6}
    assert len(published.codes) <= 4
