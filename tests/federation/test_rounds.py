"""Whole federations in threads: modes, rules, messages, sharing and adaptation."""

import pytest
import torch
from safetensors.torch import load_file

import fedrf
from fedrf.config.loader import load_config
from fedrf.experiment.results import RunFolder
from fedrf.models.parts import get_part
from tests.conftest import TINY, final_weights
from tests.federation.recording import FIXED_SIGMA, SYNC, exchanges, new_client, run_recorded


def weights_of(result, client):
    return load_file(result.folder / "checkpoints" / client / "final.safetensors")


def test_async_a_slow_client_does_not_delay_the_others(tmp_path):
    settings = {**TINY, "train.rounds": 30, "federation.delays": {"street": 0.5}, "federation.checkpoint_seconds": 1e9}
    result, _ = run_recorded(settings, tmp_path / "run")
    rounds = {}
    for row in RunFolder(result.folder).rows():
        if "loss" in row or "mmd" in row:
            rounds[row["client"]] = max(row["round"], rounds.get(row["client"], 0))
    assert rounds["handwritten"] == 30
    assert max(rounds["rendered"], rounds["textured"]) == 30
    assert rounds["street"] < 20
    assert max(int(age) for age in result.summary["communication"]["staleness"]) > 1


@pytest.mark.parametrize(
    ("mode", "rule"),
    [
        *(("sync", rule) for rule in ("mean", "median", "trimmed", "krum", "geometric-median", "weighted", "fedma")),
        *(("async", rule) for rule in ("mean", "weighted", "fedma", "fedasync", "fedbuff")),
    ],
)
def test_every_rule_trains(tmp_path, mode, rule):
    size = {"model.num_features": 100, "model.dim": 32, "train.batch_size": 32, "train.lr": 0.02, "train.rounds": 30}
    size["model.sharing"] = "frozen"
    settings = {**TINY, **size, "adapt.when": "never", "federation.mode": mode, "federation.aggregation": rule}
    settings["model.classifier"] = "mlp" if rule == "fedma" else "linear"
    result, _ = run_recorded({**settings, "track.evaluate_every": 30}, tmp_path / "run")
    assert result.target_accuracy > 0.3  # chance is 0.1
    assert bool(result.summary["communication"]["staleness"]) == (mode == "async")


def test_matched_averaging_of_whole_networks_trains_and_repeats_its_bits(tmp_path):
    settings = {
        "method": "fedavg",
        "model.classifier": "mlp",
        "federation.aggregation": "fedma",
        "federation.mode": "sync",
        "data.target": "street",
        "train.rounds": 60,
    }
    first, again = (fedrf.run(None, settings, out=tmp_path / name, local=True) for name in ("first", "again"))
    assert first.target_accuracy > 0.5  # chance is 0.1
    assert final_weights(first) == final_weights(again)


@pytest.mark.parametrize(
    ("message", "sharing", "mode"),
    [
        ("batch", "local", "sync"),
        ("batch", "averaged", "async"),
        ("running", "averaged", "sync"),
        ("running", "frozen", "async"),
        ("exact", "frozen", "sync"),
        ("exact", "local", "async"),
        ("exact", "averaged", "sync"),
    ],
)
def test_messages_and_sharing(tmp_path, message, sharing, mode):
    """Every pair of a message, a sharing and a mode occurs."""
    settings = {
        **SYNC,
        "federation.mode": mode,
        "align.step": "gradient",
        "align.message": message,
        "model.sharing": sharing,
        "model.extractor_interval": 2,
    }
    result, calls = run_recorded(settings, tmp_path / "run")
    kinds = result.summary["communication"]["bytes_by_kind"]
    assert (kinds["extractor"] > 0) == (sharing == "averaged")
    phases = {envelope.phase for envelope, _ in exchanges(calls)}
    assert ("commit" in phases) == (sharing == "averaged")


def test_averaged_networks_are_equal_after_the_last_round(tmp_path):
    result, _ = run_recorded({**SYNC, "method": "fedavg", "train.rounds": 4}, tmp_path / "run")
    first, *others = (load_file(path) for path in sorted(result.folder.glob("checkpoints/*/final.safetensors")))
    assert len(others) == 3
    for other in others:
        for key, value in first.items():
            torch.testing.assert_close(other[key], value, rtol=0, atol=0)


