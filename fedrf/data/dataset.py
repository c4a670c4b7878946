"""Base class of data sets, and helpers to find and read their files."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

from fedrf.config.schema import DataConfig
from fedrf.data.samples import Samples

# Settings of data sets of photographs.
PHOTO_SETTINGS: Mapping[str, Any] = {"model.extractor": "efficientnet-lite0-plus"}


class Dataset(ABC):
    """A data set, or one form of it (images, or one kind of features).

    Attributes
    ----------
    name
        Value of `data.name`.
    about
        Description in a few words.
    origin
        Where the data set can be downloaded.
    folders
        Names of its folder below the data root, the usual one first.
    splits
        Official splits of each domain, if there are any; `data.split` selects.
    content
        Kind of samples: `images` or `features`.
    settings
        Defaults of configuration keys that differ from those of `fedrf.config.schema`.
    user_defined
        Whether domains and classes depend on the files of the user.
    quick
        Whether `load` takes a fraction of a second, because it lists files or reads small ones.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    origin: ClassVar[str]
    folders: ClassVar[tuple[str, ...]] = ()
    splits: ClassVar[tuple[str, ...]] = ()
    content: ClassVar[Literal["images", "features"]] = "images"
    settings: ClassVar[Mapping[str, Any]] = {}
    user_defined: ClassVar[bool] = False
    quick: ClassVar[bool] = False

    @abstractmethod
    def domains(self, config: DataConfig) -> tuple[str, ...]:
        """Return the names of all domains."""

    @abstractmethod
    def classes(self, config: DataConfig) -> tuple[str, ...]:
        """Return the names of the classes, in the order of their labels."""

    def num_classes(self, config: DataConfig) -> int:
        """Return the number of classes; the coordinator calls this, and may have no access to the files."""
        return len(self.classes(config))

    @abstractmethod
    def load(self, config: DataConfig, domain: str) -> Samples:
        """Read and check all samples of one domain; a `ValueError` names an invalid file or folder."""

    def outline(self, config: DataConfig, domain: str) -> Samples | None:
        """Return what `load` returns, perhaps without values, for a check before a run; None if that is not quick."""
        return self.load(config, domain) if self.quick else None

    @abstractmethod
    def locate(self, config: DataConfig, domain: str) -> Path | None:
        """Return the file or folder of one domain without reading it; a `ValueError` lists the paths that were tried.

        None if the samples are generated and not read.
        """

    def check_together(self, config: DataConfig, domains: Sequence[str]) -> None:  # noqa: B027
        """Check that these domains are compatible, for example that they have the same number of columns."""

    def sources(self, config: DataConfig) -> tuple[str, ...]:
        """Return the labelled domains: `data.sources`, else all except the target."""
        return config.sources or tuple(name for name in self.domains(config) if name != config.target)

    def expected(self, config: DataConfig, domain: str) -> tuple[int, ...]:
        """Return the sizes that a complete domain can have; empty if they are unknown."""
        return ()

    def check_count(self, config: DataConfig, domain: str, count: int, path: Path, details: str = "") -> None:
        """Raise a `ValueError` if a domain is incomplete, unless `data.allow_partial` is set.

        A domain is incomplete if its `count` is unexpected, or if there are `details` about what is missing.
        """
        expected = self.expected(config, domain)
        if expected and (count not in expected or details) and not config.allow_partial:
            counts = " or ".join(f"{number:,}" for number in expected)
            raise ValueError(
                f"{path}: {count:,} samples of {self.name}, domain {domain}; expected {counts}"
                f"{details and ': ' + details}. Copy it again, or set data.allow_partial=true to use this part"
            )

    def home(self, config: DataConfig) -> Path:
        """Return the folder of the data set: one of `folders` below the data root, or the root itself."""
        if config.split == "test" and not self.splits:
            raise ValueError(f"data.split=test: {self.name} has no official splits; remove data.split")
        root = data_root(config.root)
        if root is None:
            raise ValueError(f"data.name={self.name} needs a data root: set data.root or $FEDRF_DATA")
        if not os.path.isdir(root):
            raise ValueError(f"data.root={root}: no such folder")
        return find_child(root, self.folders) or root

    def not_found_error(self, config: DataConfig, what: str, candidates: Iterable[Path | str]) -> ValueError:
        """Return the error for missing files; `candidates` are the paths that were tried."""
        paths = ", ".join(dict.fromkeys(str(candidate) for candidate in candidates))
        home = self.home(config)
        if self.folders and home == data_root(config.root):
            paths += f", and for the folder {home / self.folders[0]}"
        return ValueError(f"{self.name}: {what} not found; looked for {paths}. Available from {self.origin}")


def data_root(path: str | Path | None = None) -> Path | None:
    """Return the folder of all data sets: the given path, else $FEDRF_DATA, else None."""
    root = path or os.environ.get("FEDRF_DATA")
    return Path(root).expanduser() if root else None


def find_child(folder: Path, names: Iterable[str]) -> Path | None:
    """Return the entry of a folder with one of these names; case, spaces, dashes and underscores are ignored."""
    if not os.path.isdir(folder):
        return None
    children = {normalize_name(entry.name): Path(entry.path) for entry in reversed(list_entries(folder))}
    return next((children[key] for key in map(normalize_name, names) if key in children), None)


def list_entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, sorted by name, without system files such as `.DS_Store` and `__MACOSX`."""
    with wrap_read_errors(folder), os.scandir(folder) as entries:
        return sorted(
            (entry for entry in entries if not entry.name.startswith((".", "__"))), key=lambda entry: entry.name
        )


@contextmanager
def wrap_read_errors(path: Path) -> Iterator[None]:
    """Turn any exception while a file or folder is read into a `ValueError` of one line that names the path."""
    try:
        yield
    except Exception as error:  # parsers raise anything from KeyError to zlib.error on a damaged file
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        reason = f"no {reason} in it" if isinstance(error, KeyError) else reason
        raise ValueError(f"{path}: cannot be read ({reason.splitlines()[0]})") from error


def abbreviate(names: Sequence[object], limit: int = 5) -> str:
    """Return the first names, separated by commas, and the number of the others."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(str(name) for name in names[:limit]) + more


def normalize_name(name: str) -> str:
    """Return a name in lower case, without spaces, dashes and underscores."""
    return name.lower().translate(str.maketrans("", "", " -_"))
