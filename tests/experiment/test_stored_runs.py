"""Runs whose checkpoints, weights and predictions are in `track.storage`, continued on another machine."""

import json
import shutil
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

import fedrf
from fedrf.config.loader import load_config
from fedrf.errors import RunFailedError
from fedrf.experiment import stored_copy
from fedrf.experiment.resolve import resolve_config
from fedrf.experiment.results import RunFolder
from fedrf.federation.checkpoints import files_root
from fedrf.federation.coordinator import Coordinator
from fedrf.store import folder_at, write_whole
from tests.cli.calls import call
from tests.conftest import SYNC, final_weights
from tests.data.layouts import write_office31_decaf6


@pytest.fixture
def store():
    """An object store in the memory of this process; all clients run in threads."""
    yield "memory://bucket/runs"
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    result = fedrf.run(None, SYNC, out=tmp_path_factory.mktemp("expected") / "run", local=True)
    return final_weights(result), (result.folder / "predictions.csv").read_bytes(), rows(result.folder)


def rows(folder):
    """The figures that do not depend on time."""
    timings = ("seconds", "waited")
    return [{key: row[key] for key in row if key not in timings} for row in RunFolder(folder).rows()]


def distinct(folder):
    """The figures of a run, in any order."""
    return sorted(rows(folder), key=json.dumps)


def stored():
    """What is in the store, by name below the run."""
    return {name.partition("/run/")[2]: file.getvalue() for name, file in MemoryFileSystem.store.items()}


def weights_of(files):
    return {name.split("/")[1]: content for name, content in files.items() if name.endswith("final.safetensors")}


def test_large_files_are_only_in_the_store_and_small_ones_in_both(tmp_path, store, expected):
    result = fedrf.run(None, {**SYNC, "track.storage": store}, out=tmp_path / "run", local=True)
    files = stored()
    assert weights_of(files) == expected[0]
    assert not list(result.folder.glob("checkpoints/**/*"))
    for name in ("config.yaml", "metrics.jsonl", "summary.json", "report.html", "predictions.csv"):
        assert files[name] == (result.folder / name).read_bytes()
    assert files["predictions.csv"] == expected[1]
    assert "driver.json" not in files


def fail_after(monkeypatch, calls_until):
    answer, calls = Coordinator.saved, []

    async def failing(self, sender, version):
        calls.append(sender)
        if len(calls) == calls_until:
            raise OSError("stopped by the test")
        return await answer(self, sender, version)

    monkeypatch.setattr(Coordinator, "saved", failing)


@pytest.mark.parametrize("calls", [6, 14, 24])
def test_a_run_is_continued_on_another_machine_with_the_same_bits(tmp_path, monkeypatch, store, expected, calls):
    monkeypatch.setattr(stored_copy, "UPDATE_SECONDS", 0)
    with monkeypatch.context() as patch:
        fail_after(patch, calls)
        with pytest.raises(RunFailedError, match="stopped by the test"):
            fedrf.run(None, {**SYNC, "track.storage": store}, out=tmp_path / "here/run", local=True)
    shutil.rmtree(tmp_path / "here")
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    result = fedrf.run(resume=f"{store}/run", local=True)
    assert result.folder == tmp_path / "there/runs/run"
    assert weights_of(stored()) == expected[0]
    assert sorted(rows(result.folder), key=json.dumps) == sorted(expected[2], key=json.dumps)


def test_figures_that_are_not_yet_in_the_store_are_kept_by_the_coordinator(tmp_path, monkeypatch, store, expected):
    """The driver's machine is gone: its copy is that of some rounds ago, or of the beginning."""
    monkeypatch.setattr(stored_copy, "UPDATE_SECONDS", 1e9)
    with monkeypatch.context() as patch:
        fail_after(patch, 14)
        with pytest.raises(RunFailedError):
            fedrf.run(None, {**SYNC, "track.storage": store}, out=tmp_path / "here/run", local=True)
    shutil.rmtree(tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    result = fedrf.run(resume=f"{store}/run", local=True)
    assert sorted(rows(result.folder), key=json.dumps) == sorted(expected[2], key=json.dumps)


def test_two_drivers_on_different_machines_cannot_use_one_run(tmp_path, monkeypatch, store):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stored_copy, "UPDATE_SECONDS", 0)
    settings = {**SYNC, "track.storage": store}

    def take_over(_):
        monkeypatch.setattr(stored_copy.socket, "gethostname", lambda: "another")
        content = {"token": "of another", "host": "elsewhere", "time": 1e12}
        write_whole(folder_at(f"{store}/run/driver.json"), json.dumps(content).encode())
        return False

    with pytest.raises(RunFailedError, match="is used by a driver on elsewhere"):
        fedrf.run(None, settings, out=tmp_path / "run", local=True, observe=take_over)
    with pytest.raises(ValueError, match="is in use by a driver on elsewhere"):
        fedrf.run(resume=f"{store}/run", local=True)


