"""The Office data sets as one table of features for each domain."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from fedrf.config.schema import DataConfig
from fedrf.data.dataset import find_child, plain
from fedrf.data.datasets.known_dataset import KnownDataset
from fedrf.data.feature_files import LABEL_KEYS, list_feature_files, load_features
from fedrf.data.samples import Arrays, Samples


class OfficeFeatures(KnownDataset):
    """One file for each domain, in a folder named after the kind of features, or with that kind in its own name.

    Attributes
    ----------
    kinds
        Names of the features, the usual one first.
    width
        Number of columns.
    """

    content = "features"
    settings = {"model.extractor": "identity"}
    kinds: ClassVar[tuple[str, ...]]
    width: ClassVar[int]

    def locate(self, config: DataConfig, domain: str) -> Path:
        """Return the one file of a domain."""
        home = self.home(config)
        own = home if plain(home.name) in self.kinds else find_child(home, self.kinds)
        found = self._of(domain, own) if own else []
        found = found or [
            path for path in self._of(domain, home) if any(kind in plain(path.stem) for kind in self.kinds)
        ]
        if len(found) > 1:
            raise ValueError(f"{found[0]} and {found[1].name}: two files for domain {domain} of {self.name}; keep one")
        if not found:
            first, kind = self.domain_names[domain][0], self.kinds[0]
            places = [(own or home / kind) / f"{first}*.mat", home / f"{first}*{kind}*.mat"]
            raise self.missing(config, f"domain {domain}", [f"{place} (or .npz, .safetensors)" for place in places])
        return found[0]

    def _of(self, domain: str, folder: Path) -> list[Path]:
        names = tuple(plain(name) for name in self.domain_names[domain])
        stems = [(path, plain(path.stem)) for path in list_feature_files(folder)]
        return [path for path, stem in stems if stem.startswith(names) or stem == domain[0]]

    def load(self, config: DataConfig, domain: str) -> Samples:
        """Read one domain; labels from 0 or from 1."""
        path, last = self.locate(config, domain), len(self.class_names)
        features, labels = load_features(path)
        if features.shape[1] != self.width:
            raise ValueError(f"{path}: {features.shape[1]:,} columns; features of {self.name} have {self.width:,}")
        if labels is None:
            raise ValueError(f"{path}: no labels found under {', '.join(LABEL_KEYS)}")
        if labels.dtype.kind != "i":
            raise ValueError(f"{path}: labels must be numbers from 1 to {last}; found {str(labels[0])!r}")
        first = 0 if 0 in labels else 1
        wrong = labels[(labels < first) | (labels >= first + last)]
        if len(wrong):
            raise ValueError(f"{path}: label {wrong[0]}; labels of {self.name} are 1 to {last}, or 0 to {last - 1}")
        self.check_count(config, domain, len(features), path)
        return Samples.all_of(Arrays(self.scaled(features.astype(np.float32))), labels - first)

    def scaled(self, features: np.ndarray) -> np.ndarray:
        """Return features as they are used."""
        return features


class Decaf6(OfficeFeatures):
    """Outputs of the sixth layer of a convolutional network."""

    kinds = ("decaf6", "decaf", "fc6")
    width = 4096


class Surf(OfficeFeatures):
    """Histograms of 800 visual words."""

    kinds = ("surf",)
    width = 800

    def scaled(self, features: np.ndarray) -> np.ndarray:
        """Return counts as shares of their row; negative numbers tell that a file has been standardised already."""
        if features.min() < 0:
            return features
        totals = features.sum(axis=1, keepdims=True)
        return np.asarray(features / np.where(totals > 0, totals, 1))
