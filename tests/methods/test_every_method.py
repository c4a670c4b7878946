"""Methods on three tiny domains: learning, bytes, resuming, one source, a client that is late, async mode, Ray."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import fedrf
from fedrf.config.loader import load_config
from fedrf.config.registry import METHODS
from tests.conftest import final_weights

DIM, CLASSES, COLUMNS, BATCH, NUM_FEATURES, SOURCES = 8, 4, 10, 16, 20, ("a", "b")
COUNTS = {"a": 72, "b": 54, "t": 66}
ROUNDS, MORE_ROUNDS, FEWER_SAMPLES = 20, 30, 40
ALL = list(METHODS.built_in)
# For behaviours that do not depend on the losses: one method for each kind of message and of client.
BY_KIND = {
    "fedrf-plus": "mean embeddings and a proximal step",
    "fedrf-tca": "mean embeddings and gradient steps",
    "f-dann": "features and a local auxiliary network",
    "kd3a": "moments, source models at the target and weights from it",
    "autodial": "moments, a shared auxiliary network and normalisation",
    "source-only": "a majority vote",
    "pooled-dann": "pooled samples",  # last: it has fewer clients, for which Ray tests start new actors
}
# Kinds of messages that the formulas do not count: greetings, figures, and samples that are moved to a pool.
NOT_COUNTED = ("greeting", "metrics", "samples")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write four classes around four centres; domains are rotated a little against each other."""
    root, random = tmp_path_factory.mktemp("domains"), np.random.RandomState(0)
    centres = 2.5 * random.randn(CLASSES, COLUMNS)
    for name, count in COUNTS.items():
        labels = np.arange(count) % CLASSES
        rotation = np.linalg.qr(np.eye(COLUMNS) + 0.1 * random.randn(COLUMNS, COLUMNS))[0]
        rows = (centres[labels] + random.randn(count, COLUMNS)) @ (rotation * np.sign(np.diag(rotation))) + 0.3
        save_file({"features": rows, "labels": labels}, root / f"{name}.safetensors")
    return root


def settings(folder, method, **more):
    return {
        "method": method,
        "data.name": "features",
        "data.root": str(folder),
        "data.target": "t",
        "model.num_features": NUM_FEATURES,
        "model.dim": DIM,
        "train.rounds": ROUNDS,
        "train.batch_size": BATCH,
        "train.lr": 0.01,  # few rounds
        "adapt.steps": 10,
        "adapt.batch_size": 32,
        "track.evaluate_every": 10,
        "federation.mode": "sync",
        "federation.checkpoint_seconds": 1e9,
        "resources.accelerator": "cpu",
        **({"model.extractor_interval": 5} if method == "fedrf-plus" else {}),  # divides both numbers of rounds
        **{key.replace("__", "."): value for key, value in more.items()},
    }


@pytest.fixture(scope="module")
def uninterrupted(folder, tmp_path_factory):
    """Return a function that runs a method once, however often it is called."""
    runs = {}

    def run(method):
        if method not in runs:
            out = tmp_path_factory.mktemp(method) / "run"
            runs[method] = fedrf.run(None, settings(folder, method), out=out, local=True)
        return runs[method]

    return run


@pytest.mark.parametrize("method", ALL)
def test_it_learns_above_chance(uninterrupted, method):
    result = uninterrupted(method)
    assert result.finished
    assert result.summary["failures"] == []
    assert result.target_accuracy > 2 / CLASSES


def sizes(result):
    """Return the values of the letters in formulas, from the configuration and the weights of a run."""
    weights = load_file(next(result.folder.glob("checkpoints/*/final.safetensors")))
    counts = {
        letter: sum(value.size for name, value in weights.items() if name.split(".")[0] == prefix)
        for letter, prefix in (("G", "adapter"), ("W", "aligner"), ("C", "classifier"), ("D", "companion"))
    }
    federation = result.config.federation
    intervals = {
        "A": federation.aligner_interval,
        "T": federation.classifier_interval,
        "E": result.config.model.extractor_interval,
        "F": result.config.align.refresh,
    }
    return {**counts, **intervals, "K": len(SOURCES), "S": 2 * NUM_FEATURES, "m": DIM, "B": BATCH, "P": 512}


@pytest.mark.parametrize("method", ALL)
def test_bytes_follow_the_formula_and_do_not_depend_on_the_number_of_samples(uninterrupted, folder, tmp_path, method):
    """The additional rounds of a longer run with fewer samples cost what the formula says, to the byte."""
    short = uninterrupted(method)
    keys = settings(folder, method, train__rounds=MORE_ROUNDS, data__samples=FEWER_SAMPLES, adapt__steps=1)
    long = fedrf.run(None, keys, out=tmp_path / "run", local=True)

    def total(result):
        kinds = result.summary["communication"]["bytes_by_kind"]
        return sum(number for kind, number in kinds.items() if kind not in NOT_COUNTED)

    expected = eval(METHODS.find(method).bytes_per_round, {}, sizes(short))
    assert (total(long) - total(short)) / (MORE_ROUNDS - ROUNDS) == pytest.approx(expected, rel=1e-12)


