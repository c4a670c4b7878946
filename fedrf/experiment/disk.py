"""Whether results can be written to a folder, checked without creating it."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryFile

MIN_FREE_MB = 50  # enough for the checkpoints of a small run; a larger one that fills the disk can be resumed


def check_writable(option: str, folder: Path) -> None:
    """Raise a `ValueError` if a folder cannot be created or written to, or if its disk is full.

    Parameters
    ----------
    option
        The option that names the folder, for the message.
    """
    try:
        parent = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not parent.is_dir():
            raise ValueError(f"{option}: {parent} is a file")
        with TemporaryFile(dir=parent):  # access rights do not tell that a file system is read-only
            free = shutil.disk_usage(parent).free
    except OSError as error:
        raise ValueError(f"{option}: {folder} cannot be written ({error.strerror}); choose another folder") from error
    if free < MIN_FREE_MB * 1e6:
        raise ValueError(
            f"{option}: {free / 1e6:.0f} MB are free on the disk of {folder}; at least {MIN_FREE_MB} MB are needed"
        )
