"""Domains with unequal and with missing classes."""

import numpy as np
import pytest

from fedrf.config.loader import load_config
from fedrf.data.domains import load_domain, load_samples
from fedrf.data.imbalance import missing_classes, thinned


@pytest.mark.parametrize("ratio", [1, 10, 30])
def test_shares_fall_geometrically_from_one_to_the_ratio(ratio):
    labels = np.random.RandomState(0).permutation(np.repeat(np.arange(4), 300))
    kept = thinned(labels, 4, ratio, np.random.RandomState(1))
    counts = np.sort(np.bincount(labels[kept], minlength=4))[::-1]
    np.testing.assert_allclose(counts, 300 * ratio ** -np.linspace(0, 1, 4), atol=0.5)
    assert (np.diff(kept) > 0).all()


def test_a_small_class_keeps_one_sample():
    labels = np.array([0, 0, 0, 1, 2, 2])
    assert set(labels[thinned(labels, 3, 1000, np.random.RandomState(0))]) == {0, 1, 2}


def test_sources_lack_different_classes():
    missing = [missing_classes(position, 3, 10, np.random.RandomState(5)) for position in range(3)]
    assert len(np.unique(np.concatenate(missing))) == 9
    again = missing_classes(1, 3, 10, np.random.RandomState(5))
    np.testing.assert_array_equal(missing[1], again)


def counts_of(config, domain):
    return np.bincount(load_samples(config, domain).labels, minlength=10)


def test_rare_classes_differ_between_domains_and_seeds():
    configs = [load_config("digits-imbalanced", {"data.target": "street", "seed": seed}) for seed in (0, 1)]
    orders = [counts_of(config, domain).argsort() for config in configs for domain in ("street", "rendered")]
    assert len({tuple(order) for order in orders}) == 4
    assert counts_of(configs[0], "street").max() > 7 * counts_of(configs[0], "street").min()
    np.testing.assert_array_equal(counts_of(configs[0], "street"), counts_of(configs[0], "street"))


def test_only_sources_lack_classes():
    config = load_config("digits", {"data.target": "street", "data.missing_classes": 3})
    assert (counts_of(config, "rendered") == 0).sum() == 3
    assert (counts_of(config, "street") > 0).all()
    rendered = np.bincount(load_domain(config.data, "rendered").labels, minlength=10)
    present = counts_of(config, "rendered") > 0
    np.testing.assert_array_equal(counts_of(config, "rendered")[present], rendered[present])


def test_a_source_needs_samples():
    config = load_config("digits", {"data.target": "street", "data.missing_classes": 10})
    with pytest.raises(ValueError, match=r"data\.missing_classes=10 leaves 0 samples of rendered"):
        load_samples(config, "rendered")


def test_a_recipe_adds_to_another(tmp_path):
    plain, thin = load_config("office31"), load_config("office31-imbalanced")
    assert thin.data.imbalance == 10
    assert thin.train == plain.train
    assert thin.model == plain.model
    file = tmp_path / "mine.yaml"
    file.write_text("recipe: office31\ntrain: {rounds: 7}\n")
    assert load_config(file).train.rounds == 7
    assert load_config(file).data.name == "office31"
    file.write_text("recipe: nowhere\n")
    with pytest.raises(ValueError, match="'nowhere' is neither a recipe"):
        load_config(file)
