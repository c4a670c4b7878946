"""Atomic writes."""

import pytest

from fedrf.files import write_atomically


def test_a_failed_write_leaves_the_old_content(tmp_path):
    path = tmp_path / "folder" / "file.txt"
    write_atomically(path, lambda draft: draft.write_text("old"))

    def fail(draft):
        draft.write_text("ne")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_readers_see_old_or_new_content_and_nothing_in_between(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    seen = []

    def write(draft):
        draft.write_text("n")
        seen.append(path.read_text())
        draft.write_text("new")

    write_atomically(path, write)
    assert seen == ["old"]
    assert path.read_text() == "new"
