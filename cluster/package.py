"""The working directory as a zip file for the cluster, packed once, so that a resumed job gets the same files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from cluster.selection import IGNORE_FILES, Selection
from fedrf.experiment.display import size

MAX_BYTES = 500 * 2**20  # Ray's own limit


def pack(folder: Path, target: Path) -> Selection:
    """Write a zip file of `folder` and return what it holds; raise `ValueError` if Ray would refuse it."""
    selection = Selection(folder)
    sizes = {path.relative_to(folder): path.stat().st_size for path in selection.files}
    if sum(sizes.values()) > MAX_BYTES:
        entries: Counter[str] = Counter()
        for path, num_bytes in sizes.items():
            entries[path.parts[0]] += num_bytes
        largest = ", ".join(f"{name} ({size(num_bytes)})" for name, num_bytes in entries.most_common(3))
        raise ValueError(
            f"{folder} has {size(sum(sizes.values()))} to send, and Ray accepts {size(MAX_BYTES)}; largest: {largest}. "
            f"List what the job does not need in {' or '.join(IGNORE_FILES)}"
        )
    with ZipFile(target, "w", ZIP_DEFLATED, strict_timestamps=False) as archive:
        for path in sizes:
            archive.write(folder / path, path)
    return selection
