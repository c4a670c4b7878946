"""The message with additive statistics: what is in it, its size, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from fedrf.protocol.class_statistics import ClassStatistics, Rounded, pack, unpack
from fedrf.protocol.message import BadMessageError, check_message
from fedrf.protocol.sizes import Sizes
from fedrf.tca.source_statistics import SourceStatistics

FEATURES, CLASSES, RANK = 10, 3, 4
SIZES = Sizes(2, 4, 6, 3, classes=CLASSES, statistics="lowrank", rank=RANK, features=FEATURES)
LENGTHS = {"means": 30, "gram": 30 + 55, "lowrank": 30 + 40}


def statistics(scale=1e-5):
    """Return numbers that are too small for half precision without a scale."""
    random = np.random.RandomState(0)
    rows = random.randn(50, FEATURES) * np.linspace(1, 0.01, FEATURES)
    return SourceStatistics(1, scale * random.randn(FEATURES, CLASSES), scale * np.cov(rows.T))


def message(form="lowrank", rank=RANK):
    return ClassStatistics("a", 1, 0, *pack(statistics(), form, rank))


def check(message, form="lowrank"):
    return check_message(message, "a", 1, ("a", "t"), replace(SIZES, statistics=form))


@pytest.mark.parametrize("form", LENGTHS)
def test_a_number_has_two_bytes_and_the_three_forms_have_their_lengths(form):
    sent = message(form)
    check(sent, form)
    assert sent.values.shape == (LENGTHS[form],)
    assert sent.nbytes == 2 * LENGTHS[form] + 24


@pytest.mark.parametrize(("form", "rank"), [("gram", RANK), ("lowrank", FEATURES)])
def test_what_arrives_is_what_was_sent_up_to_half_precision(form, rank):
    sent, received = statistics(), unpack(message(form, rank), form, FEATURES, CLASSES)
    for name in ("class_covariance", "covariance"):
        expected = getattr(sent, name)
        np.testing.assert_allclose(getattr(received, name), expected, atol=2e-3 * np.abs(expected).max())
    np.testing.assert_array_equal(received.covariance, received.covariance.T)


def test_means_have_no_covariance():
    assert unpack(message("means"), "means", FEATURES, CLASSES).covariance is None


def test_a_compressed_covariance_keeps_its_trace():
    received = unpack(message(), "lowrank", FEATURES, CLASSES)
    assert np.trace(received.covariance) == pytest.approx(np.trace(statistics().covariance), rel=1e-2)
    assert np.linalg.matrix_rank(received.covariance) == FEATURES


def test_zeros_are_restored():
    np.testing.assert_array_equal(Rounded.of(np.zeros(3)).restored(), np.zeros(3))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"values": np.zeros(71, np.float16)}, "must have shape \\(70,\\); got \\(71,\\)"),
        ({"values": np.zeros(70, np.float32)}, "must be a float16 array; got float32"),
        ({"values": np.full(70, np.nan, np.float16)}, "not finite"),
        ({"scale": 0.0}, "factors must be positive"),
        ({"class_scale": float("inf")}, "all finite"),
        ({"rest": -1.0}, "the rest not negative"),
        ({"rest": "1"}, "not a number"),
    ],
)
def test_a_bad_message_is_refused_with_a_reason(changes, reason):
    with pytest.raises(BadMessageError, match=reason):
        check(replace(message(), **changes))
