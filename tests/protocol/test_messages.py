"""Messages that are refused, and the reasons."""

import numpy as np
import pytest

from fedrf.protocol.message import KINDS, ArrayMessage, BadMessageError, check_message
from fedrf.protocol.messages import (
    Aligner,
    Classifier,
    Features,
    Greeting,
    MeanEmbedding,
    Metrics,
    Moments,
    Product,
    SourceWeights,
    Statistics,
)
from fedrf.protocol.sizes import Sizes

CLIENTS = ("a", "b", "t")
SIZES = Sizes(
    dim=2, batch_size=4, classifier=6, clients=3, classes=2, statistics="none", rank=1, features=6, sends_gram=True
)
GOOD = np.full(6, 0.4, np.float32)


def embedding(values=GOOD, sender="a", number=3):
    return MeanEmbedding(sender, number, 0, values)


def check(message):
    return check_message(message, "a", 3, CLIENTS, SIZES)


def test_a_sound_message_is_accepted_and_knows_its_size():
    check(embedding())
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
        (Features("a", 3, 0, np.zeros((5, 2), np.float32)), "must have shape \\(4, 2\\); got \\(5, 2\\)"),
        (Features("a", 3, 0, np.zeros((0, 2), np.float32)), "must have shape"),
        (Features("a", 3, 0, np.ones((1, 2), np.float32)), "a row of length 1.414"),
        (Moments("a", 3, 0, np.zeros((2, 3), np.float32)), "must have shape \\(2, 2\\)"),
        (SourceWeights("a", 3, 0, np.array([1, -1, 1], np.float32)), "must be at least 0"),
        (SourceWeights("a", 3, 0, np.zeros(3, np.float32)), "not all of them 0"),
        (Metrics("a", 3, 0, {"loss": print}), "not a number"),
        (Greeting("a", 3, 0, float("nan"), 5, 1), "width must be positive"),
        (Greeting("a", 3, 0, 1.0, 5, "many"), "not a number"),
        (Greeting("a", 3, 0, 1.0, 5, 0), "count must be 1 to 1000000000000; got 0"),
        (Metrics("a", 3, 0, {"round": float("nan")}), "round must be a count; got nan"),
        (Metrics("a", 3, 0, {"step": float("inf")}), "step must be a count; got inf"),
        (Metrics("a", 3, 0, {"final": -1.0}), "final must be a count; got -1"),
        (Metrics("a", 3, 0, {"client": 5.0}), "cannot have the name client"),
        (Metrics("a", 3, 0, {f"loss {i}": 1.0 for i in range(101)}), "over 100 figures"),
        (Metrics("a", 3, 0, {"x" * 65: 1.0}), "a name of over 64 letters"),
        (
            Statistics("a", 3, 0, np.full((7, 6), 1e10, np.float32), 100),
            "a column of length 2.646e\\+10; allowed: 141.4",
        ),
        (Product("a", 3, 0, np.full(6, 5, np.float32), 12), "a column of length 12.25; allowed: 12"),
        (Moments("a", 3, 0, -np.ones((2, 2), np.float32)), "cannot be means and variances"),
        (Moments("a", 3, 0, np.full((2, 2), 1e7, np.float32)), "cannot be means and variances"),
        (Statistics("a", 3, 0, np.zeros((7, 6), np.float32), -5), "count must be 1 to 1000000000000; got -5"),
        ("import os", "str is not a message"),
        (print, "is not a message"),
    ],
)
def test_a_bad_message_is_refused_with_a_reason(message, reason):
    with pytest.raises(BadMessageError, match=reason):
        check(message)


def test_large_finite_numbers_are_accepted():
    check(Classifier("a", 3, 0, np.full(6, 3e38, np.float32)))


def test_a_subclass_of_a_known_message_is_refused():
    class Trojan(MeanEmbedding):
        def __reduce__(self):
            return (print, ("owned",))

    with pytest.raises(BadMessageError, match="Trojan is not a message"):
        check(Trojan("a", 3, 0, GOOD))


def test_messages_are_immutable():
    with pytest.raises(AttributeError):
        embedding().round = 4


def test_a_new_kind_of_message_is_one_class():
    """The class is known as soon as it is defined: shape, bounds and whether it is relayed are its own."""

    class Histogram(ArrayMessage):
        kind = "histogram"
        is_relayed = True

        @classmethod
        def shape(cls, sizes):
            return (sizes.dim,)

        def check_bounds(self, where, norm):
            if self.values.sum() != 1:
                raise BadMessageError(f"{where} must sum to 1")

    try:
        assert check(Histogram("a", 3, 0, np.array([0.5, 0.5], np.float32))).kind == "histogram"
        with pytest.raises(BadMessageError, match="histogram of a must sum to 1"):
            check(Histogram("a", 3, 0, np.ones(2, np.float32)))
        with pytest.raises(BadMessageError, match=r"must have shape \(2,\); got \(3,\)"):
            check(Histogram("a", 3, 0, np.ones(3, np.float32)))
    finally:
        del KINDS["histogram"]
