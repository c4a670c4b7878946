"""Who takes part: the paper's sets, from the shared seed."""

from collections import Counter

import pytest

from fedrf.membership import membership

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
