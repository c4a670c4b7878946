"""Images in one folder for each class: published data sets, and folders of the user."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from fedrf.config.schema import DataConfig
from fedrf.data.content import ImageFiles
from fedrf.data.dataset import PHOTO_SETTINGS, Dataset, abbreviate, find_child, list_entries, normalize_name
from fedrf.data.datasets.published_dataset import PublishedDataset
from fedrf.data.samples import Samples

SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff", ".gif", ".avif")


class Listing(NamedTuple):
    """Image files of one domain, relative to `folder`: those of each class folder, and those outside class folders."""

    folder: Path
    classes: dict[str, list[str]]
    loose: list[str]


def image_home(folder: Path) -> Path:
    """Return the folder with the class folders of a domain: `images` if it is the only entry, else `folder`."""
    folders, files = _content(folder)
    return folder / folders[0] if [normalize_name(name) for name in folders] == ["images"] and not files else folder


def list_images(folder: Path) -> Listing:
    """List the images of one domain; other files are ignored."""
    names, loose = _content(folder)
    if names and loose:
        raise ValueError(
            f"{folder}: images both in class folders ({abbreviate(names)}) and beside them ({abbreviate(loose)}); "
            "move the latter into class folders"
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
    entries = list_entries(folder)
    for entry in entries:
        if entry.is_symlink() and not os.path.exists(entry.path):
            raise ValueError(f"{entry.path}: a broken link; restore its destination, or remove it")
    folders = [entry.name for entry in entries if entry.is_dir()]
    return folders, [entry.name for entry in entries if entry.name.lower().endswith(SUFFIXES) and entry.is_file()]


class ClassFolders(PublishedDataset):
    """A published data set as `<domain>/<class>` or `<domain>/images/<class>`.

    Attributes
    ----------
    class_aliases
        Alternative names of class folders, and the class of each.
    ignored_classes
        Class folders of another data set, which are ignored.
    """

    settings = PHOTO_SETTINGS
    quick = True
    class_aliases: ClassVar[Mapping[str, str]] = {}
    ignored_classes: ClassVar[Sequence[str]] = ()

    def search_folders(self, config: DataConfig, domain: str) -> list[Path]:
        """Return the folders in which the folder of a domain can be."""
        return [self.home(config)]

    def locate(self, config: DataConfig, domain: str) -> Path:
        """Return the folder with the class folders of one domain."""
        parents = self.search_folders(config, domain)
        for parent in parents:
            folder = find_child(parent, self.domain_names[domain])
            if folder is not None:
                return image_home(folder)
        candidates = [parent / self.domain_names[domain][0] for parent in parents]
        raise self.not_found_error(config, f"domain {domain}", candidates)

    def load(self, config: DataConfig, domain: str) -> Samples:
        """List one domain; all images must exist, unless `data.allow_partial` is set."""
        listing = list_images(self.locate(config, domain))
        labels = self._labels(listing)
        samples = label_images(listing, labels)
        sizes = {label: len(listing.classes[name]) for name, label in labels.items()}
        differences = abbreviate(self._differences(domain, sizes), 3)
        self.check_count(config, domain, len(samples), listing.folder, differences)
        if not len(samples):
            raise ValueError(f"{listing.folder}: no image of {self.name} in its class folders")
        return samples

    def _labels(self, listing: Listing) -> dict[str, int]:
        """Return the label of each class folder."""
        label_of = {normalize_name(name): label for label, name in enumerate(self.class_names)}
        label_of |= {
            normalize_name(alias): label_of[normalize_name(name)] for alias, name in self.class_aliases.items()
        }
        ignored = {normalize_name(name) for name in self.ignored_classes}
        labels: dict[str, int] = {}
        for name in listing.classes:
            key = normalize_name(re.sub(r"^\d+\.", "", name))  # Caltech-256 numbers its folders: 003.backpack
            if key not in label_of:
                numbered = key != normalize_name(name)
                if key in ignored or (ignored and numbered):  # another class of Caltech-256
                    continue
                raise ValueError(f"{listing.folder / name}: not a class of {self.name}; move it elsewhere")
            if label_of[key] in labels.values():
                raise ValueError(f"{listing.folder / name}: a second folder of class {self.class_names[label_of[key]]}")
            labels[name] = label_of[key]
        if not labels:
            examples = abbreviate(self.class_names, 3)
            raise ValueError(f"{listing.folder}: no class folder of {self.name}, such as {examples}")
        return labels

    def _differences(self, domain: str, sizes: Mapping[int, int]) -> list[str]:
        """Return the classes with missing images; if the sizes of classes are unknown, the missing classes."""
        counts = self.counts[domain]
        if len(counts) < len(self.class_names):
            return [f"no {name}" for label, name in enumerate(self.class_names) if not sizes.get(label)]
        triples = [(name, sizes.get(label, 0), counts[label]) for label, name in enumerate(self.class_names)]
        return [f"{name} {size} of {expected}" for name, size, expected in triples if size != expected]


class ImageFolder(Dataset):
    """A folder of the user: `root/<domain>/<class>/*.jpg`. A target without labels has no class folders."""

    settings = PHOTO_SETTINGS
    user_defined = True
    quick = True
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
            path = abbreviate(folders) or self.home(config)
            raise ValueError(f"{path}: class folders found: {abbreviate(names) or 'none'}; sources need at least two")
        return tuple(names)

    def locate(self, config: DataConfig, domain: str) -> Path:
        """Return the folder with the class folders, or images, of one domain."""
        if domain not in self.domains(config):
            raise self.not_found_error(config, f"domain {domain}", [self.home(config) / domain])
        return image_home(self.home(config) / domain)

    def load(self, config: DataConfig, domain: str) -> Samples:
        """List one domain."""
        listing = list_images(self.locate(config, domain))
        if listing.loose:
            return Samples.all_of(ImageFiles(listing.folder, listing.loose), None)
        classes = self.classes(config)
        for name in listing.classes:
            if name not in classes:
                raise ValueError(
                    f"{listing.folder / name}: not one of the classes {abbreviate(classes)}; see data.classes"
                )
        return label_images(listing, {name: label for label, name in enumerate(classes) if name in listing.classes})
