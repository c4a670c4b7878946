"""The message with additive statistics: what is in it, its size, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from fedrf.protocol.class_statistics import ClassStatistics, pack, unpack
from fedrf.protocol.message import BadMessageError, check_message
from fedrf.protocol.sizes import Sizes
from fedrf.tca.source_statistics import SourceStatistics

FEATURES, CLASSES, RANK = 10, 3, 4
SIZES = Sizes(2, 4, 6, 3, classes=CLASSES, statistics="lowrank", rank=RANK, features=FEATURES)
COLUMNS = {"means": 3, "gram": 3 + 10, "lowrank": 3 + 4}
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
    (source,), basis = unpack([message(form, rank)])
    assert np.allclose(basis.T @ basis, np.eye(basis.shape[1]))
    outside = (FEATURES * source.variance - np.trace(source.covariance)) / max(1, FEATURES - basis.shape[1])
    rest = outside * (np.eye(FEATURES) - basis @ basis.T)
    return basis @ source.class_covariance, basis @ source.covariance @ basis.T + rest


def check(message, form="lowrank"):
    return check_message(message, "a", 1, ("a", "t"), replace(SIZES, statistics=form))


@pytest.mark.parametrize(("form", "width"), [("means", 1), ("gram", 2), ("lowrank", 1)])
def test_a_number_has_one_byte_or_two_and_the_three_forms_have_their_columns(form, width):
    sent = message(form)
    check(sent, form)
    assert sent.values.shape == (FEATURES, COLUMNS[form])
    assert sent.nbytes == width * FEATURES * COLUMNS[form] + 4 * COLUMNS[form] + 4 * CLASSES + 8


@pytest.mark.parametrize(("form", "rank", "error"), [("gram", RANK, 1e-4), ("lowrank", FEATURES, 1e-2)])
def test_what_arrives_is_what_was_sent_up_to_rounding(form, rank, error):
    sent = statistics()[0]
    for expected, arrived in zip((sent.class_covariance, sent.covariance), received(form, rank), strict=True):
        np.testing.assert_allclose(arrived, expected, atol=error * np.abs(expected).max())


@pytest.mark.parametrize("form", ["means", "lowrank"])
def test_a_compressed_covariance_keeps_its_trace(form):
    covariance = received(form)[1]
    assert np.trace(covariance) == pytest.approx(np.trace(statistics()[0].covariance), rel=1e-2)
    assert np.linalg.matrix_rank(covariance) == FEATURES


def test_class_means_tell_the_covariance_between_classes():
    sent, shares = statistics()
    between = sum(np.outer(b, b) / share for b, share in zip(sent.class_covariance.T, shares, strict=True))
    rest = np.trace(sent.covariance - between) / FEATURES
    np.testing.assert_allclose(received("means")[1], between + rest * np.eye(FEATURES), atol=2e-7)


def test_a_class_without_a_share_has_no_column():
    sent = message()
    sent.shares[0] = 0
    (source,), _ = unpack([sent])
    assert not source.class_covariance[:, 0].any()
    assert source.class_covariance[:, 1].any()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"values": np.zeros((10, 8), np.int8)}, "must have shape \\(10, 7\\); got \\(10, 8\\)"),
        ({"values": np.zeros((10, 7), np.float32)}, "must be a int8 array; got float32"),
        ({"scales": np.ones(6, np.float32)}, "scales must have shape \\(7,\\); got \\(6,\\)"),
        ({"scales": np.ones(7)}, "scales must be a float32 array"),
        ({"scales": [1.0] * 7}, "scales must be a float32 array"),
        ({"scales": np.full(7, np.inf, np.float32)}, "scales must be finite and not negative"),
        ({"shares": np.full(3, -0.1, np.float32)}, "shares must be finite and not negative"),
        ({"shares": np.full(3, np.nan, np.float32)}, "shares must be finite and not negative"),
        ({"rest": -1.0}, "the rest must be finite and not negative"),
        ({"rest": float("inf")}, "the rest must be finite"),
        ({"rest": "1"}, "not a number"),
    ],
)
def test_a_bad_message_is_refused_with_a_reason(changes, reason):
    with pytest.raises(BadMessageError, match=reason):
        check(replace(message(), **changes))
