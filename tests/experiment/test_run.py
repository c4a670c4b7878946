"""Run directories: their files, their summary, and runs that are repeated or continued."""

import json
import socket
import warnings

import pytest
import torch
import yaml

import fedrf
from fedrf.config.loader import load_config
from fedrf.errors import RunFailedError
from fedrf.experiment.report import write_report
from fedrf.experiment.results import RunFolder
from fedrf.experiment.summary import determinism, summarise
from fedrf.federation.checkpoints import ClientFiles
from fedrf.federation.status import Status
from fedrf.models.arithmetic import arithmetic
from fedrf.protocol.place import Place
from tests.conftest import SYNC, TINY, final_weights


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return fedrf.run("digits", SYNC, out=tmp_path_factory.mktemp("finished") / "run", seed=3, local=True)


def test_a_run_directory_has_the_documented_files_and_summary(finished):
    names = {path.name for path in finished.folder.iterdir()}
    assert {"config.yaml", "metrics.jsonl", "summary.json", "checkpoints", "report.html"} <= names
    summary = json.loads((finished.folder / "summary.json").read_text())
    assert summary == finished.summary
    assert summary.keys() >= {"method", "dataset", "sources", "target", "seed", "rounds", "config_hash", "failures"}
    assert summary["target_accuracy"].keys() == {"final", "selected", "oracle"}
    assert summary["communication"].keys() >= {"bytes_total", "bytes_per_round", "bytes_by_kind"}
    assert summary["communication"]["bytes_by_kind"].keys() >= {"mean_embedding", "aligner", "classifier", "extractor"}
    assert summary["seconds"].keys() == {"total", "per_round"}
    assert 0 < summary["seconds"]["per_round"] * 6 < summary["seconds"]["total"]  # without start and last stage
    assert summary["placement"].keys() == {"rendered", "textured", "street", "handwritten"}
    place = summary["placement"]["street"]
    assert (place["node"], place["device"].partition(":")[0]) == (socket.gethostname(), "cpu")
    assert summary["determinism"] == "same seed, same bits"
    page = (finished.folder / "report.html").read_text()
    assert "Who ran where" in page
    assert page.count(socket.gethostname()) >= 4
    assert (summary["seed"], summary["rounds"], summary["status"]) == (3, 6, "finished")
    assert yaml.safe_load((finished.folder / "config.yaml").read_text())["seed"] == 3


@pytest.mark.parametrize(
    ("keys", "devices", "promise"),
    [
        ({"federation.mode": "sync"}, ["cpu"], "same seed, same bits"),
        ({"federation.mode": "sync"}, ["cpu", "cuda:0"], "same bits on the same GPU models and versions"),
        ({"federation.mode": "sync"}, ["mps:0"], "not deterministic"),
        ({"federation.mode": "sync", "federation.private_batches": True}, ["cpu"], "not deterministic"),
        ({}, ["cpu"], "not deterministic"),
        ({}, [], None),
    ],
)
def test_the_summary_promises_no_more_than_holds(keys, devices, promise):
    config, places = load_config(None, {"method": "fedrf-plus", **keys}), places_of(devices)
    assert determinism(config, Status(places=places, notes=["street: too few samples"])) == promise


def test_a_run_with_an_operation_that_is_not_deterministic_promises_nothing(recwarn):
    config, notes = load_config(None, {"method": "fedrf-plus", "federation.mode": "sync"}), []
    with arithmetic(config, torch.device("cuda", 0), notes.append):
        warnings.warn("pool_backward does not have a deterministic implementation, but you set it", stacklevel=1)
    promise = determinism(config, Status(places=places_of(["cuda:0"]), notes=notes))
    assert promise.startswith("not deterministic: the notes name operations")


def places_of(devices):
    return {f"client {number}": Place("node", device, "model", 1) for number, device in enumerate(devices)}


def test_every_round_of_every_client_has_a_line(finished):
    rows = RunFolder(finished.folder).rows()
    for client in ("rendered", "textured", "street"):
        assert [row["round"] for row in rows if row["client"] == client and "loss" in row] == [1, 2, 3, 4, 5, 6]
    steps = [row["step"] for row in rows if row["client"] == "handwritten" and "step" in row]
    assert steps == [2, 4]


def test_final_selected_and_oracle(finished):
    rows = [row for row in RunFolder(finished.folder).rows() if row["client"] == "handwritten" and "accuracy" in row]
    accuracy = finished.summary["target_accuracy"]
    assert accuracy["final"] == rows[-1]["accuracy"]
    assert accuracy["oracle"] == max(row["accuracy"] for row in rows)
    assert accuracy["selected"] == max(rows, key=lambda row: row["information"])["accuracy"]


