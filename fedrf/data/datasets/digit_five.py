"""Digit-Five: the ten digits in five data sets, all as colour images of 32 × 32 pixels."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrf.config.schema import DataConfig
from fedrf.data.dataset import find_child, reading
from fedrf.data.datasets.image_lists import keep_existing, read_list
from fedrf.data.datasets.known_dataset import KnownDataset
from fedrf.data.feature_files import LABEL_KEYS, pick, read_arrays, whole_labels
from fedrf.data.samples import Arrays, CorruptImageError, ImageFiles, Samples

SIZE = 32
DIGITS = 10
BLOCK = 4096  # images that are resized at once
# Train and test of the versions that circulate, where there are several.
VERSIONS = {
    "mnist-m": ((60_000, 10_000), (59_001, 9_001), (55_000, 10_000)),
    "synthetic": ((479_400, 9_553), (25_000, 9_000)),
}
COUNTS = {
    "mnist": (60_000, 10_000),
    "mnist-m": VERSIONS["mnist-m"][0],
    "svhn": (73_257, 26_032),
    "synthetic": VERSIONS["synthetic"][0],
    "usps": (7_291, 2_007),
}
DOMAINS = {
    "mnist": ("MNIST",),
    "mnist-m": ("MNIST-M",),
    "svhn": ("SVHN",),
    "synthetic": ("SYNTH", "SYN", "SynthDigits", "SynDigits", "Synthetic", "SyntheticDigits"),
    "usps": ("USPS",),
}
IMAGE_KEYS = ("X", "x", "images", "data")

# What may hold one part of a domain, the preferred first; where several names are joined, all are needed.
_MNIST = ("{mnist}-images-idx3-ubyte", "{mnist}-labels-idx1-ubyte")
_SYNTH = ("synth", "syn_digits", "synthetic_digits")
FILES: dict[str, tuple[tuple[str, ...], ...]] = {
    "mnist": (_MNIST, tuple(f"{name}.gz" for name in _MNIST)),
    "mnist-m": (
        ("mnist_m_{part}.npz",),
        ("mnist_m_{part}_labels.txt", "mnist_m_{part}"),
        ("mnistm_with_label.mat",),
    ),
    "svhn": (("{part}_32x32.mat",), ("svhn_{part}_32x32.mat",)),
    "synthetic": (
        ("synth_{part}_32x32.mat",),
        *((f"{stem}_{{part}}.npz",) for stem in _SYNTH),
        *((f"{stem}_{{part}}_labels.txt", f"{stem}_{{part}}") for stem in _SYNTH),
        ("syn_number.mat",),
        ("synth_{part}_32x32_small.mat",),
    ),
    "usps": (("usps{usps}.bz2",),),
}
WORDS = {
    "train": {"part": "train", "mnist": "train", "usps": ""},
    "test": {"part": "test", "mnist": "t10k", "usps": ".t"},
}


class Part(NamedTuple):
    """Images (n, 3, 32, 32) and labels of one part of a domain; `skipped` were corrupt."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    skipped: int = 0
    names: Sequence[str] | None = None


