"""Images in one folder for each class: how they are found, data sets of known classes, and any folder of one's own."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from fedrf.config.schema import DataConfig
from fedrf.data.dataset import PHOTOGRAPHS, Dataset, entries, find_child, plain, some
from fedrf.data.datasets.known_dataset import KnownDataset
from fedrf.data.samples import ImageFiles, Samples

SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff", ".gif", ".avif")


class Listing(NamedTuple):
    """Image files of one domain, relative to `folder`: by the name of their class folder, or without any."""

    folder: Path
    classes: dict[str, list[str]]
    loose: list[str]


def image_home(folder: Path) -> Path:
    """Return where the class folders of a domain are: in `images`, if that is all there is, else in the folder."""
    folders, files = _content(folder)
    return folder / folders[0] if [plain(name) for name in folders] == ["images"] and not files else folder


def list_images(folder: Path) -> Listing:
    """List the images of one domain; anything but an image is overlooked."""
    names, loose = _content(folder)
    if names and loose:
        raise ValueError(
            f"{folder}: images both in class folders ({some(names)}) and beside them ({some(loose)}); move these"
        )
    classes = {}
    for name in names:
        nested, files = _content(folder / name)
        if nested:
            raise ValueError(f"{folder / name / nested[0]}: a folder inside a class folder; move its images up")
        classes[name] = [f"{name}/{file}" for file in files]
    if not loose and not any(classes.values()):
        raise ValueError(f"{folder}: no image in it or its class folders; names must end in {', '.join(SUFFIXES)}")
    return Listing(folder, classes, loose)


def label_images(listing: Listing, labels: Mapping[str, int]) -> Samples:
    """Return the images of the class folders that have a label."""
    chosen = {name: files for name, files in listing.classes.items() if name in labels}
    numbers = np.repeat([labels[name] for name in chosen], [len(files) for files in chosen.values()])
    paths = [path for files in chosen.values() for path in files]
    return Samples.all_of(ImageFiles(listing.folder, paths), numbers)


def _content(folder: Path) -> tuple[list[str], list[str]]:
    """Return the names of folders and of images in a folder."""
    found = entries(folder)
    for one in found:
        if one.is_symlink() and not os.path.exists(one.path):
            raise ValueError(f"{one.path}: a link to nothing; copy what it should lead to, or remove it")
    folders = [one.name for one in found if one.is_dir()]
    return folders, [one.name for one in found if one.name.lower().endswith(SUFFIXES) and one.is_file()]


class ClassFolders(KnownDataset):
    """A data set as `<domain>/<class>` or `<domain>/images/<class>`.

    Attributes
    ----------
    class_aliases
        Other names of class folders, and the class of each.
    foreign_classes
        Class folders of another data set that may lie beside its own, and do not matter.
    """

    settings = PHOTOGRAPHS
    class_aliases: ClassVar[Mapping[str, str]] = {}
    foreign_classes: ClassVar[Sequence[str]] = ()

    def places(self, config: DataConfig, domain: str) -> list[Path]:
        """Return the folders that may have the folder of a domain."""
        return [self.home(config)]

    def locate(self, config: DataConfig, domain: str) -> Path:
        """Return the folder that has the class folders of one domain."""
        places = self.places(config, domain)
        for place in places:
            folder = find_child(place, self.domain_names[domain])
            if folder is not None:
                return image_home(folder)
        raise self.missing(config, f"domain {domain}", [place / self.domain_names[domain][0] for place in places])

    def load(self, config: DataConfig, domain: str) -> Samples:
        """List one domain; without `data.allow_partial`, all images must be there."""
        listing = list_images(self.locate(config, domain))
        labels = self._labels(listing)
        samples = label_images(listing, labels)
        sizes = {label: len(listing.classes[name]) for name, label in labels.items()}
        self.check_count(config, domain, len(samples), listing.folder, some(self._differences(domain, sizes), 3))
        if not len(samples):
            raise ValueError(f"{listing.folder}: no image of {self.name} in its class folders")
        return samples

    def _labels(self, listing: Listing) -> dict[str, int]:
        """Return the label of each class folder."""
        known = {plain(name): label for label, name in enumerate(self.class_names)}
        known |= {plain(alias): known[plain(name)] for alias, name in self.class_aliases.items()}
        foreign = {plain(name) for name in self.foreign_classes}
        labels: dict[str, int] = {}
        for name in listing.classes:
            key = plain(re.sub(r"^\d+\.", "", name))  # Caltech-256 numbers its folders: 003.backpack
            if key not in known:
                if key in foreign or (foreign and key != plain(name)):  # the other classes of Caltech-256 are numbered
                    continue
                raise ValueError(f"{listing.folder / name}: not a class of {self.name}; move it elsewhere")
            if known[key] in labels.values():
                raise ValueError(f"{listing.folder / name}: a second folder of class {self.class_names[known[key]]}")
            labels[name] = known[key]
        if not labels:
            raise ValueError(f"{listing.folder}: no class folder of {self.name}, such as {some(self.class_names, 3)}")
        return labels

    def _differences(self, domain: str, sizes: Mapping[int, int]) -> list[str]:
        """Say which classes are short, as far as that can be told."""
        whole = self.counts[domain]
        if len(whole) < len(self.class_names):
            return [f"no {name}" for label, name in enumerate(self.class_names) if not sizes.get(label)]
        pairs = [(name, sizes.get(label, 0), whole[label]) for label, name in enumerate(self.class_names)]
        return [f"{name} {found} of {wanted}" for name, found, wanted in pairs if found != wanted]


class ImageFolder(Dataset):
    """Any folder `root/<domain>/<class>/*.jpg`; a target may have its images without class folders, thus no labels."""

    settings = PHOTOGRAPHS
    user_defined = True
    name = "folder"
    about = "your own images: <domain>/<class>/*.jpg"
    origin = "your own folder, data.root"

    def domains(self, config: DataConfig) -> tuple[str, ...]:
        """Return the folders below the data root."""
        return tuple(_content(self.home(config))[0])

    def classes(self, config: DataConfig) -> tuple[str, ...]:
        """Return `data.classes`, else the class folders of all sources."""
        if config.classes:
            return config.classes
        folders = [self.locate(config, domain) for domain in self.sources(config)]
        names = sorted({name for folder in folders for name in _content(folder)[0]})
        if len(names) < 2:
            where = some(folders) or self.home(config)
            raise ValueError(f"{where}: class folders found: {some(names) or 'none'}; sources need at least two")
        return tuple(names)

    def locate(self, config: DataConfig, domain: str) -> Path:
        """Return the folder that has the class folders, or images, of one domain."""
        if domain not in self.domains(config):
            raise self.missing(config, f"domain {domain}", [self.home(config) / domain])
        return image_home(self.home(config) / domain)

    def load(self, config: DataConfig, domain: str) -> Samples:
        """List one domain."""
        listing = list_images(self.locate(config, domain))
        if listing.loose:
            return Samples.all_of(ImageFiles(listing.folder, listing.loose), None)
        classes = self.classes(config)
        for name in listing.classes:
            if name not in classes:
                raise ValueError(f"{listing.folder / name}: not one of the classes {some(classes)}; see data.classes")
        return label_images(listing, {name: label for label, name in enumerate(classes) if name in listing.classes})
