"""What of the working directory goes to the cluster: a zip file, packed once, so that a resumed job gets the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from pathspec import GitIgnoreSpec

from fedrf.experiment.display import size

MAX_BYTES = 500 * 2**20  # Ray's own limit
IGNORE_FILES = (".gitignore", ".rayignore")
# As in .gitignore; those with a slash only at the top, for `data` is also a good name for a Python package.
EXCLUDED = (
    *(".git", ".venv", ".cache", ".*_cache", "__pycache__", "*.egg-info", ".hypothesis"),
    *("/data", "/runs", "/sweeps", "/wandb", "/lightning_logs"),
)
# Files that tell virtual environments and run directories, whatever these are called.
TELLTALES = ("pyvenv.cfg", "metrics.jsonl")
Rules = tuple[tuple[Path, GitIgnoreSpec], ...]


def files_to_pack(folder: Path) -> list[Path]:
    """Return all files below `folder` but what `EXCLUDED`, `TELLTALES` and files like .gitignore name."""
    return list(_walk(folder, ((folder, GitIgnoreSpec.from_lines(EXCLUDED)),)))


def _walk(folder: Path, rules: Rules) -> Iterator[Path]:
    ignored = [folder / name for name in IGNORE_FILES if (folder / name).is_file()]
    rules += tuple((folder, GitIgnoreSpec.from_lines(file.read_text().splitlines())) for file in ignored)
    for path in sorted(folder.iterdir()):
        is_folder = path.is_dir()
        end = "/" if is_folder else ""
        if any(spec.match_file(path.relative_to(base).as_posix() + end) for base, spec in rules):
            continue
        if is_folder:
            if not path.is_symlink() and not any((path / name).exists() for name in TELLTALES):
                yield from _walk(path, rules)
        elif path.is_file():
            yield path


def pack(folder: Path, target: Path) -> int:
    """Write a zip file of `folder` and return how many files are in it; a `ValueError` if Ray would not take it."""
    sizes = {path.relative_to(folder): path.stat().st_size for path in files_to_pack(folder)}
    if sum(sizes.values()) > MAX_BYTES:
        entries: Counter[str] = Counter()
        for path, number in sizes.items():
            entries[path.parts[0]] += number
        largest = ", ".join(f"{name} ({size(number)})" for name, number in entries.most_common(3))
        raise ValueError(
            f"{folder} has {size(sum(sizes.values()))} to send and Ray takes {size(MAX_BYTES)}; the most is in "
            f"{largest}: name what the job does not need in a file {' or '.join(IGNORE_FILES)}"
        )
    with ZipFile(target, "w", ZIP_DEFLATED, strict_timestamps=False) as archive:
        for path in sizes:
            archive.write(folder / path, path)
    return len(sizes)
