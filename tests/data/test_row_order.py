"""The order of a client's samples: the seed determines it, and it tells nothing about their labels."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file
from scipy.stats import chi2_contingency

from fedrf.adaptation.scores import evenly
from fedrf.config.loader import load_config
from fedrf.data.domains import POOL, load_samples
from tests.federation.reference import shuffled_rows

NUM_CLASSES, PER_CLASS, SEEDS = 8, 12, 100
LABELS = np.repeat(np.arange(NUM_CLASSES), PER_CLASS)
PARTS = {"data.partition": "even", "data.clients": 2}
# A client of each kind, and the keys of its run.
CLIENTS = {
    "source": ("a", {}),
    "target": ("t", {}),
    "part of a source": ("a:2", PARTS),
    "target in the domain of a source": ("a", {**PARTS, "data.sources": ["a"], "data.target": "a"}),
    "some samples": ("t", {"data.samples": 80}),
    "standardised": ("t", {"data.scale": "standard"}),
    "pooled sources": (POOL, {"method": "pooled"}),
    "half of the target": (POOL, {"method": "target-oracle"}),
}
ALL_KINDS = pytest.mark.parametrize("kind", CLIENTS)
PRINT_NAMES = """
import json, sys
from fedrf.config.loader import load_config
from fedrf.data.domains import load_samples
print(json.dumps([load_samples(load_config(None, keys), client).names() for client, keys in json.loads(sys.argv[1])]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write three domains that are sorted by class; the first column is the position in the file."""
    root = tmp_path_factory.mktemp("sorted")
    for seed, name in enumerate(("a", "b", "t")):
        rows = np.random.RandomState(seed).randn(len(LABELS), 3)
        rows[:, 0] = np.arange(len(LABELS))
        save_file({"features": rows, "labels": LABELS}, root / f"{name}.safetensors")
    return root


def keys_of(folder, kind, seed):
    keys = {"data.name": "features", "data.root": str(folder), "data.target": "t", "seed": seed}
    return {**keys, **CLIENTS[kind][1]}


def samples_of(folder, kind, seed=0):
    return load_samples(load_config(None, keys_of(folder, kind, seed)), CLIENTS[kind][0])


@ALL_KINDS
def test_evenly_spaced_samples_of_a_sorted_file_have_random_classes(folder, kind):
    """Without a shuffle, the class at a position would hardly depend on the seed."""
    table = np.zeros((NUM_CLASSES, NUM_CLASSES))
    for seed in range(SEEDS):
        samples = samples_of(folder, kind, seed)
        table[np.arange(NUM_CLASSES), samples.labels[evenly(len(samples), NUM_CLASSES)]] += 1
    result = chi2_contingency(table)
    assert result.dof == 49
    assert result.pvalue > 1e-3


@ALL_KINDS
def test_rows_labels_and_names_stay_together(folder, kind):
    samples = samples_of(folder, kind)
    positions = np.array([int(name) for name in samples.names()])
    assert len(set(positions)) == len(samples) or kind == "pooled sources"
    np.testing.assert_array_equal(samples.labels, LABELS[positions])
    if kind == "pooled sources":
        values = np.concatenate([part.array() for part in samples.content.parts])
    else:
        values = samples.array()
    column = values[:, 0]
    if kind == "standardised":
        column = column * LABELS.size / np.sqrt(12) + np.mean(np.arange(len(LABELS)))
    np.testing.assert_allclose(column, positions, atol=0.02)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_order_is_the_one_that_the_documentation_states(folder, seed):
    def expected(domain, rows):
        return rows[shuffled_rows(load_config(None, {"seed": seed}), domain, len(rows))].tolist()

    def names(kind):
        return [int(name) for name in samples_of(folder, kind, seed).names()]

    everything = np.arange(len(LABELS))
    assert names("source") == expected("a", everything)
    assert names("target") == names("standardised") == expected("t", everything)
    assert names("pooled sources") == expected("a", everything) + expected("b", everything)
    for kind, domain in (("part of a source", "a"), ("target in the domain of a source", "a"), ("some samples", "t")):
        assert names(kind) == expected(domain, np.array(sorted(names(kind)))), kind


@ALL_KINDS
def test_another_seed_gives_another_order(folder, kind):
    orders = {tuple(samples_of(folder, kind, seed).names()) for seed in range(5)}
    assert len(orders) == 5


def test_a_new_process_has_the_same_order(folder):
    """Of all kinds of clients; hashes of texts differ from process to process."""
    asked = [(CLIENTS[kind][0], keys_of(folder, kind, 3)) for kind in CLIENTS]
    process = subprocess.run(
        [sys.executable, "-c", PRINT_NAMES, json.dumps(asked)],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(process.stdout) == [samples_of(folder, kind, 3).names() for kind in CLIENTS]
