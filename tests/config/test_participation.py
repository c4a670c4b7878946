"""Participants of a round: the sets of the paper, computed from the shared seed."""

from collections import Counter
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrf.config.loader import load_config
from fedrf.config.participation import is_empty, participants
from fedrf.config.schema import Senders
from fedrf.protocol.schedule import Schedule, participants_of

SOURCES = ("a", "b", "c", "d")
VALUES = get_args(Senders)
SAME = ("same", "same", "same")
NESTED = ("same", "subset", "subset")


def draw(senders, selection="all", rounds=400, seed=0):
    return [participants(SOURCES, selection, senders, seed, number) for number in range(1, rounds + 1)]


@pytest.mark.parametrize("senders", [SAME, ("participants",) * 3])
def test_all_sources_take_part_by_default(senders):
    assert all(drawn == (set(SOURCES),) * 3 for drawn in draw(senders))


def test_random_participants_have_sizes_uniform_on_zero_to_all():
    rounds = draw(SAME, "random", rounds=2000)
    sizes = Counter(len(drawn.aligner) for drawn in rounds)
    assert sizes.keys() == {0, 1, 2, 3, 4}
    assert all(abs(number - 400) < 80 for number in sizes.values())  # four standard deviations
    counts = Counter(name for drawn in rounds for name in drawn.aligner)
    assert all(abs(counts[name] - 1000) < 100 for name in SOURCES)


def test_the_three_sets_are_nested_as_in_table_three():
    rounds = draw(NESTED, "random")
    assert all(drawn.classifier <= drawn.aligner <= drawn.mean_embedding for drawn in rounds)
    assert any(drawn.classifier < drawn.aligner < drawn.mean_embedding for drawn in rounds)
    for drawn in draw(("same", "same", "subset"), "random"):
        assert drawn.classifier <= drawn.aligner == drawn.mean_embedding


def test_ordered_takes_one_source_in_turn():
    rounds = draw(("ordered", "same", "none"))
    assert ["".join(drawn.aligner) for drawn in rounds[:6]] == ["a", "b", "c", "d", "a", "b"]
    assert all(drawn.classifier == set() for drawn in rounds)


@pytest.mark.parametrize("senders", [("ordered", "same", "none"), ("random", "same", "none")])
def test_settings_b_and_d_use_both_messages_of_one_source(senders):
    assert all(drawn.mean_embedding == drawn.aligner and len(drawn.aligner) == 1 for drawn in draw(senders))


@pytest.mark.parametrize("senders", [("ordered", "random", "none"), ("random", "random", "none")])
def test_settings_c_and_e_draw_the_two_sources_independently(senders):
    rounds = draw(senders)
    assert all(len(drawn.mean_embedding) == len(drawn.aligner) == 1 for drawn in rounds)
    same = sum(drawn.mean_embedding == drawn.aligner for drawn in rounds)
    assert 60 < same < 140  # a quarter of 400 by chance


def test_without_embeddings_aligners_and_classifiers_are_still_used():
    assert all(drawn == (set(), set(SOURCES), set(SOURCES)) for drawn in draw(("none", "participants", "same")))


def test_only_seed_and_round_decide():
    assert draw(NESTED, "random", seed=3) == draw(NESTED, "random", seed=3)
    assert draw(NESTED, "random", seed=3) != draw(NESTED, "random", seed=4)


def test_every_combination_that_is_empty_is_recognised():
    """`is_empty` is true exactly for the kinds of which no message is used in any of many rounds."""
    template = load_config().federation
    for first in VALUES:
        for second in VALUES:
            for third in VALUES:
                senders = (first, second, third)
                rounds = draw(senders, "random", rounds=20)
                never = tuple(not any(drawn[kind] for drawn in rounds) for kind in range(3))
                keys = ("embeddings_from", "aligners_from", "classifiers_from")
                federation = template.model_copy(update=dict(zip(keys, senders, strict=True)))
                assert is_empty(federation) == never, senders


ANY_SENDERS = st.tuples(*[st.sampled_from(VALUES)] * 3)
SELECTIONS = st.sampled_from(["all", "random"])
SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None)
@given(ANY_SENDERS, SELECTIONS, SEEDS, st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_lost_messages_do_not_change_the_selection(senders, selection, seed, number, drop):
    chosen = participants(SOURCES, selection, senders, seed, number)
    assert participants(SOURCES, selection, senders, seed, number, 0.0) == chosen
    arrived = participants(SOURCES, selection, senders, seed, number, drop)
    assert all(fewer <= whole for fewer, whole in zip(arrived, chosen, strict=True))
    certain = participants(SOURCES, selection, senders, seed, number, drop, frozenset({"aligner"}))
    assert certain == arrived._replace(aligner=chosen.aligner)
    less = participants(SOURCES, selection, senders, seed, number, drop / 2)
    assert all(fewer <= more for fewer, more in zip(arrived, less, strict=True))


@settings(max_examples=15, deadline=None, derandomize=True)  # random, but the same in every run of the test
@given(SEEDS, st.floats(0.1, 0.9))
def test_messages_are_lost_with_the_given_probability_and_independently(seed, drop):
    rounds = 400
    drawn = [participants(SOURCES, "all", SAME, seed, number, drop) for number in range(1, rounds + 1)]
    lost = np.array([[[name not in kind for name in SOURCES] for kind in sets] for sets in drawn], dtype=float)
    assert abs(lost.mean() - drop) < 5 * np.sqrt(drop * (1 - drop) / lost.size)
    correlations = np.corrcoef(lost.reshape(rounds, -1).T)[~np.eye(12, dtype=bool)]
    assert np.abs(correlations).max() < 6 / np.sqrt(rounds)
    one_round_later = np.corrcoef(lost[:-1].ravel(), lost[1:].ravel())[0, 1]
    assert abs(one_round_later) < 6 / np.sqrt(lost.size)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))
def test_all_clients_compute_the_same_sets_and_the_last_average_of_each_part_is_complete(
    seed, rounds, interval, aligner_interval
):
    interval = min(interval, rounds)
    keys = {"seed": seed, "train.rounds": rounds, "federation.drop": 0.9}
    intervals = {"federation.classifier_interval": interval, "federation.aligner_interval": aligner_interval}
    config = load_config(None, keys | intervals)
    for number in range(1, rounds + 1):
        expected = participants_of(config, SOURCES, number)
        for name in SOURCES:
            schedule = Schedule(config, name, SOURCES, "t")
            assert schedule.sends_embedding(number) == (name in expected.mean_embedding)
            is_due = number % aligner_interval == 0 or number == rounds
            assert ("aligner" in schedule.parts_after(number)) == (is_due and name in expected.aligner)
            is_due = number % interval == 0
            assert ("classifier" in schedule.parts_after(number)) == (is_due and name in expected.classifier)
    assert participants_of(config, SOURCES, rounds).aligner == set(SOURCES)
    assert participants_of(config, SOURCES, rounds - rounds % interval).classifier == set(SOURCES)
