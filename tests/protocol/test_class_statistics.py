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
LENGTHS = {"means": 33, "gram": 33 + 55, "lowrank": 33 + 40}
SHARES = np.array([0.5, 0.3, 0.2])


def statistics(scale=1e-5):
    """Return numbers that are too small for half precision without a scale."""
    random = np.random.RandomState(0)
    labels = random.choice(CLASSES, 60, p=SHARES)
    rows = (random.randn(CLASSES, FEATURES)[labels] + random.randn(60, FEATURES)) * np.linspace(1, 0.1, FEATURES)
    both = scale * np.cov(np.hstack([rows, np.eye(CLASSES)[labels]]).T, ddof=0)
    shares = np.bincount(labels, minlength=CLASSES) / len(labels)
    # With B in units of √scale, B diag(1 / shares) Bᵀ is the covariance between classes.
    return SourceStatistics.of_source(both[:FEATURES, FEATURES:] / scale**0.5, both[:FEATURES, :FEATURES]), shares


def message(form="lowrank", rank=RANK):
    return ClassStatistics("a", 1, 0, *pack(*statistics(), form, rank))


def received(form, rank=RANK):
    """Return the covariances that follow from a message, in the coordinates of the features."""
    (source,), basis = unpack([message(form, rank)], form, FEATURES, CLASSES)
    outside = (FEATURES * source.variance - np.trace(source.covariance)) / max(1, FEATURES - basis.shape[1])
    rest = outside * (np.eye(FEATURES) - basis @ basis.T)
    return basis @ source.class_covariance, basis @ source.covariance @ basis.T + rest


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
    sent = statistics()[0]
    for expected, arrived in zip((sent.class_covariance, sent.covariance), received(form, rank), strict=True):
        np.testing.assert_allclose(arrived, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("form", ["means", "lowrank"])
def test_a_compressed_covariance_keeps_its_trace(form):
    covariance = received(form)[1]
    assert np.trace(covariance) == pytest.approx(np.trace(statistics()[0].covariance), rel=1e-2)
    assert np.linalg.matrix_rank(covariance) == FEATURES


def test_class_means_tell_the_covariance_between_classes():
    sent, shares = statistics()
    between = sum(np.outer(b, b) / share for b, share in zip(sent.class_covariance.T, shares, strict=True))
    rest = np.trace(sent.covariance - between) / FEATURES
    np.testing.assert_allclose(received("means")[1], between + rest * np.eye(FEATURES), atol=1e-8)


def test_a_class_without_a_share_has_no_column():
    sent = message()
    sent.values[FEATURES * CLASSES] = 0
    (source,), _ = unpack([sent], "lowrank", FEATURES, CLASSES)
    assert not source.class_covariance[:, 0].any()
    assert source.class_covariance[:, 1].any()


def test_zeros_are_restored():
    np.testing.assert_array_equal(Rounded.of(np.zeros(3)).restored(), np.zeros(3))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"values": np.zeros(74, np.float16)}, "must have shape \\(73,\\); got \\(74,\\)"),
        ({"values": np.zeros(73, np.float32)}, "must be a float16 array; got float32"),
        ({"values": np.full(73, np.nan, np.float16)}, "not finite"),
        ({"scale": 0.0}, "factors must be positive"),
        ({"class_scale": float("inf")}, "all finite"),
        ({"rest": -1.0}, "the rest not negative"),
        ({"rest": "1"}, "not a number"),
        ({"values": np.full(73, -1, np.float16)}, "negative share of a class"),
    ],
)
def test_a_bad_message_is_refused_with_a_reason(changes, reason):
    with pytest.raises(BadMessageError, match=reason):
        check(replace(message(), **changes))
