"""Who takes part: the paper's sets, from the shared seed."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrf.config.loader import load_config
from fedrf.config.participation import WORDS, membership
from fedrf.protocol.schedule import Schedule, members_of

SOURCES = ("a", "b", "c", "d")


def sets(messages, participants="all", rounds=400, seed=0):
    return [membership(SOURCES, participants, messages, seed, number) for number in range(1, rounds + 1)]


def test_all_take_part_by_default():
    assert all(one == (set(SOURCES),) * 3 for one in sets("same/same/same"))


def test_random_participants_have_sizes_uniform_on_zero_to_all():
    sizes = Counter(len(one.aligner) for one in sets("same/same/same", "random", rounds=2000))
    assert sizes.keys() == {0, 1, 2, 3, 4}
    assert all(abs(number - 400) < 80 for number in sizes.values())  # four standard deviations
    everyone = Counter(name for one in sets("same/same/same", "random", rounds=2000) for name in one.aligner)
    assert all(abs(everyone[name] - 1000) < 100 for name in SOURCES)


def test_the_three_sets_are_nested_as_in_table_three():
    for one in sets("same/subset/subset", "random"):
        assert one.classifier <= one.aligner <= one.mean_embedding
    assert any(one.classifier < one.aligner < one.mean_embedding for one in sets("same/subset/subset", "random"))
    for one in sets("same/same/subset", "random"):
        assert one.classifier <= one.aligner == one.mean_embedding


def test_ordered_takes_turns():
    assert ["".join(one.aligner) for one in sets("ordered/same/none", rounds=6)] == ["a", "b", "c", "d", "a", "b"]
    assert all(one.classifier == set() for one in sets("ordered/same/none"))


@pytest.mark.parametrize(("messages", "paired"), [("ordered/same/none", True), ("random/same/none", True)])
def test_same_pair_in_settings_b_and_d(messages, paired):
    assert all(one.mean_embedding == one.aligner and len(one.aligner) == 1 for one in sets(messages))


@pytest.mark.parametrize("messages", ["ordered/random/none", "random/random/none"])
def test_pairs_differ_in_settings_c_and_e(messages):
    chosen = sets(messages)
    assert all(len(one.mean_embedding) == len(one.aligner) == 1 for one in chosen)
    same = sum(one.mean_embedding == one.aligner for one in chosen)
    assert 60 < same < 140  # a quarter of 400 by chance


def test_without_embeddings_the_rest_still_passes():
    assert all(one == (set(), set(SOURCES), set(SOURCES)) for one in sets("none/participants/same"))


def test_the_seed_and_the_round_decide_and_nothing_else():
    assert sets("same/subset/subset", "random", seed=3) == sets("same/subset/subset", "random", seed=3)
    assert sets("same/subset/subset", "random", seed=3) != sets("same/subset/subset", "random", seed=4)


ANY = st.tuples(*[st.sampled_from(WORDS)] * 3).map("/".join)
PARTICIPANTS = st.sampled_from(["all", "random"])
SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None)
@given(ANY, PARTICIPANTS, SEEDS, st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_what_is_lost_does_not_change_who_is_chosen(messages, participants, seed, number, drop):
    chosen = membership(SOURCES, participants, messages, seed, number)
    assert membership(SOURCES, participants, messages, seed, number, 0.0) == chosen
    came = membership(SOURCES, participants, messages, seed, number, drop)
    assert all(fewer <= whole for fewer, whole in zip(came, chosen, strict=True))
    certain = membership(SOURCES, participants, messages, seed, number, drop, frozenset({"aligner"}))
    assert certain == came._replace(aligner=chosen.aligner)
    less = membership(SOURCES, participants, messages, seed, number, drop / 2)
    assert all(fewer <= more for fewer, more in zip(came, less, strict=True))


@settings(max_examples=15, deadline=None, derandomize=True)  # a matter of chance, but always of the same
@given(SEEDS, st.floats(0.1, 0.9))
def test_messages_are_lost_as_often_as_said_and_each_kind_and_source_on_its_own(seed, drop):
    rounds = 400
    drawn = [membership(SOURCES, "all", "same/same/same", seed, number, drop) for number in range(1, rounds + 1)]
    lost = np.array([[[name not in chosen for name in SOURCES] for chosen in one] for one in drawn], dtype=float)
    assert abs(lost.mean() - drop) < 5 * np.sqrt(drop * (1 - drop) / lost.size)
    correlations = np.corrcoef(lost.reshape(rounds, -1).T)[~np.eye(12, dtype=bool)]
    assert np.abs(correlations).max() < 6 / np.sqrt(rounds)
    one_round_later = np.corrcoef(lost[:-1].ravel(), lost[1:].ravel())[0, 1]
    assert abs(one_round_later) < 6 / np.sqrt(lost.size)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))
def test_everybody_knows_the_same_and_the_last_of_each_part_arrives(seed, rounds, interval, aligners):
    interval = min(interval, rounds)
    keys = {"seed": seed, "train.rounds": rounds, "federation.drop": 0.9}
    intervals = {"federation.classifier_interval": interval, "federation.aligner_interval": aligners}
    config = load_config(None, keys | intervals)
    for number in range(1, rounds + 1):
        expected = members_of(config, SOURCES, number)
        for name in SOURCES:
            mine = Schedule(config, name, SOURCES, "t")
            assert mine.sends_embedding(number) == (name in expected.mean_embedding)
            is_due = number % aligners == 0 or number == rounds
            assert ("aligner" in mine.parts_after(number)) == (is_due and name in expected.aligner)
            is_due = number % interval == 0
            assert ("classifier" in mine.parts_after(number)) == (is_due and name in expected.classifier)
    assert members_of(config, SOURCES, rounds).aligner == set(SOURCES)
    assert members_of(config, SOURCES, rounds - rounds % interval).classifier == set(SOURCES)
