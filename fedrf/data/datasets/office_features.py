"""The Office data sets as features, one file for each domain."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from fedrf.config.schema import DataConfig
from fedrf.data.content import Arrays
from fedrf.data.dataset import find_child, normalize_name
from fedrf.data.datasets.published_dataset import PublishedDataset
from fedrf.data.feature_files import LABEL_KEYS, list_feature_files, load_features
from fedrf.data.samples import Samples


class OfficeFeatures(PublishedDataset):
    """One file for each domain; the folder or the file is named after the kind of features.

    Attributes
    ----------
    kinds
        Names of the kind of features, the usual one first.
    width
        Number of columns.
    """

    content = "features"
    settings = {"model.extractor": "identity"}
    quick = True
    kinds: ClassVar[tuple[str, ...]]
    width: ClassVar[int]

    def locate(self, config: DataConfig, domain: str) -> Path:
        """Return the file of one domain."""
        home = self.home(config)
        own = home if normalize_name(home.name) in self.kinds else find_child(home, self.kinds)
        files = self._files_of(domain, own) if own else []
        files = files or [
            path
            for path in self._files_of(domain, home)
            if any(kind in normalize_name(path.stem) for kind in self.kinds)
        ]
        if len(files) > 1:
            raise ValueError(f"{files[0]} and {files[1].name}: two files for domain {domain} of {self.name}; keep one")
        if not files:
            name, kind = self.domain_names[domain][0], self.kinds[0]
            patterns = [(own or home / kind) / f"{name}*.mat", home / f"{name}*{kind}*.mat"]
            candidates = [f"{pattern} (or .npz, .safetensors)" for pattern in patterns]
            raise self.not_found_error(config, f"domain {domain}", candidates)
        return files[0]

    def _files_of(self, domain: str, folder: Path) -> list[Path]:
        """Return the files of a folder whose names start with that of the domain, or are its first letter."""
        names = tuple(normalize_name(name) for name in self.domain_names[domain])
        stems = [(path, normalize_name(path.stem)) for path in list_feature_files(folder)]
        return [path for path, stem in stems if stem.startswith(names) or stem == domain[0]]

    def load(self, config: DataConfig, domain: str) -> Samples:
        """Read one domain; labels start at 0 or at 1."""
        path, count = self.locate(config, domain), len(self.class_names)
        features, labels = load_features(path)
        if features.shape[1] != self.width:
            raise ValueError(f"{path}: {features.shape[1]:,} columns; features of {self.name} have {self.width:,}")
        if labels is None:
            raise ValueError(f"{path}: no labels found under {', '.join(LABEL_KEYS)}")
        if labels.dtype.kind != "i":
            raise ValueError(f"{path}: labels must be numbers from 1 to {count}; found {str(labels[0])!r}")
        first = 0 if 0 in labels else 1
        wrong = labels[(labels < first) | (labels >= first + count)]
        if len(wrong):
            raise ValueError(f"{path}: label {wrong[0]}; labels of {self.name} are 1 to {count}, or 0 to {count - 1}")
        self.check_count(config, domain, len(features), path)
        return Samples.all_of(Arrays(self.scaled(features.astype(np.float32))), labels - first)

    def scaled(self, features: np.ndarray) -> np.ndarray:
        """Return the features that are used for training."""
        return features


class Decaf6(OfficeFeatures):
    """Outputs of the sixth layer of a convolutional network (DeCAF6)."""

    kinds = ("decaf6", "decaf", "fc6")
    width = 4096


class Surf(OfficeFeatures):
    """Histograms of 800 visual words."""

    kinds = ("surf",)
    width = 800

    def scaled(self, features: np.ndarray) -> np.ndarray:
        """Divide counts by the sum of their row; files with negative numbers are already standardised and stay."""
        if features.min() < 0:
            return features
        totals = features.sum(axis=1, keepdims=True)
        return np.asarray(features / np.where(totals > 0, totals, 1))
