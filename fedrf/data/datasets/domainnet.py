"""DomainNet: 345 classes in six styles, by the lists that come with it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fedrf.config.schema import DataConfig
from fedrf.data.dataset import PHOTOGRAPHS, find_child, some
from fedrf.data.datasets.image_lists import ImageList, keep_existing, read_list
from fedrf.data.datasets.known_dataset import KnownDataset
from fedrf.data.samples import ImageFiles, Samples

NUM_CLASSES = 345
# Lines of the lists for train and test.
COUNTS = {
    "clipart": (33_525, 14_604),
    "infograph": (36_023, 15_582),
    "painting": (50_416, 21_850),
    "quickdraw": (120_750, 51_750),
    "real": (120_906, 52_041),
    "sketch": (48_212, 20_916),
}
DOMAINS = {name: (name,) for name in COUNTS}


class DomainNet(KnownDataset):
    """DomainNet, the cleaned version: `clipart/aircraft_carrier/*.jpg`, `clipart_train.txt`, `clipart_test.txt`."""

    settings = PHOTOGRAPHS
    name = "domainnet"
    about = "345 classes in 6 domains, images"
    origin = "https://ai.bu.edu/M3SDA (cleaned version: an archive and two lists for each domain)"
    folders = ("domainnet", "domain_net")
    splits = ("train", "test")
    domain_names = DOMAINS
    counts = COUNTS

    def classes(self, config: DataConfig) -> tuple[str, ...]:
        """Return the names that the lists of one domain, the first that has any, give the numbers."""
        home = self.home(config)
        for domain in self.domains(config):
            lists = [path for part in self.splits if (path := self._list(home, domain, part))]
            if lists:
                names = _names((path, read_list(path, NUM_CLASSES)) for path in lists)
                unnamed = [label for label in range(NUM_CLASSES) if label not in names]
                if unnamed and not config.allow_partial:
                    raise ValueError(
                        f"{some(lists)}: {len(names)} of {NUM_CLASSES} classes; no line has label {some(unnamed)}. "
                        "Copy whole lists, or set data.allow_partial=true if that is meant"
                    )
                return tuple(names.get(label, f"class {label}") for label in range(NUM_CLASSES))
        raise self.missing(config, "any list of images", [home / f"{name}_train.txt" for name in self.domains(config)])

    def num_classes(self, config: DataConfig) -> int:
        """Return the number of classes, whatever the lists have of them."""
        return NUM_CLASSES

    def locate(self, config: DataConfig, domain: str) -> Path:
        """Return the folder of one domain, if its lists are there too."""
        home = self.home(config)
        self._lists(config, domain)
        folder = find_child(home, (domain,))
        if folder is None:
            raise self.missing(config, f"domain {domain}", [home / domain])
        return folder

    def load(self, config: DataConfig, domain: str) -> Samples:
        """Read the lists of one domain."""
        self.locate(config, domain)
        home, sources = self.home(config), self._lists(config, domain)
        lists = [read_list(path, NUM_CLASSES) for path in sources]
        _names(zip(sources, lists, strict=True))
        self.check_count(config, domain, sum(len(one.paths) for one in lists), sources[0])
        kept = [keep_existing(one, home, path, config.allow_partial) for path, one in zip(sources, lists, strict=True)]
        labels = np.array([label for one in kept for label in one.labels])
        return Samples.all_of(ImageFiles(home, [path for one in kept for path in one.paths]), labels)

    def _lists(self, config: DataConfig, domain: str) -> list[Path]:
        home = self.home(config)
        found = {f"{domain}_{part}.txt": self._list(home, domain, part) for part in self.parts(config)}
        lists = [path for path in found.values() if path]
        if len(lists) < len(found):
            looked = [place / name for name, path in found.items() if not path for place in self._places(home)]
            raise self.missing(config, f"domain {domain}", looked)
        return lists

    def _list(self, home: Path, domain: str, part: str) -> Path | None:
        found = (find_child(place, (f"{domain}_{part}.txt",)) for place in self._places(home))
        return next((path for path in found if path), None)

    def _places(self, home: Path) -> list[Path]:
        return [home, *(place for name in ("splits", "txt", "image_list") if (place := find_child(home, (name,))))]


def _names(lists: Iterable[tuple[Path, ImageList]]) -> dict[int, str]:
    """Return the class folder of each label, which must be the same on every line."""
    names: dict[int, str] = {}
    for source, listed in lists:
        for path, label in zip(*listed, strict=True):
            name = path.rpartition("/")[0].rpartition("/")[2]
            if names.setdefault(label, name) != name:
                raise ValueError(f"{source}: {path} has label {label}, which is {names[label]} on another line")
    return names
