"""Digit-Five: the ten digits in five domains, as colour images of 32 × 32 pixels."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedrf.config.schema import DataConfig
from fedrf.data.content import Arrays
from fedrf.data.dataset import find_child
from fedrf.data.datasets.digit_readers import NUM_CLASSES, READERS
from fedrf.data.datasets.published_dataset import PublishedDataset
from fedrf.data.samples import Samples

# Sizes of train and test, for domains with several common versions.
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

# Alternative files of one split of a domain, in order of preference; all names of an alternative are needed.
_MNIST = ("{mnist}-images-idx3-ubyte", "{mnist}-labels-idx1-ubyte")
_SYNTH = ("synth", "syn_digits", "synthetic_digits")
FILES: dict[str, tuple[tuple[str, ...], ...]] = {
    "mnist": (_MNIST, tuple(f"{name}.gz" for name in _MNIST)),
    "mnist-m": (
        ("mnist_m_{split}.npz",),
        ("mnist_m_{split}_labels.txt", "mnist_m_{split}"),
        ("mnistm_with_label.mat",),
    ),
    "svhn": (("{split}_32x32.mat",), ("svhn_{split}_32x32.mat",)),
    "synthetic": (
        ("synth_{split}_32x32.mat",),
        *((f"{stem}_{{split}}.npz",) for stem in _SYNTH),
        *((f"{stem}_{{split}}_labels.txt", f"{stem}_{{split}}") for stem in _SYNTH),
        ("syn_number.mat",),
        ("synth_{split}_32x32_small.mat",),
    ),
    "usps": (("usps{usps}.bz2",),),
}
# Values of the placeholders in FILES.
SPLIT_NAMES = {
    "train": {"split": "train", "mnist": "train", "usps": ""},
    "test": {"split": "test", "mnist": "t10k", "usps": ".t"},
}


class DigitFive(PublishedDataset):
    """MNIST, MNIST-M, SVHN, Synthetic Digits and USPS, in their common file formats."""

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
    class_names = tuple(str(digit) for digit in range(NUM_CLASSES))
    counts = COUNTS

    def expected(self, config: DataConfig, domain: str) -> tuple[int, ...]:
        """Return the size of each version of a domain."""
        versions = [
            dict(zip(self.splits, sizes, strict=True)) for sizes in VERSIONS.get(domain, (self.counts[domain],))
        ]
        selected = self.selected_splits(config)
        return tuple(dict.fromkeys(sum(version[split] for split in selected) for version in versions))

    def locate(self, config: DataConfig, domain: str) -> Path | None:
        """Return the folder with the files of one domain."""
        files = [self._find(config, domain, split) for split in self.selected_splits(config)]
        return files[0][0].parent

    def load(self, config: DataConfig, domain: str) -> Samples:
        """Read one domain: uint8 of shape (n, 3, 32, 32)."""
        files = {split: self._find(config, domain, split) for split in self.selected_splits(config)}
        arrays = [READERS[domain](paths, split, config) for split, paths in files.items()]
        images, labels = arrays[0].images, arrays[0].labels
        if len(arrays) > 1:
            images, labels = (np.concatenate([array[index] for array in arrays]) for index in (0, 1))
        skipped = sum(array.skipped for array in arrays)
        names = [name for array in arrays for name in array.names or ()] or None
        self.check_count(config, domain, len(images) + skipped, next(iter(files.values()))[0])
        return replace(Samples.all_of(Arrays(images, names), labels), skipped=skipped)

    def _find(self, config: DataConfig, domain: str, split: str) -> list[Path]:
        """Return the files of one split."""
        home = self.home(config)
        own = find_child(home, self.domain_names[domain])
        candidates = (own and find_child(own, ("raw",)), own, home)
        folders = [folder for folder in candidates if folder and os.path.isdir(folder)]
        alternatives = [[name.format(**SPLIT_NAMES[split]) for name in names] for names in FILES[domain]]
        for names in alternatives:
            for folder in folders:
                paths = [path for name in names if (path := find_child(folder, (name,)))]
                if len(paths) == len(names):
                    return paths
        files = ", or ".join(" and ".join(names) for names in alternatives)
        where = f"{own or home / self.domain_names[domain][0]} and {home}"
        raise self.not_found_error(config, f"{split} split of {domain}", [f"{files} in {where}"])
