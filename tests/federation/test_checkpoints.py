"""Files of checkpoints: damaged or half-written ones are noticed, and the version before is used."""

import os
import pickle
from pathlib import Path

import pytest

import fedrf
from fedrf import store
from fedrf.archive import pack
from fedrf.errors import RunFailedError
from fedrf.federation.checkpoints import FORMAT, ClientFiles, CoordinatorFiles, keep_final_weights
from fedrf.ownership import Owner
from tests.conftest import final_weights
from tests.federation.recording import SYNC

EVERY_ROUND = {**SYNC, "federation.checkpoint_seconds": 0, "adapt.when": "never"}


@pytest.fixture
def files(tmp_path):
    """The files of a coordinator with two valid versions of one client."""
    files = CoordinatorFiles(tmp_path, Owner.claim(tmp_path).fence)
    for version in (1, 2):
        path = ClientFiles(tmp_path, "a").path(version)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pack({"version": version}))
        files.save(version, f"state {version}".encode(), {"a": version})
    return files


def test_the_newest_version_is_loaded(files):
    version = files.load()
    assert (version.number, version.state, version.saved, version.skipped) == (2, b"state 2", {"a": 2}, ())


def test_without_versions_there_is_nothing_to_load(tmp_path):
    assert CoordinatorFiles(tmp_path).load() is None


def cut(path):
    path.write_bytes(path.read_bytes()[:-5])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [cut, flip, empty, os.remove])
@pytest.mark.parametrize("client", ["a", "coordinator"])
def test_if_a_file_of_the_newest_version_is_damaged_the_version_before_is_loaded(files, client, harm):
    harm(ClientFiles(files.run, client).path(2))
    version = files.load()
    assert (version.number, version.state, version.saved) == (1, b"state 1", {"a": 1})
    if client == "a" or harm is not os.remove:
        assert "000002.safetensors" in version.skipped[0]
    if client == "a":
        assert ClientFiles(files.run, "a").newest() == 1


def test_if_no_version_is_intact_one_line_says_so(files):
    flip(ClientFiles(files.run, "a").path(1))
    cut(ClientFiles(files.run, "coordinator").path(2))
    with pytest.raises(
        ValueError, match=r"no checkpoint can be resumed: .*000002.* is damaged: .*; .*/a/000001"
    ) as error:
        files.load()
    assert "\n" not in str(error.value)


def test_a_coordinator_file_that_is_written_half_is_not_valid(files, monkeypatch):
    write = Path.write_bytes

    def half(path, content):
        write(path, content[: len(content) // 2])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="no space"):
        files.save(3, b"state 3", {"a": 2})
    monkeypatch.undo()
    assert files.newest == 2
    assert sorted(path.name for path in files.folder.iterdir()) == ["000001.safetensors", "000002.safetensors"]


def test_a_run_continues_from_the_version_before_a_checkpoint_that_was_written_half(tmp_path, monkeypatch):
    """In its third version a client's disk is full: the run fails, and resuming it gives the same bits."""
    undisturbed = fedrf.run(None, EVERY_ROUND, out=tmp_path / "undisturbed", local=True)
    write_atomically = store.write_atomically

    def half(path, write, private=False):
        def write_half(draft):
            write(draft)
            if "000003" in path.name:
                content = draft.read_bytes()
                draft.write_bytes(content[: len(content) // 2])
                raise OSError("no space left on device")

        write_atomically(path, write_half, private)

    monkeypatch.setattr(store, "write_atomically", half)
    with pytest.raises(RunFailedError, match="no space left on device"):
        fedrf.run(None, EVERY_ROUND, out=tmp_path / "run", local=True)
    monkeypatch.undo()
    for path in (tmp_path / "run/checkpoints").glob("*/*.safetensors"):
        assert path.stem < "000003", f"{path} is half a checkpoint"
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert resumed.finished
    assert final_weights(resumed) == final_weights(undisturbed)


@pytest.mark.parametrize("client", ["street", "coordinator"])
def test_a_run_whose_newest_checkpoint_is_damaged_ends_with_the_same_bits(tmp_path, monkeypatch, client):
    monkeypatch.setattr("fedrf.experiment.driver.POLL_SECONDS", 0.01)
    slow = {**EVERY_ROUND, "train.rounds": 12, "federation.delays": {"street": 0.05}}
    undisturbed = fedrf.run(None, slow, out=tmp_path / "undisturbed", local=True)
    run = tmp_path / "run"
    fedrf.run(None, slow, out=run, local=True, observe=lambda rows: any(row["round"] >= 5 for row in rows))
    newest = CoordinatorFiles(run).newest
    flip(ClientFiles(run, client).path(newest))
    resumed = fedrf.run(resume=run, local=True)
    assert resumed.finished
    assert any(f"{newest:06d}.safetensors is damaged" in failure for failure in resumed.summary["failures"])
    assert final_weights(resumed) == final_weights(undisturbed)


class Payload:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_a_pickle_in_a_run_directory_is_never_read(tmp_path):
    """One that stands for a checkpoint runs no code; its format is refused in one line."""
    files = CoordinatorFiles(tmp_path)
    files.folder.mkdir(parents=True)
    for name in ("000004.pickle", "000005.safetensors"):
        (files.folder / name).write_bytes(pickle.dumps(Payload(tmp_path / "owned")))
    with pytest.raises(ValueError, match=r"no checkpoint can be resumed: .* start a new run"):
        files.load()
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("content", [(FORMAT - 1, "state", {}), (FORMAT, "state"), "state"])
def test_a_file_of_another_format_is_refused_in_one_line(tmp_path, content):
    files = CoordinatorFiles(tmp_path)
    files.folder.mkdir(parents=True)
    (files.folder / "000004.safetensors").write_bytes(pack(content))
    with pytest.raises(
        ValueError, match=r"000004.safetensors was written by another version of fedrf; start a new run"
    ):
        files.load()


def test_old_versions_of_a_client_are_deleted(files):
    of_client = ClientFiles(files.run, "a")
    assert of_client.newest() == 2
    of_client.prune(oldest_needed=2)
    assert sorted(of_client.folder.iterdir()) == [of_client.path(2)]


def test_only_final_weights_of_one_client_are_kept(tmp_path):
    for client in ("a", "t"):
        files = ClientFiles(tmp_path, client)
        files.folder.mkdir(parents=True)
        files.path(1).touch()
        files.final.touch()
    keep_final_weights(tmp_path, "t")
    assert list(tmp_path.glob("checkpoints/*/*")) == [ClientFiles(tmp_path, "t").final]
