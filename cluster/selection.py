"""Which files of the working directory are sent to the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".rayignore")
# Patterns as in .gitignore. Those that begin with a slash apply only at the top: `data` may also be a Python package.
EXCLUDED = (
    *(".git", ".venv", ".cache", ".*_cache", "__pycache__", "*.egg-info", ".hypothesis"),
    *("/data", "/runs", "/sweeps", "/wandb", "/lightning_logs"),
)
SECRETS = (
    *(".env", ".env.*", "!.env.example", ".netrc", "_netrc", "credentials*.json"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_ed25519*"),
    *(".aws/", ".ssh/", ".kube/", "**/.docker/config.json", "**/wandb/settings", ".ray/", "auth_token"),
)
# Files that identify virtual environments and run directories, whatever their names are.
MARKER_FILES = ("pyvenv.cfg", "metrics.jsonl")


class Rule(NamedTuple):
    """Patterns, and the folder that they are relative to."""

    base: Path
    spec: GitIgnoreSpec

    def matches(self, path: Path) -> bool:
        """Whether the patterns leave out a file or folder."""
        return self.spec.match_file(path.relative_to(self.base).as_posix() + ("/" if path.is_dir() else ""))


class Selection:
    """The files below a folder that are sent, and what is left out because it may hold secrets.

    `EXCLUDED`, `SECRETS` and each of `IGNORE_FILES` leave out what they match. A file or folder that a .rayignore names
    after ``!``, without wildcards, is sent all the same, and what left it out does not apply inside it.

    Attributes
    ----------
    files
        The files to send.
    secrets
        Files and folders that only `SECRETS` leaves out.
    """

    def __init__(self, folder: Path) -> None:
        self.files: list[Path] = []
        self.secrets: list[Path] = []
        excluded, self._secret = (Rule(folder, GitIgnoreSpec.from_lines(lines)) for lines in (EXCLUDED, SECRETS))
        self._visit(folder, (excluded, self._secret), frozenset())

    def _visit(self, folder: Path, rules: tuple[Rule, ...], wanted: frozenset[str]) -> None:
        for file in (folder / name for name in IGNORE_FILES if (folder / name).is_file()):
            lines = file.read_text().splitlines()
            rules += (Rule(folder, GitIgnoreSpec.from_lines(lines)),)
            if file.name == ".rayignore":
                wanted |= _named(folder, lines)
        for path in sorted(folder.iterdir()):
            if path.is_dir() and (path.is_symlink() or any((path / name).exists() for name in MARKER_FILES)):
                continue
            matching = [rule for rule in rules if rule.matches(path)]
            if matching and not {path.name, str(path)} & wanted:
                self.secrets += [path] if matching == [self._secret] else []
            elif path.is_dir():
                self._visit(path, tuple(rule for rule in rules if rule not in matching), wanted)
            elif path.is_file():
                self.files.append(path)


def _named(folder: Path, lines: list[str]) -> set[str]:
    """Return what lines name after ``!``: a name at any depth, or a path if there is a slash in front of its end."""
    names = [line[1:].strip().rstrip("/") for line in lines if line.startswith("!")]
    return {str(folder / name.lstrip("/")) if "/" in name else name for name in names}


def describe_secrets(secrets: list[Path], folder: Path) -> str:
    """Return how many files and folders were left out as secrets, the first of them, and how to send one."""
    names = [path.relative_to(folder).as_posix() + ("/" if path.is_dir() else "") for path in secrets]
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    entries = "1 entry" if len(names) == 1 else f"{len(names)} entries"
    return f"left out {entries} that may hold secrets: {shown}; to send one, add !/{names[0]} to .rayignore"