class DigitFive(KnownDataset):
    """MNIST, MNIST-M, SVHN, Synthetic Digits and USPS, as files of the kinds that circulate."""

    settings = {"model.extractor": "efficientnet-lite0-small", "adapt.consistency": 1.0}
    name = "digit-five"
    about = "the ten digits in 5 domains, images of 32 × 32"
    origin = (
        "torchvision.datasets with download=True (MNIST, USPS, SVHN), https://ai.bu.edu/M3SDA and "
        "http://yaroslav.ganin.net (MNIST-M, Synthetic Digits)"
    )
    folders = ("digit_five", "digits5", "digit-5", "digits_five")
    splits = ("train", "test")
    domain_names = DOMAINS
    class_names = tuple(str(digit) for digit in range(DIGITS))
    counts = COUNTS

    def expected(self, config: DataConfig, domain: str) -> tuple[int, ...]:
        """Return the size of a domain, in each version of it."""
        versions = [dict(zip(self.splits, one, strict=True)) for one in VERSIONS.get(domain, (self.counts[domain],))]
        return tuple(dict.fromkeys(sum(one[part] for part in self.parts(config)) for one in versions))

    def locate(self, config: DataConfig, domain: str) -> Path | None:
        """Return the folder that has the files of one domain."""
        found = [self._find(config, domain, part) for part in self.parts(config)]
        return found[0][0].parent

    def load(self, config: DataConfig, domain: str) -> Samples:
        """Read one domain: uint8 of shape (n, 3, 32, 32)."""
        found = {part: self._find(config, domain, part) for part in self.parts(config)}
        parts = [READERS[domain](paths, part, config) for part, paths in found.items()]
        images, labels = parts[0].images, parts[0].labels
        if len(parts) > 1:
            images, labels = (np.concatenate([part[index] for part in parts]) for index in (0, 1))
        skipped = sum(part.skipped for part in parts)
        names = [name for part in parts for name in part.names or ()] or None
        self.check_count(config, domain, len(images) + skipped, next(iter(found.values()))[0])
        return replace(Samples.all_of(Arrays(images, names), labels), skipped=skipped)

    def _find(self, config: DataConfig, domain: str, part: str) -> list[Path]:
        """Return the files of one part."""
        home = self.home(config)
        own = find_child(home, self.domain_names[domain])
        places = [place for place in (own and find_child(own, ("raw",)), own, home) if place and os.path.isdir(place)]
        alternatives = [[name.format(**WORDS[part]) for name in names] for names in FILES[domain]]
        for names in alternatives:
            for place in places:
                paths = [path for name in names if (path := find_child(place, (name,)))]
                if len(paths) == len(names):
                    return paths
        what = ", or ".join(" and ".join(names) for names in alternatives)
        where = f"{own or home / self.domain_names[domain][0]} and {home}"
        raise self.missing(config, f"{part} part of {domain}", [f"{what} in {where}"])


def _read_mnist(paths: Sequence[Path], part: str, config: DataConfig) -> Part:
    from torchvision.datasets.mnist import read_image_file, read_label_file

    arrays = []
    for path, read in zip(paths, (read_image_file, read_label_file), strict=True):
        with reading(path), TemporaryDirectory() as scratch:
            file = path
            if path.suffix == ".gz":
                file = Path(scratch) / path.stem
                with gzip.open(path) as packed, file.open("wb") as unpacked:
                    shutil.copyfileobj(packed, unpacked)
            arrays.append(read(str(file)).numpy())
    return _part(paths[0], arrays[0], arrays[1])


def _read_usps(paths: Sequence[Path], part: str, config: DataConfig) -> Part:
    from torchvision.datasets import USPS

    with reading(paths[0]):
        read = _only(USPS, part, paths[0])(paths[0].parent, train=part == "train")
    return _part(paths[0], read.data, np.array(read.targets))


def _read_svhn(paths: Sequence[Path], part: str, config: DataConfig) -> Part:
    from torchvision.datasets import SVHN

    with reading(paths[0]):
        read = _only(SVHN, part, paths[0])(paths[0].parent, split=part)
    return _part(paths[0], read.data, read.labels)


def _only(dataset: Any, part: str, path: Path) -> Any:
    """Return torchvision's class for one file under the name it has here; its samples are counted, not hashed."""
    return type(dataset.__name__, (dataset,), {"split_list": {part: ["", path.name, None]}})


def _read_mnist_m(paths: Sequence[Path], part: str, config: DataConfig) -> Part:
    if len(paths) > 1:
        return _decoded(paths[0], paths[1], config)
    return _part(paths[0], *_arrays(paths[0], part))


def _read_synthetic(paths: Sequence[Path], part: str, config: DataConfig) -> Part:
    if len(paths) > 1:
        return _decoded(paths[0], paths[1], config)
    images, labels = _arrays(paths[0], part)
    return _part(paths[0], images, np.where(labels == 10, 0, labels))  # as SVHN has it


READERS: dict[str, Callable[[Sequence[Path], str, DataConfig], Part]] = {
    "mnist": _read_mnist,
    "mnist-m": _read_mnist_m,
    "svhn": _read_svhn,
    "synthetic": _read_synthetic,
    "usps": _read_usps,
}


