"""The cache on disk: what is written is read back, limits hold, and damaged files are replaced."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrf.models import trunk_cache
from fedrf.models.trunk_cache import Entry, cache_folder, limit_bytes, used_bytes


def sample(width=1000):
    return np.zeros(width, dtype=np.float32)


def reserve(key, count, row, rows=()):
    return Entry.reserve(key, count, row, np.array(rows, dtype=np.int64))


def filled(key, count=10, width=1000):
    entry = reserve(key, count, sample(width), range(count))
    entry.write(np.arange(count), np.random.RandomState(0).randn(count, width).astype(np.float32))
    return entry


def test_rows_are_read_as_they_were_written():
    entry = reserve("key", 7, sample(3))
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    entry.write(np.array([5, 2]), values)
    assert list(entry.missing(np.arange(7))) == [0, 1, 3, 4, 6]
    again = Entry.find("key")
    assert np.array_equal(again.values()[[5, 2]], values)
    assert list(again.missing(np.array([2, 3]))) == [3]
    assert Entry.find("other") is None


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 19), min_size=1, unique=True), max_size=6), st.sampled_from(["float16", "uint8"])
)
def test_rows_can_be_written_in_any_order_and_type(pieces, kind):
    trunk_cache._path("key").unlink(missing_ok=True)
    expected = np.random.RandomState(1).randint(0, 200, (20, 2, 3)).astype(kind)
    entry = reserve("key", 20, expected[0])
    for piece in pieces:
        Entry.find("key").write(np.array(piece), expected[piece])
    done = sorted({row for piece in pieces for row in piece})
    assert np.array_equal(entry.values()[done], expected[done])
    assert sorted(set(range(20)) - set(entry.missing(np.arange(20)))) == done


def test_rows_that_were_not_written_take_no_space():
    entry = reserve("key", 100_000, sample())
    assert used_bytes() < 1e6
    entry.write(np.arange(100), np.ones((100, 1000), dtype=np.float32))
    assert 4e5 <= used_bytes() < 2e6


def test_least_recently_used_files_are_evicted(monkeypatch):
    for age, key in enumerate(("old", "older", "oldest")):
        filled(key)
        os.utime(trunk_cache._path(key), times=(time.time() - 100 * (age + 1),) * 2)
    monkeypatch.setenv("FEDRF_CACHE_GB", str(used_bytes() / 1e9))
    assert reserve("new", 10, sample(), range(5))
    assert Entry.find("oldest") is None
    assert Entry.find("older")  # used just now
    os.utime(trunk_cache._path("old"), times=(0, 0))
    assert reserve("newer", 10, sample(), range(10))
    assert Entry.find("old") is None
    assert Entry.find("older")
    assert used_bytes() <= limit_bytes()


def test_a_file_larger_than_the_limit_evicts_nothing(monkeypatch):
    filled("here")
    monkeypatch.setenv("FEDRF_CACHE_GB", "0.001")
    assert reserve("new", 10_000, sample(), range(10_000)) is None
    assert not trunk_cache._path("new").exists()
    assert Entry.find("here")


def test_concurrent_writers_share_the_limit(monkeypatch):
    """Reserved space counts before it is written."""
    monkeypatch.setenv("FEDRF_CACHE_GB", "0.002")
    first = reserve("first", 400, sample(), range(400))
    assert first
    assert used_bytes() >= 1.6e6
    assert reserve("second", 400, sample(), range(400))
    assert Entry.find("first") is None  # evicted; open files stay readable
    assert used_bytes() <= 2e6
    assert reserve("second", 400, sample(), range(400))  # the same rows once more
    assert used_bytes() <= 2e6


def test_a_removed_file_stays_usable_while_it_is_open():
    entry = filled("key")
    expected = np.array(entry.values())
    trunk_cache._path("key").unlink()
    entry.write(np.array([0]), np.full((1, 1000), 7, dtype=np.float32))
    assert (entry.values()[0] == 7).all()
    assert np.array_equal(entry.values()[1:], expected[1:])
    assert Entry.find("key") is None


def test_rows_are_not_valid_after_a_failed_write(monkeypatch):
    entry = reserve("key", 4, sample())
    written = []

    def full_disk(content, position):
        written.append(position)
        if len(written) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(entry, "_write_at", full_disk)
    with pytest.raises(ValueError, match=r"cannot be used \(No space left on device\); set FEDRF_CACHE to another"):
        entry.write(np.arange(4), np.ones((4, 1000), dtype=np.float32))
    assert len(Entry.find("key").missing(np.arange(4))) == 4


def test_two_processes_fill_one_file():
    reserve("key", 400, sample(50))
    program = (
        "import sys, numpy as np\nfrom fedrf.models.trunk_cache import Entry\n"
        "start = int(sys.argv[1])\nentry = Entry.find('key')\n"
        "for row in range(start, 400, 2):\n"
        "    entry.write(np.array([row]), np.full((1, 50), row, dtype=np.float32))\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, str(start)]) for start in (0, 1)]
    assert [process.wait(60) for process in processes] == [0, 0]
    entry = Entry.find("key")
    assert not len(entry.missing(np.arange(400)))
    assert np.array_equal(entry.values()[:, 0], np.arange(400))


def test_the_error_names_a_folder_that_cannot_be_created(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDRF_CACHE", str(tmp_path / "file/below"))
    with pytest.raises(ValueError, match=r"file/below: cannot be used"):
        reserve("key", 3, sample())


@pytest.mark.parametrize("text", ["much", "-1", "nan", "inf"])
def test_the_error_names_an_invalid_limit(monkeypatch, text):
    monkeypatch.setenv("FEDRF_CACHE_GB", text)
    with pytest.raises(ValueError, match=f"FEDRF_CACHE_GB='{text}': must be a number of gigabytes"):
        limit_bytes()


def test_default_folder_and_limit(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDRF_CACHE")
    monkeypatch.delenv("FEDRF_CACHE_GB", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "fedrf"
    assert limit_bytes() == 20e9
    assert used_bytes() == 0


def test_torch_is_not_imported():
    program = "import sys, json, fedrf.models.trunk_cache; print(json.dumps('torch' in sys.modules))"
    assert json.loads(subprocess.check_output([sys.executable, "-c", program])) is False


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"{}", None])
def test_a_damaged_file_is_replaced(damage):
    filled("key")
    path = trunk_cache._path("key")
    path.write_bytes(path.read_bytes()[:-1] if damage is None else damage)
    assert Entry.find("key") is None
    assert len(filled("key").missing(np.arange(10))) == 0
    assert Entry.find("key")


def test_the_error_names_a_folder_that_is_a_file(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDRF_CACHE", str(tmp_path / "file"))
    with pytest.raises(ValueError, match=r"file: cannot be used \(Not a directory\)"):
        Entry.find("key")
