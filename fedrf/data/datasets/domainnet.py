"""DomainNet: 345 classes in six styles, read from its lists of images."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fedrf.config.schema import DataConfig
from fedrf.data.content import ImageFiles
from fedrf.data.dataset import PHOTO_SETTINGS, abbreviate, find_child
from fedrf.data.datasets.image_lists import ImageList, keep_existing, read_list
from fedrf.data.datasets.published_dataset import PublishedDataset
from fedrf.data.samples import Samples

NUM_CLASSES = 345
# Numbers of images in the lists for train and test.
COUNTS = {
    "clipart": (33_525, 14_604),
    "infograph": (36_023, 15_582),
    "painting": (50_416, 21_850),
    "quickdraw": (120_750, 51_750),
    "real": (120_906, 52_041),
    "sketch": (48_212, 20_916),
}
DOMAINS = {name: (name,) for name in COUNTS}


class DomainNet(PublishedDataset):
    """DomainNet, the cleaned version: `clipart/aircraft_carrier/*.jpg`, `clipart_train.txt`, `clipart_test.txt`."""

    settings = PHOTO_SETTINGS
    name = "domainnet"
    about = "345 classes in 6 domains, images"
    origin = "https://ai.bu.edu/M3SDA (cleaned version: an archive and two lists for each domain)"
    folders = ("domainnet", "domain_net")
    splits = ("train", "test")
    domain_names = DOMAINS
    counts = COUNTS
    quick = True

    def classes(self, config: DataConfig) -> tuple[str, ...]:
        """Return the names of the classes in the lists of the first domain that has lists."""
        home = self.home(config)
        for domain in self.domains(config):
            lists = [path for split in self.splits if (path := self._list(home, domain, split))]
            if lists:
                names = _class_names((path, read_list(path, NUM_CLASSES)) for path in lists)
                unnamed = [label for label in range(NUM_CLASSES) if label not in names]
                if unnamed and not config.allow_partial:
                    raise ValueError(
                        f"{abbreviate(lists)}: {len(names)} of {NUM_CLASSES} classes; no line has label "
                        f"{abbreviate(unnamed)}. Copy all of them, or set data.allow_partial=true to use this part"
                    )
                return tuple(names.get(label, f"class {label}") for label in range(NUM_CLASSES))
        candidates = [home / f"{name}_train.txt" for name in self.domains(config)]
        raise self.not_found_error(config, "any list of images", candidates)

    def num_classes(self, config: DataConfig) -> int:
        """Return the number of classes of the complete data set."""
        return NUM_CLASSES

    def locate(self, config: DataConfig, domain: str) -> Path:
        """Return the folder of one domain; its lists must exist too."""
        home = self.home(config)
        self._lists(config, domain)
        folder = find_child(home, (domain,))
        if folder is None:
            raise self.not_found_error(config, f"domain {domain}", [home / domain])
        return folder

    def load(self, config: DataConfig, domain: str) -> Samples:
        """Read the lists of one domain."""
        self.locate(config, domain)
        home, list_paths = self.home(config), self._lists(config, domain)
        lists = [read_list(path, NUM_CLASSES) for path in list_paths]
        _class_names(zip(list_paths, lists, strict=True))
        self.check_count(config, domain, sum(len(listed.paths) for listed in lists), list_paths[0])
        existing = [
            keep_existing(listed, home, path, config.allow_partial)
            for path, listed in zip(list_paths, lists, strict=True)
        ]
        labels = np.array([label for listed in existing for label in listed.labels])
        return Samples.all_of(ImageFiles(home, [path for listed in existing for path in listed.paths]), labels)

    def _lists(self, config: DataConfig, domain: str) -> list[Path]:
        """Return the list of each selected split."""
        home = self.home(config)
        paths = {f"{domain}_{split}.txt": self._list(home, domain, split) for split in self.selected_splits(config)}
        lists = [path for path in paths.values() if path]
        if len(lists) < len(paths):
            candidates = [folder / name for name, path in paths.items() if not path for folder in self._folders(home)]
            raise self.not_found_error(config, f"domain {domain}", candidates)
        return lists

    def _list(self, home: Path, domain: str, split: str) -> Path | None:
        """Return the list of one split, if it exists."""
        paths = (find_child(folder, (f"{domain}_{split}.txt",)) for folder in self._folders(home))
        return next((path for path in paths if path), None)

    def _folders(self, home: Path) -> list[Path]:
        """Return the folders that can contain lists."""
        return [home, *(folder for name in ("splits", "txt", "image_list") if (folder := find_child(home, (name,))))]


def _class_names(lists: Iterable[tuple[Path, ImageList]]) -> dict[int, str]:
    """Return the class folder of each label; each label must have the same folder on all lines."""
    names: dict[int, str] = {}
    for list_path, listed in lists:
        for path, label in zip(*listed, strict=True):
            name = path.rpartition("/")[0].rpartition("/")[2]
            if names.setdefault(label, name) != name:
                raise ValueError(f"{list_path}: {path} has label {label}, which is {names[label]} on another line")
    return names
