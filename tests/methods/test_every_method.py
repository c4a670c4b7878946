"""Every method of the registry on three tiny domains: learns, resumes, sends what it says, does without a client."""

import re
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest
from safetensors.numpy import load_file

import fedrf
from fedrf import methods
from fedrf.config.loader import load_config
from fedrf.config.presets import PRESETS, TARGET_TRAINS
from fedrf.methods import METHODS
from tests.conftest import final_weights

DIM, CLASSES, COLUMNS, BATCH, NUM_FEATURES, SOURCES = 8, 4, 10, 16, 20, ("a", "b")
ROUNDS, LONGER = 30, 40
ALONE = ("pooled", "pooled-dann", "pooled-cdan", "target-oracle")
# Not in a round, or not of the method: σ and sizes at first, figures for people, samples that were moved.
BESIDES = ("greeting", "metrics", "samples")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four classes around four centres; sources and target are turned and moved a little against each other."""
    root, random = tmp_path_factory.mktemp("domains"), np.random.RandomState(0)
    centres = 2.5 * random.randn(CLASSES, COLUMNS)
    for name, count in (("a", 120), ("b", 90), ("t", 110)):
        labels = np.arange(count) % CLASSES
        turn = np.linalg.qr(np.eye(COLUMNS) + 0.1 * random.randn(COLUMNS, COLUMNS))[0]
        rows = (centres[labels] + random.randn(count, COLUMNS)) @ (turn * np.sign(np.diag(turn))) + 0.3
        np.savez(root / f"{name}.npz", features=rows, labels=labels)
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
        "adapt.steps": 10,
        "adapt.batch_size": 32,
        "track.evaluate_every": 10,
        "federation.mode": "sync",
        "federation.checkpoint_seconds": 0,
        **{key.replace("__", "."): value for key, value in more.items()},
    }


@pytest.fixture(scope="module")
def undisturbed(folder, tmp_path_factory):
    runs = {}

    def run(method):
        if method not in runs:
            runs[method] = fedrf.run(
                None, settings(folder, method), out=tmp_path_factory.mktemp(method) / "run", local=True
            )
        return runs[method]

    return run


def test_the_registry_has_every_preset_and_every_file_says_what_it_sends():
    for one in iter_modules(methods.__path__):
        module = import_module(f"fedrf.methods.{one.name}")
        if hasattr(module, "METHODS"):
            assert formula(module), f"{one.name} has no formula"
            assert re.search(r"Asynchronous:\s(yes|no|there)", module.__doc__), one.name


@pytest.mark.parametrize("method", PRESETS)
def test_it_learns_above_chance(undisturbed, method):
    result = undisturbed(method)
    assert result.finished
    assert result.summary["failures"] == []
    assert result.target_accuracy > 2 / CLASSES


@pytest.mark.parametrize("method", PRESETS)
def test_one_source_is_enough(folder, tmp_path, method):
    result = fedrf.run(None, settings(folder, method, data__sources=["a"]), out=tmp_path / "run", local=True)
    assert result.target_accuracy > 2 / CLASSES


@pytest.mark.parametrize("method", PRESETS)
def test_a_resumed_run_ends_with_the_same_bits(undisturbed, folder, tmp_path, method):
    slow = settings(folder, method, federation__delays={"t": 0.03})
    half = fedrf.run(
        None, slow, out=tmp_path / "run", local=True, observe=lambda rows: any(row["round"] > 6 for row in rows)
    )
    assert not half.finished
    resumed = fedrf.run(resume=half.folder, local=True)
    assert resumed.finished
    assert final_weights(resumed) == final_weights(undisturbed(method))


def formula(module):
    found = re.search(r"Bytes a\s+round[^`]*``([^`]+)``", module.__doc__)
    return found and found[1]


def sizes(result):
    """The letters of the formulas, counted in what a run left behind."""
    weights = load_file(next(result.folder.glob("checkpoints/*/final.safetensors")))
    count = {
        letter: sum(one.size for name, one in weights.items() if name.split(".")[0] == part)
        for letter, part in (("G", "adapter"), ("W", "aligner"), ("C", "classifier"), ("D", "companion"))
    }
    federation = result.config.federation
    intervals = {"A": federation.aligner_interval, "T": federation.classifier_interval}
    return {**count, **intervals, "K": len(SOURCES), "S": 2 * NUM_FEATURES, "m": DIM, "B": BATCH, "P": 512}


@pytest.mark.parametrize("method", PRESETS)
def test_what_is_sent_follows_the_formula_and_not_the_number_of_samples(undisturbed, folder, tmp_path, method):
    """Ten rounds more, with fewer samples: what they cost is what the docstring says, to the byte."""
    short = undisturbed(method)
    long = fedrf.run(
        None, settings(folder, method, train__rounds=LONGER, data__samples=60), out=tmp_path / "run", local=True
    )

    def total(result):
        kinds = result.summary["communication"]["bytes_by_kind"]
        return sum(number for kind, number in kinds.items() if kind not in BESIDES)

    expected = eval(formula(_module_of(method)), {}, sizes(short))
    if method == "fedrf-tca":
        expected += 4 * sizes(short)["W"] / sizes(short)["A"]  # as its file says
    assert (total(long) - total(short)) / (LONGER - ROUNDS) == pytest.approx(expected, rel=1e-12)


def _module_of(method):
    modules = (import_module(f"fedrf.methods.{one.name}") for one in iter_modules(methods.__path__))
    return next(one for one in modules if METHODS[method] in getattr(one, "METHODS", ()))


@pytest.mark.parametrize("method", [name for name in PRESETS if name not in ALONE])
def test_it_goes_on_without_a_client_that_does_not_answer(folder, tmp_path, method):
    """In every round one source comes a second late, and nobody waits longer than a fifth of that."""
    late = settings(
        folder, method, train__rounds=6, federation__delays={"b": 1.0}, federation__deadline=0.2, adapt__steps=2
    )
    result = fedrf.run(None, late, out=tmp_path / "run", local=True)
    assert result.finished
    assert any("b left in round" in one for one in result.summary["failures"])
    for path in result.folder.glob("checkpoints/*/final.safetensors"):
        assert all(np.isfinite(one).all() for one in load_file(path).values())


@pytest.mark.parametrize("method", PRESETS)
def test_asynchronous_or_a_clear_refusal(folder, tmp_path, method):
    """Files that say `Asynchronous: no` are refused; all others run, with messages that are lost, too."""
    wanted = settings(folder, method, federation__mode="async", federation__drop=0.3, train__rounds=10)
    if re.search(r"Asynchronous:\sno", _module_of(method).__doc__):
        with pytest.raises(ValueError, match=f"method={method} needs sync"):
            load_config(None, wanted)
        return
    result = fedrf.run(None, wanted, out=tmp_path / "run", local=True)
    assert result.finished
    assert result.summary["communication"]["refused"] == {}


@pytest.mark.ray
@pytest.mark.parametrize("method", PRESETS)
def test_actors_and_threads_give_the_same_bits(ray_session, undisturbed, folder, tmp_path, method):
    result = fedrf.run(None, settings(folder, method), out=tmp_path / "run", session=ray_session)
    assert final_weights(result) == final_weights(undisturbed(method))
    assert result.summary["communication"] == undisturbed(method).summary["communication"]


@pytest.mark.parametrize("method", TARGET_TRAINS)
def test_a_target_that_trains_moves_what_it_says(undisturbed, method):
    run = undisturbed(method)
    up, averages = run.summary["communication"]["by_direction"]["up"], ROUNDS // 5
    for kind, letter in (("aligner", "W"), ("extractor", "G"), ("classifier", "C")):
        senders = len(SOURCES) + (kind in TARGET_TRAINS[method])
        assert up[kind] == 4 * averages * senders * sizes(run)[letter], kind
