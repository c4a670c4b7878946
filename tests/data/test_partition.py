from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrf.config.schema import DataConfig
from fedrf.data.partition import PARTITIONERS, partition


def split(kind, labels, count, seed=0, **options):
    return partition(kind, np.asarray(labels), count, np.random.RandomState(seed), **options)


def by_class(parts, labels):
    """Return the number of samples of each client and class."""
    return np.array([np.bincount(labels[part], minlength=labels.max() + 1) for part in parts])


def test_partitioners_are_the_values_of_the_configuration():
    assert ("none", *PARTITIONERS) == get_args(DataConfig.model_fields["partition"].annotation)


@pytest.mark.parametrize("kind", PARTITIONERS)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_parts_are_disjoint_complete_sorted_seeded_and_large_enough(kind, data):
    labels = np.array(data.draw(st.lists(st.sampled_from([0, 3, 4, 17]), min_size=2, max_size=120)))
    count, seed = data.draw(st.integers(1, len(labels) // 2)), data.draw(st.integers(0, 2**32 - 1))
    options = {
        "concentration": data.draw(st.floats(0.05, 1e6)),
        "shards": data.draw(st.integers(1, len(labels) // count)),
    }
    parts = split(kind, labels, count, seed, **options)
    assert len(parts) == count
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    assert all(len(part) >= 2 and (np.diff(part) > 0).all() for part in parts)
    again = split(kind, labels, count, seed, **options)
    assert all(np.array_equal(part, repeated) for part, repeated in zip(parts, again, strict=True))
    sizes = [len(part) for part in parts]
    spread = {"even": 1, "shards": options["shards"]}.get(kind, len(labels))
    assert max(sizes) - min(sizes) <= spread


@pytest.mark.parametrize("kind", PARTITIONERS)
def test_another_seed_gives_other_parts(kind):
    labels = np.repeat(np.arange(5), 40)
    parts, other_parts = split(kind, labels, 4, seed=0), split(kind, labels, 4, seed=1)
    assert any(not np.array_equal(part, other) for part, other in zip(parts, other_parts, strict=True))


@pytest.mark.parametrize("kind", ["dirichlet", "size"])
@pytest.mark.parametrize("concentration", [1e-320, 1e-12, 1e12, 1e308])
def test_extreme_concentrations_cause_no_numerical_errors(kind, concentration):
    labels = np.arange(4000) % 1000
    with np.errstate(all="raise", under="ignore"):
        sizes = [len(part) for part in split(kind, labels, 4, concentration=concentration)]
    assert sum(sizes) == 4000
    assert min(sizes) >= 2


def test_a_thousand_clients_with_few_samples_get_two_each_and_keep_their_skew():
    labels = np.arange(5400) % 10
    largest = []  # mean share of the largest class at clients with at least five samples
    for concentration in (0.01, 0.5, 100):
        parts = split("dirichlet", labels, 1000, concentration=concentration)
        assert sorted(np.concatenate(parts)) == list(range(5400))
        assert min(map(len, parts)) == 2
        largest.append(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts if len(part) >= 5]))
    assert largest[0] > largest[1] + 0.1 > largest[2] + 0.2


def test_a_huge_concentration_splits_every_class_evenly():
    labels = np.random.RandomState(0).randint(0, 7, 1000)
    counts = by_class(split("dirichlet", labels, 6, concentration=1e9), labels)
    assert (np.abs(counts - np.bincount(labels) / 6) <= 1).all()


def test_classes_smaller_than_the_number_of_clients_are_split_without_bias():
    labels = np.arange(9000) // 3  # three samples of each class for five clients
    sizes = [len(part) for part in split("dirichlet", labels, 5, concentration=1e9)]
    assert max(sizes) - min(sizes) < 300  # expected 1,800 each, with a standard deviation of 27


def test_a_small_concentration_skews_labels():
    labels = np.arange(5000) % 10
    largest = [
        (by_class(parts, labels) / 500).max(axis=0).mean()
        for parts in (split("dirichlet", labels, 5, seed, concentration=a) for a in (0.05, 100) for seed in range(5))
    ]
    assert min(largest[:5]) > 0.75  # nearly all of a class at one client
    assert max(largest[5:]) < 0.3


@pytest.mark.parametrize("concentration", [0.3, 2.0])
def test_shares_have_the_moments_of_a_dirichlet_distribution(concentration):
    count, classes = 4, 2000
    labels = np.arange(100 * classes) % classes
    shares = by_class(split("dirichlet", labels, count, concentration=concentration), labels) / 100
    variance = (count - 1) / (count**2 * (count * concentration + 1))
    assert shares.mean(axis=1) == pytest.approx(np.full(count, 1 / count), abs=0.03)
    assert shares.var(axis=1) == pytest.approx(np.full(count, variance), rel=0.1)


def test_shards_that_divide_the_classes_have_one_class_each():
    labels = np.random.RandomState(0).permutation(np.repeat(np.arange(10), 30))
    for count, shards in ((10, 2), (5, 2), (20, 3), (3, 10)):
        counts = by_class(split("shards", labels, count, shards=shards), labels)
        size = len(labels) // (count * shards)
        assert (30 % size, (counts % size).any()) == (0, False)
        assert ((counts > 0).sum(axis=1) <= shards).all()
        assert (counts.sum(axis=1) == size * shards).all()


@given(sizes=st.lists(st.integers(12, 40), min_size=2, max_size=6), shards=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_shards_no_larger_than_a_class_have_at_most_two_classes(sizes, shards, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    count = -(-len(labels) // (12 * shards))  # a shard has at most 12 samples
    present = (by_class(split("shards", labels, count, seed, shards=shards), labels) > 0).sum(axis=1)
    assert (present <= 2 * shards).all()
    # Only a shard at the boundary of two classes has both.
    assert present.sum() <= count * shards + len(sizes) - 1


def test_size_does_not_skew_labels():
    labels = np.arange(20000) % 4
    parts = split("size", labels, 5, seed=3, concentration=1.0)
    sizes = np.array([len(part) for part in parts])
    assert sizes.max() > 2 * sizes.min()
    shares = by_class(parts, labels) / sizes[:, None]
    # Four standard deviations of a share of 1/4.
    assert (np.abs(shares - 0.25) < 4 * np.sqrt(0.25 * 0.75 / sizes)[:, None]).all()


def test_even_does_not_skew_labels():
    labels = np.sort(np.arange(20000) % 4)
    shares = by_class(split("even", labels, 5), labels) / 4000
    assert (np.abs(shares - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4000)).all()


@pytest.mark.parametrize(
    ("kind", "count", "options", "message"),
    [
        (
            "even",
            6,
            {},
            "data.clients=6: 10 samples are too few for clients with at least 2 each; use at most 5 clients",
        ),
        (
            "shards",
            4,
            {"shards": 3},
            "data.shards=3 and data.clients=4 need 12 samples; there are 10, .* data.shards=2",
        ),
        ("moons", 2, {}, "data.partition must be one of even, dirichlet, shards, size; got 'moons'"),
    ],
)
def test_errors_say_what_is_possible(kind, count, options, message):
    with pytest.raises(ValueError, match=message) as raised:
        split(kind, np.arange(10) % 2, count, **options)
    assert "\n" not in str(raised.value)
