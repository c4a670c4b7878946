"""One of five sources is hostile: whole runs that hardly suffer, and a coordinator that names the source."""

import numpy as np
import pytest

import fedrf
from benchmarks.hostile import Attack, hostile_clients
from fedrf.config.loader import load_config
from fedrf.config.participation import Participants
from fedrf.federation.aggregate import Aggregate
from fedrf.protocol.ledger import Ledger
from fedrf.protocol.messages import Classifier

HOSTILE = "rendered-1"
OTHERS = ["rendered-2", "textured-1", "textured-2", "street"]
SETTINGS = {
    "data.name": "benchmarks.hostile:FiveSources",
    "data.target": "handwritten",
    "federation.mode": "sync",
    "model.sigma": 0.7,  # otherwise the hostile source takes part in choosing it
    "adapt.when": "never",
}
ROUNDS = {"method": "fedrf-plus", "train.rounds": 30, "train.lr": 0.01}


@pytest.fixture
def run(tmp_path):
    def run(attack, **more):
        hostile = [] if attack == "none" else [HOSTILE]
        keys = SETTINGS | {key.replace("__", "."): value for key, value in more.items()}
        with hostile_clients(Attack(attack, hostile)):
            return fedrf.run("digits", keys, out=tmp_path / f"{attack}{len(list(tmp_path.iterdir()))}", local=True)

    return run


def predictions(result):
    return (result.folder / "predictions.csv").read_text()


@pytest.mark.parametrize("attack", ["sign", "noise", "labels", "shift"])
def test_the_default_predicts_as_if_the_hostile_source_did_not_exist(run, attack):
    attacked, without = run(attack), run("none", data__sources=OTHERS)
    (failure,) = attacked.summary["failures"]
    assert failure.startswith(f"left out: {HOSTILE}, because its c")
    assert without.summary["failures"] == []
    assert predictions(attacked) == predictions(without)
    assert list(attacked.summary["measured"]["source_weights"]) == OTHERS


@pytest.mark.parametrize("attack", ["sign", "noise"])
def test_one_hostile_source_costs_little_in_rounds_and_would_ruin_a_mean(run, attack):
    keys = {key.replace(".", "__"): value for key, value in ROUNDS.items()}
    honest, attacked = run("none", **keys), run(attack, **keys)
    assert honest.summary["failures"] == []
    assert attacked.target_accuracy > honest.target_accuracy - 0.05
    parts = {"aligner", "classifier", "extractor"}
    assert set(attacked.summary["failures"]) == {
        f"left out: {HOSTILE}, because its {part} is far from those of most clients" for part in parts
    }
    averaged = run(attack, **keys, federation__aggregation="mean")
    assert averaged.target_accuracy < honest.target_accuracy - 0.1


def test_if_nobody_is_left_out_the_bits_are_those_of_the_mean(run):
    keys = {key.replace(".", "__"): value for key, value in ROUNDS.items()}
    assert load_config("digits").federation.aggregation == "consistent"
    assert predictions(run("none", **keys)) == predictions(run("none", **keys, federation__aggregation="mean"))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_ledger_names_who_was_left_out_and_how_often(mode):
    """The classifiers of the last of three sources are far from those of the others, in two rounds."""
    sources, ledger = ("rendered", "street", "textured"), Ledger()
    config = load_config(None, {"method": "fedrf-plus", "data.sources": list(sources), "federation.mode": mode})
    aggregate = Aggregate(config, sources, "handwritten")
    everyone = Participants(*[frozenset(sources)] * len(Participants._fields))
    for number in (1, 2):
        values = {"rendered": 1.0, "street": 1.2, "textured": -9.0}
        entries = {
            name: {"classifier": Classifier(name, number, 0, np.full(4, value, np.float32))}
            for name, value in values.items()
        }
        if mode == "sync":
            aggregate.combine(entries, ledger.suspect)
        else:
            for name, accepted in entries.items():
                aggregate.add(name, accepted, aggregate.version, everyone, ledger.suspect)
        if mode == "sync":
            np.testing.assert_allclose(aggregate.current["classifier"], np.full(4, 1.1), rtol=1e-6)
    reason = "its classifier is far from those of most clients"
    # Async: with each update since the third.
    assert ledger.suspicions == {"textured": {reason: 2 if mode == "sync" else 4}}