def test_what_is_sent_once_follows_the_formula_and_does_not_depend_on_the_number_of_samples(folder, tmp_path):
    rank, kinds = 8, ("class_statistics", "class_map", "mean_embedding")
    for samples in (None, FEWER_SAMPLES):
        keys = settings(folder, "fedrf-oneshot", train__rounds=0, align__rank=rank, data__samples=samples)
        run = fedrf.run(None, keys, out=tmp_path / f"{samples}", local=True)
        letters = {"K": len(SOURCES), "S": 2 * NUM_FEATURES, "L": CLASSES, "R": rank}
        sent = run.summary["communication"]["bytes_by_kind"]
        assert sum(sent[kind] for kind in kinds) == eval(METHODS.find("fedrf-oneshot").bytes_once, {}, letters)
        assert {kind for kind, number in sent.items() if number} - set(NOT_COUNTED) == set(kinds)


# The coordinator takes the step of fedrf-plus, so that its target trains nothing in the rounds.
@pytest.mark.parametrize(
    "method", [name for name in ALL if METHODS.find(name).target_trains and name not in ("fedrf-plus", "fedrf-oneshot")]
)
def test_a_target_that_trains_takes_plain_steps_and_sends_the_parts_it_trains(uninterrupted, method):
    """In fedrf-tca, W, C and G are averaged every round."""
    definition, run = METHODS.find(method), uninterrupted(method)
    assert definition.target_steps == {"aligner": 100, "extractor": 100, "classifier": 10}
    averages = 20 if method == "fedrf-tca" else 4
    for part, letter in (("aligner", "W"), ("extractor", "G"), ("classifier", "C")):
        senders = len(SOURCES) + (part in definition.target_trains)
        sent = run.summary["communication"]["by_direction"]["up"].get(part, 0)
        assert sent == 4 * averages * senders * sizes(run)[letter], part


@pytest.mark.parametrize("method", [name for name in ALL if not METHODS.find(name).asynchronous])
def test_a_synchronous_method_is_refused_in_async_mode(folder, method):
    with pytest.raises(ValueError, match=f"method={method} needs sync"):
        load_config(None, settings(folder, method, federation__mode="async"))


@pytest.mark.parametrize("method", [name for name in BY_KIND if METHODS.find(name).asynchronous])
def test_an_asynchronous_run_with_lost_messages(folder, tmp_path, method):
    keys = settings(folder, method, federation__mode="async", federation__drop=0.3, train__rounds=10)
    result = fedrf.run(None, keys, out=tmp_path / "run", local=True)
    assert result.finished
    assert result.summary["communication"]["refused"] == {}


@pytest.mark.parametrize("method", BY_KIND)
def test_one_source_is_enough(folder, tmp_path, method):
    result = fedrf.run(None, settings(folder, method, data__sources=["a"]), out=tmp_path / "run", local=True)
    assert result.target_accuracy > 2 / CLASSES


# FedProx, too: its checkpoints have one more entry, the average that its penalty refers to.
@pytest.mark.parametrize("method", [*BY_KIND, "fedprox"])
def test_a_resumed_run_ends_with_the_same_bits(uninterrupted, folder, tmp_path, monkeypatch, method):
    monkeypatch.setattr("fedrf.experiment.driver.POLL_SECONDS", 0.02)
    keys = settings(folder, method, federation__delays={"t": 0.04}, federation__checkpoint_seconds=0)
    half = fedrf.run(
        None, keys, out=tmp_path / "run", local=True, observe=lambda rows: any(row["round"] > 6 for row in rows)
    )
    assert not half.finished
    resumed = fedrf.run(resume=half.folder, local=True)
    assert resumed.finished
    assert final_weights(resumed) == final_weights(uninterrupted(method))


@pytest.mark.parametrize("method", [name for name in BY_KIND if METHODS.find(name).pooling == "none"])
def test_rounds_go_on_without_a_client_that_is_late(folder, tmp_path, method):
    """One source is half a second late in every round, and the others wait 0.2 seconds at most."""
    keys = settings(
        folder, method, train__rounds=6, federation__delays={"b": 0.5}, federation__deadline=0.2, adapt__steps=2
    )
    result = fedrf.run(None, keys, out=tmp_path / "run", local=True)
    assert result.finished
    assert any("b left in round" in failure for failure in result.summary["failures"])
    for path in result.folder.glob("checkpoints/*/final.safetensors"):
        assert all(np.isfinite(value).all() for value in load_file(path).values())


@pytest.mark.ray
@pytest.mark.parametrize("method", BY_KIND)
def test_actors_and_threads_give_the_same_bits(ray_session, uninterrupted, folder, tmp_path, method):
    result = fedrf.run(None, settings(folder, method), out=tmp_path / "run", session=ray_session)
    assert final_weights(result) == final_weights(uninterrupted(method))
    assert result.summary["communication"] == uninterrupted(method).summary["communication"]