def _arrays(path: Path, part: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read images, and labels as whole numbers, from a file that may have both parts."""
    arrays = read_arrays(path)
    images = pick(path, arrays, (part, f"{part}_data", *IMAGE_KEYS), "images")
    labels = pick(path, arrays, (f"label_{part}", f"{part}_label", *LABEL_KEYS), "labels")
    if labels.ndim == 2 and labels.shape[1] == DIGITS:
        if not (np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all()):
            raise ValueError(f"{path}: labels in {DIGITS} columns must be 0, but for one 1 in each row")
        return images, labels.argmax(axis=1)
    return images, whole_labels(path, labels)


def _decoded(source: Path, folder: Path, config: DataConfig) -> Part:
    """Decode a folder of images, with its list of labels."""
    listed = keep_existing(read_list(source, DIGITS), folder, source, config.allow_partial)
    content = ImageFiles(folder, listed.paths)
    images, labels, names = [], [], []
    for row, label in enumerate(listed.labels):
        try:
            pixels = np.asarray(content.image(row).convert("RGB"))
        except CorruptImageError:
            if not config.skip_corrupt:
                raise
            continue
        images.append(_resized(np.moveaxis(pixels, -1, 0)[None]))
        labels.append(label)
        names.append(f"{folder.name}/{listed.paths[row]}")
    if not images:
        raise ValueError(f"{folder}: not one of {len(listed.labels):,} images can be decoded")
    return Part(np.concatenate(images), np.array(labels), len(listed.labels) - len(labels), names)


def _part(path: Path, images: NDArray[Any], labels: NDArray[Any]) -> Part:
    """Check what was read from a file, and bring it into shape."""
    labels = labels.ravel()
    pixels = _pixels(path, _channels_first(path, images))
    if len(labels) != len(pixels):
        raise ValueError(f"{path}: {len(labels):,} labels for {len(pixels):,} images")
    wrong = labels[(labels < 0) | (labels >= DIGITS)] if labels.dtype.kind in "iu" else labels
    if len(wrong):
        raise ValueError(f"{path}: label {wrong[0]}; labels are 0 to {DIGITS - 1}")
    return Part(_resized(pixels), labels.astype(np.int64))


def _channels_first(path: Path, images: NDArray[Any]) -> NDArray[Any]:
    """Return images as (n, channels, height, width), whichever way they lie."""
    shape = images.shape if images.ndim != 3 else (*images.shape, 1)
    if len(shape) == 4 and 0 not in shape:
        if shape[1] == shape[2] and shape[3] in (1, 3):
            return np.moveaxis(images.reshape(shape), 3, 1)
        if shape[2] == shape[3] and shape[1] in (1, 3):
            return images
        if shape[0] == shape[1] and shape[2] in (1, 3):
            return images.transpose(3, 2, 0, 1)
    raise ValueError(f"{path}: images must be (n, size, size, 3) or the like; found {images.shape}")


def _pixels(path: Path, images: NDArray[Any]) -> NDArray[np.uint8]:
    """Return pixels as uint8."""
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind == "f" and images.min() >= 0 and images.max() <= 1:
        return np.asarray(np.rint(255 * images), dtype=np.uint8)
    raise ValueError(f"{path}: pixels must be uint8, or real numbers from 0 to 1; found {images.dtype}")


def _resized(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Resize (n, 1 or 3, height, width) to (n, 3, 32, 32)."""
    if images.shape[1:] == (3, SIZE, SIZE):
        return np.ascontiguousarray(images)
    down, right = (_interpolation(pixels) for pixels in images.shape[2:])
    resized = np.empty((len(images), 3, SIZE, SIZE), dtype=np.uint8)
    for start in range(0, len(images), BLOCK):
        block = images[start : start + BLOCK].astype(np.float32)
        resized[start : start + BLOCK] = np.rint(down @ block @ right.T)
    return resized


@cache
def _interpolation(pixels: int) -> NDArray[np.float32]:
    """Return the (32, pixels) matrix of linear interpolation, with a wider reach where it makes images smaller.

    From 28 or 16 pixels, weights are multiples of 1/16: sums are exact, and images the same on every machine.
    """
    step = pixels / SIZE
    centres = (np.arange(SIZE) + 0.5) * step - 0.5
    weights = np.maximum(0, 1 - np.abs(centres[:, None] - np.arange(pixels)) / max(step, 1))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)
