"""Text files that list images and their labels, one `folder/file.jpg 3` a line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from fedrf.data.dataset import entries, reading, some


class ImageList(NamedTuple):
    """Images in the order of the list."""

    paths: list[str]
    labels: list[int]


def read_list(path: Path, num_classes: int) -> ImageList:
    """Read one list; an unusable line raises a `ValueError` that has its number."""
    paths: list[str] = []
    labels: list[int] = []
    with reading(path):
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, _, last = line.strip().replace("\t", " ").rpartition(" ")
        name = name.strip().removeprefix("./")
        if not name or not last.removeprefix("-").isdecimal():
            raise ValueError(f"{path}: line {number} must be 'folder/file.jpg label'; found {line.strip()[:80]!r}")
        if os.path.isabs(name) or ".." in name.split("/"):
            raise ValueError(f"{path}: line {number} must name a file below the folder of images; found {name[:80]!r}")
        if not 0 <= int(last) < num_classes:
            raise ValueError(f"{path}: line {number} has label {last}; labels are 0 to {num_classes - 1}")
        paths.append(name)
        labels.append(int(last))
    if not paths:
        raise ValueError(f"{path}: no line that names an image")
    return ImageList(paths, labels)


def keep_existing(listed: ImageList, folder: Path, source: Path, allow_missing: bool) -> ImageList:
    """Return what is there of a list; without leave, all of it must be.

    Parameters
    ----------
    listed
        Images by their paths relative to `folder`.
    folder
        Where the images are.
    source
        The list, for the error.
    allow_missing
        Leave out images that are not there.
    """
    parents = [os.path.dirname(path) for path in listed.paths]
    # One look at each folder, because asking for 150,000 files one by one takes long on a network drive.
    present = {os.path.join(parent, name) for parent in set(parents) for name in _names(folder / parent)}
    missing = [path for path in listed.paths if path not in present]
    if not missing:
        return listed
    if not allow_missing or len(missing) == len(listed.paths):
        raise ValueError(
            f"{source}: {len(missing):,} of {len(listed.paths):,} images are not in {folder}: {some(missing, 1)}. "
            "Copy the rest, or set data.allow_partial=true if that is meant"
        )
    gone = set(missing)
    kept = [(path, label) for path, label in zip(*listed, strict=True) if path not in gone]
    return ImageList([path for path, _ in kept], [label for _, label in kept])


def _names(folder: Path) -> list[str]:
    return [entry.name for entry in entries(folder)] if os.path.isdir(folder) else []
