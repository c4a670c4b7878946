"""Read the files of Digit-Five, and resize their images to 32 × 32 pixels in colour."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrf.config.schema import DataConfig
from fedrf.data.content import CorruptImageError, ImageFiles
from fedrf.data.dataset import wrap_read_errors
from fedrf.data.datasets.image_lists import keep_existing, read_list
from fedrf.data.feature_files import LABEL_KEYS, pick, read_arrays, whole_labels

SIZE = 32
NUM_CLASSES = 10
BLOCK = 4096  # number of images that are resized at once
IMAGE_KEYS = ("X", "x", "images", "data")


class DigitArrays(NamedTuple):
    """Images (n, 3, 32, 32) and labels of one split of a domain, and the number of corrupt images that were skipped."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    skipped: int = 0
    names: Sequence[str] | None = None


def _read_mnist(paths: Sequence[Path], split: str, config: DataConfig) -> DigitArrays:
    from torchvision.datasets.mnist import read_image_file, read_label_file

    arrays = []
    for path, read in zip(paths, (read_image_file, read_label_file), strict=True):
        with wrap_read_errors(path), TemporaryDirectory() as folder:
            file = path
            if path.suffix == ".gz":
                file = Path(folder) / path.stem
                with gzip.open(path) as compressed, file.open("wb") as decompressed:
                    shutil.copyfileobj(compressed, decompressed)
            arrays.append(read(str(file)).numpy())
    return _checked(paths[0], arrays[0], arrays[1])


def _read_usps(paths: Sequence[Path], split: str, config: DataConfig) -> DigitArrays:
    from torchvision.datasets import USPS

    with wrap_read_errors(paths[0]):
        dataset = _with_file(USPS, split, paths[0])(paths[0].parent, train=split == "train")
    return _checked(paths[0], dataset.data, np.array(dataset.targets))


def _read_svhn(paths: Sequence[Path], split: str, config: DataConfig) -> DigitArrays:
    from torchvision.datasets import SVHN

    with wrap_read_errors(paths[0]):
        dataset = _with_file(SVHN, split, paths[0])(paths[0].parent, split=split)
    return _checked(paths[0], dataset.data, dataset.labels)


def _with_file(dataset: Any, split: str, path: Path) -> Any:
    """Return a class of torchvision that reads this file, whatever its name and hash."""
    return type(dataset.__name__, (dataset,), {"split_list": {split: ["", path.name, None]}})


def _read_mnist_m(paths: Sequence[Path], split: str, config: DataConfig) -> DigitArrays:
    if len(paths) > 1:
        return _read_images(paths[0], paths[1], config)
    return _checked(paths[0], *_read_arrays(paths[0], split))


def _read_synthetic(paths: Sequence[Path], split: str, config: DataConfig) -> DigitArrays:
    if len(paths) > 1:
        return _read_images(paths[0], paths[1], config)
    images, labels = _read_arrays(paths[0], split)
    return _checked(paths[0], images, np.where(labels == 10, 0, labels))  # 10 is the digit 0, as in SVHN


READERS: dict[str, Callable[[Sequence[Path], str, DataConfig], DigitArrays]] = {
    "mnist": _read_mnist,
    "mnist-m": _read_mnist_m,
    "svhn": _read_svhn,
    "synthetic": _read_synthetic,
    "usps": _read_usps,
}


def _read_arrays(path: Path, split: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read images, and labels as whole numbers, from a file with one or both splits."""
    arrays = read_arrays(path)
    images = pick(path, arrays, (split, f"{split}_data", *IMAGE_KEYS), "images")
    labels = pick(path, arrays, (f"label_{split}", f"{split}_label", *LABEL_KEYS), "labels")
    if labels.ndim == 2 and labels.shape[1] == NUM_CLASSES:
        if not (np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all()):
            raise ValueError(f"{path}: labels in {NUM_CLASSES} columns must have one 1 in each row, and 0 elsewhere")
        return images, labels.argmax(axis=1)
    return images, whole_labels(path, labels)


def _read_images(list_path: Path, folder: Path, config: DataConfig) -> DigitArrays:
    """Decode the images of a folder, given the list of their labels."""
    listed = keep_existing(read_list(list_path, NUM_CLASSES), folder, list_path, config.allow_partial)
    content = ImageFiles(folder, listed.paths)
    images, labels, names = [], [], []
    for row, label in enumerate(listed.labels):
        try:
            pixels = np.asarray(content.image(row).convert("RGB"))
        except CorruptImageError:
            if not config.skip_corrupt:
                raise
            continue
        images.append(resize(np.moveaxis(pixels, -1, 0)[None]))
        labels.append(label)
        names.append(f"{folder.name}/{listed.paths[row]}")
    if not images:
        raise ValueError(f"{folder}: none of {len(listed.labels):,} images can be decoded")
    return DigitArrays(np.concatenate(images), np.array(labels), len(listed.labels) - len(labels), names)


def _checked(path: Path, images: NDArray[Any], labels: NDArray[Any]) -> DigitArrays:
    """Check the content of a file, and resize the images."""
    labels = labels.ravel()
    pixels = _pixels(path, _channels_first(path, images))
    if len(labels) != len(pixels):
        raise ValueError(f"{path}: {len(labels):,} labels for {len(pixels):,} images")
    invalid = labels[(labels < 0) | (labels >= NUM_CLASSES)] if labels.dtype.kind in "iu" else labels
    if len(invalid):
        raise ValueError(f"{path}: label {invalid[0]}; labels are 0 to {NUM_CLASSES - 1}")
    return DigitArrays(resize(pixels), labels.astype(np.int64))


def _channels_first(path: Path, images: NDArray[Any]) -> NDArray[Any]:
    """Return images as (n, channels, height, width), for any order of these axes in common files."""
    shape = images.shape if images.ndim != 3 else (*images.shape, 1)
    if len(shape) == 4 and 0 not in shape:
        if shape[1] == shape[2] and shape[3] in (1, 3):
            return np.moveaxis(images.reshape(shape), 3, 1)
        if shape[2] == shape[3] and shape[1] in (1, 3):
            return images
        if shape[0] == shape[1] and shape[2] in (1, 3):
            return images.transpose(3, 2, 0, 1)
    raise ValueError(f"{path}: images must have a shape such as (n, size, size, 3); found {images.shape}")


def _pixels(path: Path, images: NDArray[Any]) -> NDArray[np.uint8]:
    """Return pixels as uint8; real numbers must be from 0 to 1."""
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind == "f" and images.min() >= 0 and images.max() <= 1:
        return np.asarray(np.rint(255 * images), dtype=np.uint8)
    raise ValueError(f"{path}: pixels must be uint8, or real numbers from 0 to 1; found {images.dtype}")


def resize(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Resize images (n, 1 or 3, height, width) to (n, 3, 32, 32)."""
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
    """Return the (32, pixels) matrix of linear interpolation, with antialiasing if images become smaller.

    From 28 or 16 pixels, weights are multiples of 1/16. Sums are exact then, and images are equal on all machines.
    """
    step = pixels / SIZE
    centres = (np.arange(SIZE) + 0.5) * step - 0.5
    weights = np.maximum(0, 1 - np.abs(centres[:, None] - np.arange(pixels)) / max(step, 1))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)
