"""Any folder with one file of features for each domain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedrf.config.schema import DataConfig
from fedrf.data.dataset import Dataset, some
from fedrf.data.feature_files import LABEL_KEYS, list_feature_files, load_features
from fedrf.data.samples import Arrays, Samples


class FeatureFolder(Dataset):
    """Files `root/<domain>.npz`, `.mat` or `.safetensors`; a target may come without labels."""

    content = "features"
    settings = {"model.extractor": "identity"}
    user_defined = True
    name = "features"
    about = "your own features: <domain>.npz, .mat or .safetensors"
    origin = "your own folder, data.root"

    def domains(self, config: DataConfig) -> tuple[str, ...]:
        """Return the names of the files."""
        return tuple(self._files(config))

    def classes(self, config: DataConfig) -> tuple[str, ...]:
        """Return `data.classes`, else all labels of the sources: numbers in their order, texts in theirs."""
        if config.classes:
            return config.classes
        paths = [self.locate(config, domain) for domain in self.sources(config)]
        found: set[str] = set()
        numbers = True
        for path in paths:
            labels = load_features(path).labels
            if labels is None:
                continue
            found |= {str(label) for label in np.unique(labels)}
            numbers &= labels.dtype.kind == "i"
        if len(found) < 2:
            raise ValueError(
                f"{some(paths)}: labels found: {some(sorted(found)) or 'none'}; sources need at least two classes"
            )
        return tuple(sorted(found, key=int) if numbers else sorted(found))

    def locate(self, config: DataConfig, domain: str) -> Path:
        """Return the file of one domain."""
        files = self._files(config)
        if domain not in files:
            stem = self.home(config) / domain
            raise self.missing(config, f"domain {domain}", [f"{stem}.npz", f"{stem}.mat", f"{stem}.safetensors"])
        return files[domain]

    def load(self, config: DataConfig, domain: str) -> Samples:
        """Read one domain."""
        path = self.locate(config, domain)
        features, labels = load_features(path)
        content = Arrays(features.astype(np.float32))
        if labels is None:
            return Samples.all_of(content, None)
        classes = self.classes(config)
        distinct, positions = np.unique(labels, return_inverse=True)
        for label in distinct:
            if str(label) not in classes:
                raise ValueError(f"{path}: label {label} is not one of the classes {some(classes)}; see data.classes")
        return Samples.all_of(content, np.array([classes.index(str(label)) for label in distinct])[positions])

    def check_together(self, config: DataConfig, domains: Sequence[str]) -> None:
        """Make sure that all domains have the same columns."""
        widths: dict[int, Path] = {}
        for domain in domains:
            path = self.locate(config, domain)
            features, labels = load_features(path)
            widths.setdefault(features.shape[1], path)
            if labels is None and config.target not in ("", domain):
                raise ValueError(f"{path}: a source, and no labels found under {', '.join(LABEL_KEYS)}")
        if len(widths) > 1:
            different = " and ".join(f"{width:,} in {path}" for width, path in widths.items())
            raise ValueError(f"all domains must have the same number of columns; found {different}")

    def _files(self, config: DataConfig) -> dict[str, Path]:
        files: dict[str, Path] = {}
        for path in list_feature_files(self.home(config)):
            if path.stem in files:
                raise ValueError(f"{path} and {files[path.stem].name}: two files for domain {path.stem}; keep one")
            files[path.stem] = path
        return files
