"""The working directory as a zip file for the cluster, packed once, so that a resumed job gets the same files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from pathspec import GitIgnoreSpec

from fedrf.experiment.display import size

MAX_BYTES = 500 * 2**20  # Ray's own limit
IGNORE_FILES = (".gitignore", ".rayignore")
# Patterns as in .gitignore. Those with a slash apply only at the top, because `data` may also be a Python package.
EXCLUDED = (
    *(".git", ".venv", ".cache", ".*_cache", "__pycache__", "*.egg-info", ".hypothesis"),
    *("/data", "/runs", "/sweeps", "/wandb", "/lightning_logs"),
)
# Files that identify virtual environments and run directories, whatever their names are.
MARKER_FILES = ("pyvenv.cfg", "metrics.jsonl")
IgnoreRules = tuple[tuple[Path, GitIgnoreSpec], ...]


def files_to_pack(folder: Path) -> list[Path]:
    """Return all files below `folder` except those that `EXCLUDED`, `MARKER_FILES` and `IGNORE_FILES` exclude."""
    return list(_walk(folder, ((folder, GitIgnoreSpec.from_lines(EXCLUDED)),)))


def _walk(folder: Path, rules: IgnoreRules) -> Iterator[Path]:
    ignore_files = [folder / name for name in IGNORE_FILES if (folder / name).is_file()]
    rules += tuple((folder, GitIgnoreSpec.from_lines(file.read_text().splitlines())) for file in ignore_files)
    for path in sorted(folder.iterdir()):
        is_folder = path.is_dir()
        end = "/" if is_folder else ""
        if any(spec.match_file(path.relative_to(base).as_posix() + end) for base, spec in rules):
            continue
        if is_folder:
            if not path.is_symlink() and not any((path / name).exists() for name in MARKER_FILES):
                yield from _walk(path, rules)
        elif path.is_file():
            yield path


def pack(folder: Path, target: Path) -> int:
    """Write a zip file of `folder` and return the number of its files; raise `ValueError` if Ray would refuse it."""
    sizes = {path.relative_to(folder): path.stat().st_size for path in files_to_pack(folder)}
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
    return len(sizes)