def test_a_store_on_a_disk_needs_no_package(tmp_path, expected):
    settings = {**SYNC, "track.storage": f"file://{tmp_path}/store"}
    fedrf.run(None, settings, out=tmp_path / "run", local=True)
    files = (tmp_path / "store/run").glob("checkpoints/*/final.safetensors")
    assert {path.parent.name: path.read_bytes() for path in files} == expected[0]


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("runs", "track.storage='runs': must be a URL such as s3://bucket/runs"),
        ("nosuch://bucket", "track.storage=nosuch://bucket: cannot be used"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_line(tmp_path, capsys, monkeypatch, url, complaint):
    monkeypatch.chdir(tmp_path)
    code, _, err = call(["run", f"track.storage={url}", "--local"], monkeypatch, capsys)
    assert (code, len(err.strip().splitlines())) == (2, 1)
    assert complaint in err
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_taken_in_the_store_is_refused(tmp_path, store):
    settings = {**SYNC, "train.rounds": 2, "track.storage": store}
    fedrf.run(None, settings, out=tmp_path / "one/run", local=True)
    with pytest.raises(ValueError, match=r"already holds a run; continue it with --resume memory://"):
        fedrf.run(None, settings, out=tmp_path / "two/run", local=True)
    assert not (tmp_path / "two").exists()


def test_nothing_to_resume_is_one_line(tmp_path, store, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="holds no run"):
        fedrf.run(resume=f"{store}/nothing", local=True)


class Outage:
    """Lets calls to the memory of the store fail: all of them, or a number of them."""

    def __init__(self, monkeypatch, failures):
        self.left, self.failed = failures, 0
        for name in ("exists", "_open", "_rm_file" if hasattr(MemoryFileSystem, "_rm_file") else "_rm", "ls"):
            if hasattr(MemoryFileSystem, name):
                monkeypatch.setattr(MemoryFileSystem, name, self.failing(getattr(MemoryFileSystem, name)))

    def failing(self, operation):
        def call(*arguments, **keys):
            if self.left:
                self.left -= 1
                self.failed += 1
                raise RuntimeError("the store does not answer")  # packages of stores have their own errors
            return operation(*arguments, **keys)

        return call


def test_a_store_that_fails_for_a_moment_changes_nothing(tmp_path, monkeypatch, store, expected):
    monkeypatch.setattr("fedrf.store.PAUSES", (0.0,) * 5)
    outages = []

    def fail(rows):
        if len(outages) < 3:
            outages.append(Outage(monkeypatch, failures=2))
        return False

    result = fedrf.run(None, {**SYNC, "track.storage": store}, out=tmp_path / "run", local=True, observe=fail)
    assert sum(outage.failed for outage in outages) > 0
    assert weights_of(stored()) == expected[0]
    assert stored()["predictions.csv"] == expected[1]
    assert result.summary["failures"] == []


def test_a_store_that_fails_when_a_run_starts_is_asked_again(tmp_path, monkeypatch, store, expected):
    monkeypatch.setattr("fedrf.store.PAUSES", (0.0,) * 5)
    outage = Outage(monkeypatch, failures=2)
    make = Coordinator.__init__

    def fail(*arguments):
        outage.left = 2  # while the coordinator and the clients start
        make(*arguments)

    monkeypatch.setattr(Coordinator, "__init__", fail)
    fedrf.run(None, {**SYNC, "track.storage": store}, out=tmp_path / "run", local=True)
    assert outage.failed == 4
    assert weights_of(stored()) == expected[0]


def test_the_folder_of_a_run_is_named_without_a_call_to_the_store(monkeypatch, store):
    monkeypatch.setattr("fedrf.store.PAUSES", ())
    outage = Outage(monkeypatch, failures=-1)
    assert str(files_root(Path("runs/run"), store)).endswith("bucket/runs/run")
    assert outage.failed == 0
    with pytest.raises(
        ValueError, match=r"track\.storage=.*: cannot be used \(RuntimeError: the store does not answer"
    ):
        resolve_config(None, {**SYNC, "track.storage": store})


def test_a_copy_that_fails_is_noted_and_made_later(tmp_path, monkeypatch, store, expected):
    monkeypatch.setattr(stored_copy, "UPDATE_SECONDS", 0)
    monkeypatch.setattr("fedrf.experiment.driver.POLL_SECONDS", 0.01)
    write, failed = stored_copy.write_whole, []

    def failing(path, content):
        if path.name == "metrics.jsonl" and content and len(failed) < 3:
            failed.append(path)
            raise OSError(f"track.storage: {path} cannot be used (the store does not answer)")
        write(path, content)

    monkeypatch.setattr(stored_copy, "write_whole", failing)
    keys = {**SYNC, "track.storage": store, "federation.delays": {"street": 0.05}}
    result = fedrf.run(None, keys, out=tmp_path / "run", local=True)
    assert len(failed) == 3
    (failure,) = result.summary["failures"]
    assert failure.startswith(
        "not copied for now: track.storage: memory://bucket/runs/run/metrics.jsonl cannot be used"
    )
    assert stored()["metrics.jsonl"] == (result.folder / "metrics.jsonl").read_bytes()
    assert distinct(result.folder) == sorted(expected[2], key=json.dumps)


def test_a_store_that_fails_for_good_ends_the_run_with_one_line(tmp_path, monkeypatch, store, expected):
    monkeypatch.setattr("fedrf.store.PAUSES", (0.0,))

    def fail(rows):
        if any(row["round"] >= 2 for row in rows):
            Outage(outage, failures=-1)
        return False

    with monkeypatch.context() as outage, pytest.raises((RunFailedError, OSError), match="does not answer") as error:
        fedrf.run(None, {**SYNC, "track.storage": store}, out=tmp_path / "run", local=True, observe=fail)
    assert "\n" not in str(error.value)
    failures = RunFolder(tmp_path / "run").read_summary()["failures"]
    assert any("track.storage" in failure for failure in failures)
    again = fedrf.run(resume=tmp_path / "run", local=True)
    assert again.finished
    assert weights_of(stored()) == expected[0]


def test_the_summary_of_a_failed_run_is_in_the_store_and_another_machine_continues_at_once(
    tmp_path, monkeypatch, store, expected
):
    with monkeypatch.context() as patch:
        fail_after(patch, 14)
        with pytest.raises(RunFailedError):
            fedrf.run(None, {**SYNC, "track.storage": store}, out=tmp_path / "here/run", local=True)
    summary = json.loads(stored()["summary.json"])
    assert summary["status"] == "failed"
    assert any("stopped by the test" in failure for failure in summary["failures"])
    assert "driver.json" not in stored()
    monkeypatch.setattr(stored_copy.socket, "gethostname", lambda: "another")
    monkeypatch.chdir(tmp_path)
    assert fedrf.run(resume=f"{store}/run", local=True).finished
    assert weights_of(stored()) == expected[0]


def test_a_different_local_run_of_the_same_name_is_not_overwritten(tmp_path, monkeypatch, store):
    monkeypatch.chdir(tmp_path)
    fedrf.run(None, {**SYNC, "track.storage": store}, out=tmp_path / "run", local=True)
    other = fedrf.run(None, {**SYNC, "seed": 1}, out=tmp_path / "runs/run", local=True)
    before = {path: path.read_bytes() for path in other.folder.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="runs/run holds another run; move it"):
        fedrf.run(resume=f"{store}/run", local=True)
    assert {path: path.read_bytes() for path in other.folder.rglob("*") if path.is_file()} == before


def test_a_run_that_was_moved_to_another_store_reads_its_checkpoints_there(tmp_path, monkeypatch, store, expected):
    with monkeypatch.context() as patch:
        fail_after(patch, 14)
        with pytest.raises(RunFailedError):
            fedrf.run(None, {**SYNC, "track.storage": store}, out=tmp_path / "here/run", local=True)
    files = stored()
    MemoryFileSystem.store.clear()
    for name, content in files.items():
        write_whole(folder_at("memory://other/place/run") / name, content)
    monkeypatch.chdir(tmp_path)
    result = fedrf.run(resume="memory://other/place/run", local=True)
    assert result.config.track.storage == "memory://other/place"
    assert result.summary["rounds"] == SYNC["train.rounds"]
    assert weights_of(stored()) == expected[0]
    assert all(name.startswith("/other/place/run/") for name in MemoryFileSystem.store)


@pytest.mark.parametrize("last_call", [24, None])
def test_a_local_run_that_another_machine_continued_takes_its_figures_from_the_store(
    tmp_path, monkeypatch, store, expected, last_call
):
    """One that the other machine has interrupted again, or finished."""
    monkeypatch.setattr(stored_copy, "UPDATE_SECONDS", 0)
    monkeypatch.setattr("fedrf.experiment.driver.POLL_SECONDS", 0.01)
    keys = {**SYNC, "track.storage": store, "federation.delays": {"street": 0.05}}  # slow, so that figures are copied
    (tmp_path / "there").mkdir()
    with monkeypatch.context() as patch:
        fail_after(patch, 6)
        with pytest.raises(RunFailedError):
            fedrf.run(None, keys, out=tmp_path / "here/run", local=True)
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path / "there")
        if last_call is None:
            fedrf.run(resume=f"{store}/run", local=True)
        else:
            fail_after(patch, last_call)
            with pytest.raises(RunFailedError):
                fedrf.run(resume=f"{store}/run", local=True)
    result = fedrf.run(resume=tmp_path / "here/run", local=True)
    assert result.finished
    assert distinct(result.folder) == sorted(expected[2], key=json.dumps)
    assert stored()["metrics.jsonl"] == (result.folder / "metrics.jsonl").read_bytes()
    assert (result.folder / "predictions.csv").read_bytes() == expected[1]
    assert weights_of(stored()) == expected[0]


