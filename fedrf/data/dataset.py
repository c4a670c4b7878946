"""What every data set can tell: its domains, its classes, and the samples of one domain; and how it complains."""

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
PHOTOGRAPHS: Mapping[str, Any] = {"model.extractor": "efficientnet-lite0-plus"}


class Dataset(ABC):
    """One data set, or one form of it.

    Attributes
    ----------
    name
        Value of `data.name`.
    about
        What it is, in a few words.
    origin
        Where people get it.
    folders
        Names of its folder below the data root, the usual one first.
    splits
        Official parts of each domain, if there are any; `data.split` chooses.
    content
        What samples are: `images` or rows of `features`.
    settings
        Defaults of configuration keys that differ from those of `fedrf.config.schema`.
    user_defined
        Whether domains and classes are those of the user's files, and not known beforehand.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    origin: ClassVar[str]
    folders: ClassVar[tuple[str, ...]] = ()
    splits: ClassVar[tuple[str, ...]] = ()
    content: ClassVar[Literal["images", "features"]] = "images"
    settings: ClassVar[Mapping[str, Any]] = {}
    user_defined: ClassVar[bool] = False

    @abstractmethod
    def domains(self, config: DataConfig) -> tuple[str, ...]:
        """Return the names of all domains."""

    @abstractmethod
    def classes(self, config: DataConfig) -> tuple[str, ...]:
        """Return the names of the classes, in the order of their labels."""

    def num_classes(self, config: DataConfig) -> int:
        """Return the number of classes; where a coordinator must do without the data, without reading them."""
        return len(self.classes(config))

    @abstractmethod
    def load(self, config: DataConfig, domain: str) -> Samples:
        """Return all samples of one domain, checked; a `ValueError` names the file or folder that is wrong."""

    @abstractmethod
    def locate(self, config: DataConfig, domain: str) -> Path | None:
        """Return the file or folder of one domain without reading it; a `ValueError` tells where it was looked for.

        None where there is nothing to be found, because the samples are made on the spot.
        """

    def check_together(self, config: DataConfig, domains: Sequence[str]) -> None:  # noqa: B027
        """Make sure that these domains fit together, where that is not known beforehand."""

    def sources(self, config: DataConfig) -> tuple[str, ...]:
        """Return the labelled domains: those that were named, else all but the target."""
        return config.sources or tuple(name for name in self.domains(config) if name != config.target)

    def expected(self, config: DataConfig, domain: str) -> tuple[int, ...]:
        """Return the numbers of samples that a whole domain may have; none where that is not known."""
        return ()

    def check_count(self, config: DataConfig, domain: str, found: int, where: Path, hint: str = "") -> None:
        """Refuse a domain of another size, or with a `hint` at what is wrong, unless `data.allow_partial` is set."""
        expected = self.expected(config, domain)
        if expected and (found not in expected or hint) and not config.allow_partial:
            wanted = " or ".join(f"{number:,}" for number in expected)
            raise ValueError(
                f"{where}: {found:,} samples of {self.name}, domain {domain}; expected {wanted}{hint and ': ' + hint}. "
                "Copy it again, or set data.allow_partial=true if that is meant"
            )

    def home(self, config: DataConfig) -> Path:
        """Return the folder of the data set: one of `folders` below the data root, or the root itself."""
        if config.split == "test" and not self.splits:
            raise ValueError(f"data.split=test: {self.name} does not come in such parts; leave data.split out")
        root = data_root(config.root)
        if root is None:
            raise ValueError(f"data.name={self.name} needs a data root: set data.root or $FEDRF_DATA")
        if not os.path.isdir(root):
            raise ValueError(f"data.root={root}: no such folder")
        return find_child(root, self.folders) or root

    def missing(self, config: DataConfig, what: str, looked: Iterable[Path | str]) -> ValueError:
        """Return the error for something that is not there."""
        places = ", ".join(dict.fromkeys(str(place) for place in looked))
        home = self.home(config)
        if self.folders and home == data_root(config.root):
            places += f", and for the folder {home / self.folders[0]}"
        return ValueError(f"{self.name}: {what} not found; looked for {places}. To be had from {self.origin}")


def data_root(given: str | Path | None = None) -> Path | None:
    """Return where data sets are: what was given, else $FEDRF_DATA, else None."""
    root = given or os.environ.get("FEDRF_DATA")
    return Path(root).expanduser() if root else None


def find_child(folder: Path, names: Iterable[str]) -> Path | None:
    """Return the entry of a folder that has one of these names, whatever its case, spaces, dashes and underscores."""
    if not os.path.isdir(folder):
        return None
    children = {plain(entry.name): Path(entry.path) for entry in reversed(entries(folder))}
    return next((children[plain(name)] for name in names if plain(name) in children), None)


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder, by name; what systems put there (`.DS_Store`, `__MACOSX`) is left out."""
    with reading(folder), os.scandir(folder) as found:
        return sorted((one for one in found if not one.name.startswith((".", "__"))), key=lambda one: one.name)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong while a file or folder is read into one line that names it."""
    try:
        yield
    except Exception as error:  # parsers raise anything from KeyError to zlib.error on a damaged file
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        reason = f"no {reason} in it" if isinstance(error, KeyError) else reason
        raise ValueError(f"{path}: cannot be read ({reason.splitlines()[0]})") from error


def some(names: Sequence[object], limit: int = 5) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(str(name) for name in names[:limit]) + more


def plain(name: str) -> str:
    """Reduce a name to what people agree on."""
    return name.lower().translate(str.maketrans("", "", " -_"))
