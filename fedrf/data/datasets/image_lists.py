"""Text files that list images and their labels, such as `folder/file.jpg 3`, one on each line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from fedrf.data.dataset import abbreviate, list_entries, wrap_read_errors


class ImageList(NamedTuple):
    """Paths and labels of images, in the order of the list."""

    paths: list[str]
    labels: list[int]


def read_list(path: Path, num_classes: int) -> ImageList:
    """Read one list; a `ValueError` has the number of an invalid line."""
    paths: list[str] = []
    labels: list[int] = []
    with wrap_read_errors(path):
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, _, label = line.strip().replace("\t", " ").rpartition(" ")
        name = name.strip().removeprefix("./")
        if not name or not label.removeprefix("-").isdecimal():
            raise ValueError(f"{path}: line {number} must be 'folder/file.jpg label'; found {line.strip()[:80]!r}")
        if os.path.isabs(name) or ".." in name.split("/"):
            raise ValueError(f"{path}: line {number} must name a file below the folder of images; found {name[:80]!r}")
        if not 0 <= int(label) < num_classes:
            raise ValueError(f"{path}: line {number} has label {label}; labels are 0 to {num_classes - 1}")
        paths.append(name)
        labels.append(int(label))
    if not paths:
        raise ValueError(f"{path}: no line that names an image")
    return ImageList(paths, labels)


def keep_existing(listed: ImageList, folder: Path, list_path: Path, allow_missing: bool) -> ImageList:
    """Return the images of a list that exist.

    Parameters
    ----------
    listed
        Images, with paths relative to `folder`.
    folder
        Folder of the images.
    list_path
        File of the list, for error messages.
    allow_missing
        Leave out missing images instead of raising a `ValueError`.
    """
    parents = [os.path.dirname(path) for path in listed.paths]
    # Each folder is listed once, because checking 150,000 files one by one is slow on a network drive.
    present = {os.path.join(parent, name) for parent in set(parents) for name in _names_in(folder / parent)}
    missing = [path for path in listed.paths if path not in present]
    if not missing:
        return listed
    if not allow_missing or len(missing) == len(listed.paths):
        raise ValueError(
            f"{list_path}: {len(missing):,} of {len(listed.paths):,} images are not in {folder}: "
            f"{abbreviate(missing, 1)}. Copy the rest, or set data.allow_partial=true to use this part"
        )
    existing = [(path, label) for path, label in zip(*listed, strict=True) if path in present]
    return ImageList([path for path, _ in existing], [label for _, label in existing])


def _names_in(folder: Path) -> list[str]:
    return [entry.name for entry in list_entries(folder)] if os.path.isdir(folder) else []