def test_figures_that_are_missing_are_an_error_and_no_gap(tmp_path, monkeypatch):
    monkeypatch.setattr("fedrf.experiment.driver.POLL_SECONDS", 0.01)
    run, seen = tmp_path / "run", []

    def has_several_polls(rows):
        seen.extend([1] if rows else [])
        return len(seen) >= 3

    fedrf.run(None, {**SYNC, "train.rounds": 500}, out=run, local=True, observe=has_several_polls)
    (run / "metrics.jsonl").unlink()
    with pytest.raises(ValueError, match=r"metrics\.jsonl has 0 figures, and the checkpoint was written after \d+"):
        fedrf.run(resume=run, local=True)


def test_a_slash_at_the_end_of_the_url_changes_nothing(tmp_path, monkeypatch, store):
    monkeypatch.chdir(tmp_path)
    keys = {**SYNC, "track.storage": f"{store}/"}
    with monkeypatch.context() as patch:
        fail_after(patch, 6)
        with pytest.raises(RunFailedError):
            fedrf.run(None, keys, out=tmp_path / "runs/run", local=True)
    result = fedrf.run(resume=f"{store}/run/", local=True)
    assert result.finished
    assert result.config.track.storage == store


@pytest.mark.parametrize("url", ["memory://", "file:///"])
def test_the_root_of_a_store_is_a_folder(url):
    assert load_config(None, {"track.storage": url}).track.storage == url


def test_a_built_in_data_set_may_be_elsewhere_on_another_machine(tmp_path, monkeypatch, store):
    (tmp_path / "old").mkdir()
    write_office31_decaf6(tmp_path / "old")
    data = {"data.name": "office31-decaf6", "data.root": str(tmp_path / "old"), "data.target": "webcam"}
    keys = {**SYNC, **data, "data.allow_partial": True, "model.extractor": "identity", "track.storage": store}
    undisturbed = fedrf.run(None, {**keys, "track.storage": ""}, out=tmp_path / "undisturbed", local=True)
    with monkeypatch.context() as patch:
        fail_after(patch, 5)
        with pytest.raises(RunFailedError):
            fedrf.run(None, keys, out=tmp_path / "here/run", local=True)
    (tmp_path / "old").rename(tmp_path / "new")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDRF_DATA", raising=False)
    with pytest.raises(ValueError, match="old: no such folder"):
        fedrf.run(resume=f"{store}/run", local=True)
    monkeypatch.setenv("FEDRF_DATA", str(tmp_path / "new"))
    result = fedrf.run(resume=f"{store}/run", local=True)
    assert result.finished
    assert result.config.digest == undisturbed.config.digest
    assert weights_of(stored()) == final_weights(undisturbed)