def test_bytes_add_up(finished):
    traffic = finished.summary["communication"]
    assert traffic["bytes_total"] == sum(traffic["bytes_by_kind"].values())
    assert traffic["bytes_total"] == sum(sum(kinds.values()) for kinds in traffic["by_direction"].values())
    assert traffic["bytes_per_round"] == traffic["bytes_total"] / 6


def test_the_same_seed_gives_the_same_bits_and_another_does_not(finished, tmp_path):
    again = fedrf.run(None, {**SYNC, "seed": 3}, out=tmp_path / "again", local=True)
    other = fedrf.run(None, {**SYNC, "seed": 4}, out=tmp_path / "other", local=True)
    assert final_weights(again) == final_weights(finished)
    assert final_weights(other) != final_weights(finished)


def test_a_finished_run_is_not_run_again(finished):
    before = (finished.folder / "summary.json").stat().st_mtime_ns
    again = fedrf.run(resume=finished.folder, local=True)
    assert again.summary == finished.summary
    assert (finished.folder / "summary.json").stat().st_mtime_ns == before


def test_two_checkpoint_versions_are_kept_and_the_one_that_is_being_saved(finished):
    assert len(list(finished.folder.glob("checkpoints/coordinator/*.safetensors"))) == 2
    for name in ("rendered", "textured", "street", "handwritten"):
        assert len(list(ClientFiles(finished.folder, name).folder.glob("0*.safetensors"))) in (2, 3)


def test_a_directory_with_a_run_is_not_overwritten(finished):
    with pytest.raises(ValueError, match="already holds a run; continue it with --resume"):
        fedrf.run(None, TINY, out=finished.folder, local=True)


def test_only_a_run_directory_can_be_resumed(tmp_path):
    with pytest.raises(ValueError, match=r"is not a run directory: it has no config\.yaml"):
        fedrf.run(resume=tmp_path, local=True)


def test_a_run_without_a_checkpoint_resumes_from_the_beginning(tmp_path, finished):
    (tmp_path / "config.yaml").write_text((finished.folder / "config.yaml").read_text())
    assert final_weights(fedrf.run(resume=tmp_path, local=True)) == final_weights(finished)


def test_a_failure_in_a_client_ends_the_run_and_is_recorded(tmp_path):
    with pytest.raises(RunFailedError, match="failed: ValueError: extractor 'identity' needs samples"):
        fedrf.run(None, {**TINY, "model.extractor": "identity"}, out=tmp_path / "run", local=True)
    assert RunFolder(tmp_path / "run").read_summary()["status"] == "failed"
    assert fedrf.run(None, TINY, out=tmp_path / "run", local=True).finished  # the directory held no results


def test_the_summary_of_a_run_without_results():
    summary = summarise(load_config(), ("street",), "failed", Status(), [], ["lost"])
    assert summary["target_accuracy"] == {"final": None, "selected": None, "oracle": None}
    assert summary["failures"] == ["lost"]


def test_a_page_that_cannot_be_written_is_a_warning_and_the_run_is_finished(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("no such font\nin the second line")

    monkeypatch.setattr("fedrf.experiment.report._curves", fail)
    with pytest.warns(
        UserWarning, match=r"^report\.html was not written \(RuntimeError: no such font\); try again"
    ) as w:
        result = fedrf.run(None, TINY, out=tmp_path / "run", local=True)
    assert [str(warning.message).count("\n") for warning in w if "report.html" in str(warning.message)] == [0]
    assert result.finished
    assert RunFolder(tmp_path / "run").read_summary() == result.summary
    assert not (tmp_path / "run/report.html").exists()


@pytest.fixture
def old_run(finished, tmp_path):
    """A run directory of an earlier version of fedrf, whose configuration has keys that do not exist any more."""
    for name in ("config.yaml", "metrics.jsonl", "summary.json"):
        (tmp_path / name).write_text((finished.folder / name).read_text())
    content = yaml.safe_load((tmp_path / "config.yaml").read_text())
    for key in ("embeddings_from", "aligners_from", "classifiers_from"):
        del content["federation"][key]
    content["federation"]["messages"] = "same/same/same"
    content["data"]["pooled"] = "none"
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    return tmp_path


def test_a_run_of_an_earlier_version_can_be_read_and_reported(old_run, finished, drawn_curves):
    folder = RunFolder.open(old_run)
    assert folder.read_summary() == finished.summary
    assert folder.plain_config()["federation"]["messages"] == "same/same/same"
    write_report([old_run], old_run / "report.html")
    page = (old_run / "report.html").read_text()
    assert "fedrf-plus" in page
    assert page.count("<svg") == 1


def test_a_run_of_an_earlier_version_cannot_be_continued(old_run):
    with pytest.raises(
        ValueError, match=r"^/.* was written by an earlier version of fedrf \(federation\.messages is"
    ) as e:
        fedrf.run(resume=old_run, local=True)
    assert str(e.value).endswith("whose checkpoints cannot be continued; start a new run")