def test_adaptation_improves_on_source_only(tmp_path):
    """On the whole digits, in the default asynchronous mode."""
    settings = {"data.target": "street", "train.rounds": 60}
    plus = fedrf.run(None, settings, out=tmp_path / "plus", local=True)
    alone = fedrf.run(None, {**settings, "method": "source-only"}, out=tmp_path / "alone", local=True)
    assert plus.target_accuracy > alone.target_accuracy + 0.05


@pytest.mark.parametrize(("sharing", "pseudo_labels"), [("frozen", 0.3), ("local", 0), ("local", 0.3)])
def test_joint_adaptation_trains_the_target_within_the_rounds(tmp_path, sharing, pseudo_labels):
    settings = {**SYNC, "adapt.when": "joint", "adapt.pseudo_labels": pseudo_labels, "model.sharing": sharing}
    result, _ = run_recorded(settings, tmp_path / "run")
    rows = [row for row in RunFolder(result.folder).rows() if row["client"] == "handwritten" and "adaptation" in row]
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert all(row["loss"] == row["adaptation"] for row in rows)
    after_rounds_5_and_6 = 2 * 4 * 4 * 60 * 8
    assert result.summary["communication"]["by_direction"]["up"]["aligner"] == after_rounds_5_and_6
    assert bool(weights_of(result, "handwritten")["adapter.outer.weight"].any()) == (sharing == "local")


def test_pseudo_labels_change_the_target_alone(tmp_path):
    with_labels, _ = run_recorded({**SYNC, "adapt.pseudo_labels": 1.0, "adapt.renew": 2}, tmp_path / "with")
    without, _ = run_recorded({**SYNC, "adapt.pseudo_labels": 0.0}, tmp_path / "without")
    one, other = final_weights(with_labels), final_weights(without)
    assert {name for name in one if one[name] != other[name]} == {"handwritten"}


def test_a_target_that_never_got_a_classifier_says_so(tmp_path):
    buffered = {"federation.buffer": 1000, "federation.aggregation": "fedbuff"}
    result, _ = run_recorded({**TINY, **buffered}, tmp_path / "run")
    assert any("never received a classifier" in failure for failure in result.summary["failures"])


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_last_classifier_reaches_the_target_however_many_messages_are_lost(tmp_path, mode):
    """T_C does not divide T: there is one C of each source, and W and G after the last round."""
    settings = {**TINY, "federation.mode": mode, "federation.drop": 0.999, "federation.classifier_interval": 4}
    result, calls = run_recorded({**settings, "adapt.when": "never"}, tmp_path / "run")
    assert result.summary["failures"] == []
    sent = [message for envelope, _ in exchanges(calls) for message in envelope.messages if message.kind != "metrics"]
    assert {(message.kind, message.round) for message in sent} == {
        ("classifier", 5),
        ("aligner", 7),
        ("extractor", 7),
    }
    weights = weights_of(result, "handwritten")["classifier.weight"].ravel()
    classifiers = [torch.tensor(message.values)[:80] for message in sent if message.kind == "classifier"]
    if mode == "sync":
        assert len(sent) == 9
        torch.testing.assert_close(weights, torch.stack(classifiers).mean(0))
    initial = get_part(new_client(load_config(None, FIXED_SIGMA), "street", tmp_path).module, "classifier")
    assert not torch.equal(weights, initial[:80])


def test_lost_messages_leave_the_same_bits(tmp_path):
    lossy = {**SYNC, "federation.drop": 0.4, "federation.participants": "random"}
    first, again = (fedrf.run(None, lossy, out=tmp_path / name, local=True) for name in ("first", "again"))
    assert final_weights(first) == final_weights(again)
    assert first.finished


def test_async_target_receives_a_classifier_that_is_sent_once(tmp_path):
    settings = {**TINY, "federation.classifier_interval": TINY["train.rounds"], "adapt.when": "never"}
    result, _ = run_recorded(settings, tmp_path / "run")
    assert result.summary["communication"]["by_direction"]["down"]["classifier"] > 0
    assert result.summary["failures"] == []
    initial = new_client(load_config(None, FIXED_SIGMA), "street", tmp_path).module.state_dict()["classifier.weight"]
    own = weights_of(result, "handwritten")["classifier.weight"]
    assert own.shape == initial.shape
    assert not torch.equal(own, initial)
