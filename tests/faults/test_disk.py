"""A disk that is full or read-only: the run ends with one line, and continues with the same bits when there is room."""

import errno
import os
import subprocess

import pytest

import fedrf
from fedrf.errors import RunFailedError
from fedrf.experiment.results import RunFolder
from fedrf.federation import client, saver, worker
from fedrf.federation.checkpoints import CoordinatorFiles
from tests.conftest import SYNC, final_weights

SETTINGS = {**SYNC, "adapt.steps": 4}
# All that write to a run directory after it was created, and the write that fails.
WRITERS = {
    "checkpoint of a client": (saver.ArchiveIO, "save_checkpoint", 9),
    "version of the coordinator": (CoordinatorFiles, "save", 3),
    "figures": (RunFolder, "append_rows", 2),
    "kept figures": (RunFolder, "keep_rows", 1),
    "summary": (RunFolder, "write_summary", 1),
    "final weights": (client, "save", 2),
    "predictions": (worker, "predictions_table", 1),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    result = fedrf.run(None, SETTINGS, out=tmp_path_factory.mktemp("undisturbed") / "run", local=True)
    return final_weights(result), (result.folder / "predictions.csv").read_text()


def results(run):
    return final_weights(run), (run.folder / "predictions.csv").read_text()


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_writer_that_fails_ends_the_run_which_can_be_continued(tmp_path, monkeypatch, undisturbed, writer, number):
    owner, name, which = WRITERS[writer]
    original, calls = getattr(owner, name), []

    def failing(*arguments, **keywords):
        if name != "append_rows" or arguments[1]:
            calls.append(arguments)
        if len(calls) >= which:  # the disk stays full
            raise OSError(number, os.strerror(number))
        return original(*arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing)
        with pytest.raises((RunFailedError, OSError), match=os.strerror(number)) as error:
            fedrf.run(None, SETTINGS, out=tmp_path / "run", local=True)
    assert len(str(error.value).splitlines()) == 1
    assert len(calls) >= which
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert resumed.finished
    assert results(resumed) == undisturbed


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own; needs the rights to mount one."""
    path = tmp_path / "disk"
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "none", path], check=False).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def fill(path):
    with (path / "filler").open("wb") as file:
        try:
            while True:
                file.write(bytes(2**16))
                file.flush()
        except OSError:
            return


def test_a_disk_that_becomes_full(small_disk, undisturbed, monkeypatch):
    monkeypatch.setattr("fedrf.experiment.driver.POLL_SECONDS", 0.01)
    filled = []

    def observe(rows):
        if not filled and any(row["round"] >= 2 for row in rows):
            filled.append(fill(small_disk))
        return False

    with pytest.raises((RunFailedError, OSError), match="No space left on device"):
        fedrf.run(
            None,
            {**SETTINGS, "federation.delays": {"street": 0.1}},
            out=small_disk / "run",
            local=True,
            observe=observe,
        )
    with pytest.raises(ValueError, match="free"):
        fedrf.run(resume=small_disk / "run", local=True)
    (small_disk / "filler").unlink()
    assert results(fedrf.run(resume=small_disk / "run", local=True)) == undisturbed


def test_a_disk_that_becomes_read_only(small_disk, undisturbed, monkeypatch):
    monkeypatch.setattr("fedrf.experiment.driver.POLL_SECONDS", 0.01)
    done = []

    def observe(rows):
        if not done and any(row["round"] >= 2 for row in rows):
            done.append(subprocess.run(["mount", "-o", "remount,ro", small_disk], check=False).returncode)
        return False

    with pytest.raises((RunFailedError, OSError), match="Read-only file system"):
        fedrf.run(
            None,
            {**SETTINGS, "federation.delays": {"street": 0.1}},
            out=small_disk / "run",
            local=True,
            observe=observe,
        )
    if done[0]:
        pytest.skip("the file system cannot be mounted read-only while it is used")
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    assert results(fedrf.run(resume=small_disk / "run", local=True)) == undisturbed
