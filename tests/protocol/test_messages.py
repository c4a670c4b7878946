"""What is refused, and why."""

import numpy as np
import pytest

from fedrf.protocol.messages import (
    Aligner,
    BadMessageError,
    Classifier,
    Contract,
    Greeting,
    MeanEmbedding,
    Metrics,
    Statistics,
)

CONTRACT = Contract(("a", "b", "t"), {"mean_embedding": (6,), "aligner": (6, 2)})
GOOD = np.full(6, 0.4, np.float32)


def embedding(values=GOOD, sender="a", number=3):
    return MeanEmbedding(sender, number, 0, values)


def test_a_sound_message_passes_and_knows_its_size():
    CONTRACT.check(embedding(), "a", 3)
    assert embedding().nbytes == 24
    assert Aligner("a", 1, 0, np.zeros((6, 2), np.float32)).nbytes == 48
    assert Metrics("a", 1, 0, {"loss": 1.0, "mmd": 2.0}).nbytes == 16


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (embedding(np.zeros(5, np.float32)), "must have shape \\(6,\\); got \\(5,\\)"),
        (embedding(np.zeros(6, np.float64)), "must be a float32 array; got float64"),
        (embedding([0.0] * 6), "must be a float32 array"),
        (embedding(np.array([np.nan, 0, 0, 0, 0, 0], np.float32)), "not finite"),
        (embedding(np.array([np.inf, 0, 0, 0, 0, 0], np.float32)), "not finite"),
        (embedding(np.full(6, 0.5, np.float32)), "length 1.225; a mean of unit vectors has at most 1"),
        (embedding(sender="stranger"), "unknown sender 'stranger'"),
        (embedding(sender="b"), "mean_embedding of b in the envelope of a"),
        (embedding(number=2), "is of round 2; expected 3"),
        (Aligner("a", 3, 0, np.zeros((2, 6), np.float32)), "must have shape \\(6, 2\\)"),
        (Metrics("a", 3, 0, {"loss": print}), "no number"),
        (Greeting("a", 3, 0, float("nan"), 5, 1), "width must be positive"),
        (Greeting("a", 3, 0, 1.0, 5, "many"), "no number"),
        (Greeting("a", 3, 0, 1.0, 5, 0), "count must be at least 1; got 0"),
        (Statistics("a", 3, 0, np.zeros((7, 6), np.float32), -5), "count must be at least 1; got -5"),
        ("import os", "str is no message"),
        (print, "is no message"),
    ],
)
def test_a_bad_message_is_refused_with_a_reason(message, reason):
    with pytest.raises(BadMessageError, match=reason):
        CONTRACT.check(message, "a", 3)


def test_huge_but_finite_numbers_are_not_mistaken_for_infinite_ones():
    CONTRACT.check(Classifier("a", 3, 0, np.full(6, 3e38, np.float32)), "a", 3)


def test_a_subclass_cannot_smuggle_anything_in():
    class Trojan(MeanEmbedding):
        def __reduce__(self):
            return (print, ("owned",))

    with pytest.raises(BadMessageError, match="Trojan is no message"):
        CONTRACT.check(Trojan("a", 3, 0, GOOD), "a", 3)


def test_messages_cannot_be_changed():
    with pytest.raises(AttributeError):
        embedding().round = 4
