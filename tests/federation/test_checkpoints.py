"""Files of checkpoints: a write that fails half-way leaves the version before it intact."""

import pickle
from pathlib import Path

import pytest
from lightning.pytorch import Trainer

import fedrf
from fedrf.errors import RunFailedError
from fedrf.federation.checkpoints import ClientFiles, CoordinatorFiles, keep_final_weights
from tests.conftest import final_weights
from tests.federation.recording import SYNC

EVERY_ROUND = {**SYNC, "federation.checkpoint_seconds": 0, "adapt.when": "never"}


def test_a_coordinator_file_that_is_written_half_is_not_valid(tmp_path, monkeypatch):
    files = CoordinatorFiles.claim(tmp_path)
    files.save(1, b"\x80\x04K\x01.", {"a": 1})  # the pickled number 1
    write = Path.write_bytes

    def half(path, content):
        write(path, content[: len(content) // 2])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="no space"):
        files.save(2, b"\x80\x04K\x02.", {"a": 2})
    monkeypatch.undo()
    assert files.newest == 1
    assert files.load() == (1, {"a": 1})
    assert [path.name for path in files.folder.iterdir() if path.name != "owner"] == ["000001.pickle"]


def test_a_run_continues_from_the_version_before_a_checkpoint_that_was_written_half(tmp_path, monkeypatch):
    """In its third version a client's disk is full: the run fails, and resuming it gives the same bits."""
    undisturbed = fedrf.run(None, EVERY_ROUND, out=tmp_path / "undisturbed", local=True)
    save = Trainer.save_checkpoint

    def half(trainer, path, *arguments):
        save(trainer, path, *arguments)
        if "000003" in Path(path).name:
            content = Path(path).read_bytes()
            Path(path).write_bytes(content[: len(content) // 2])
            raise OSError("no space left on device")

    monkeypatch.setattr(Trainer, "save_checkpoint", half)
    with pytest.raises(RunFailedError, match="no space left on device"):
        fedrf.run(None, EVERY_ROUND, out=tmp_path / "run", local=True)
    monkeypatch.undo()
    for path in (tmp_path / "run/checkpoints").glob("*/*.ckpt"):
        assert path.stem < "000003", f"{path} is half a checkpoint"
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert resumed.finished
    assert final_weights(resumed) == final_weights(undisturbed)


@pytest.mark.parametrize("content", [(b"state", {"a": 4}), (2, b"state", {"a": 4})], ids=["1", "2"])
def test_a_file_of_another_format_is_refused_in_one_line(tmp_path, content):
    """Format 2 is from before rows were shuffled: its clients refer to other samples."""
    files = CoordinatorFiles.claim(tmp_path)
    (files.folder / "000004.pickle").write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match=r"000004.pickle was written by another version of fedrf .* start a new run"):
        files.load()


def test_old_versions_of_a_client_are_deleted(tmp_path):
    files = ClientFiles(tmp_path, "a")
    files.folder.mkdir(parents=True)
    for version in (1, 2, 3):
        files.path(version).touch()
    assert files.newest() == files.path(3)
    files.prune(oldest_needed=3)
    assert sorted(files.folder.iterdir()) == [files.path(3)]


def test_only_final_weights_of_one_client_are_kept(tmp_path):
    for client in ("a", "t"):
        files = ClientFiles(tmp_path, client)
        files.folder.mkdir(parents=True)
        files.path(1).touch()
        files.final.touch()
    keep_final_weights(tmp_path, "t")
    assert list(tmp_path.glob("checkpoints/*/*")) == [ClientFiles(tmp_path, "t").final]
