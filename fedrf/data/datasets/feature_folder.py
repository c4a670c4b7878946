"""A folder of the user with one file of features for each domain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedrf.config.schema import DataConfig
from fedrf.data.content import Arrays
from fedrf.data.dataset import Dataset, abbreviate
from fedrf.data.feature_files import LABEL_KEYS, list_feature_files, load_features
from fedrf.data.samples import Samples


class FeatureFolder(Dataset):
    """Files `root/<domain>.npz`, `.mat` or `.safetensors`; the labels of the target are optional."""

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
        """Return `data.classes`, else all labels of the sources, sorted as numbers or as texts."""
        if config.classes:
            return config.classes
        paths = [self.locate(config, domain) for domain in self.sources(config)]
        classes: set[str] = set()
        numeric = True
        for path in paths:
            labels = load_features(path).labels
            if labels is None:
                continue
            classes |= {str(label) for label in np.unique(labels)}
            numeric &= labels.dtype.kind == "i"
        if len(classes) < 2:
            raise ValueError(
                f"{abbreviate(paths)}: labels found: {abbreviate(sorted(classes)) or 'none'}; "
                "sources need at least two classes"
            )
        return tuple(sorted(classes, key=int) if numeric else sorted(classes))

    def locate(self, config: DataConfig, domain: str) -> Path:
        """Return the file of one domain."""
        files = self._files(config)
        if domain not in files:
            stem = self.home(config) / domain
            candidates = [f"{stem}.npz", f"{stem}.mat", f"{stem}.safetensors"]
            raise self.not_found_error(config, f"domain {domain}", candidates)
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
                raise ValueError(
                    f"{path}: label {label} is not one of the classes {abbreviate(classes)}; see data.classes"
                )
        return Samples.all_of(content, np.array([classes.index(str(label)) for label in distinct])[positions])

    def check_together(self, config: DataConfig, domains: Sequence[str]) -> None:
        """Check that all domains have the same number of columns, and that all sources have labels."""
        widths: dict[int, Path] = {}
        for domain in domains:
            path = self.locate(config, domain)
            features, labels = load_features(path)
            widths.setdefault(features.shape[1], path)
            if labels is None and config.target not in ("", domain):
                raise ValueError(f"{path}: a source needs labels; none found under {', '.join(LABEL_KEYS)}")
        if len(widths) > 1:
            details = " and ".join(f"{width:,} in {path}" for width, path in widths.items())
            raise ValueError(f"all domains must have the same number of columns; found {details}")

    def _files(self, config: DataConfig) -> dict[str, Path]:
        files: dict[str, Path] = {}
        for path in list_feature_files(self.home(config)):
            if path.stem in files:
                raise ValueError(f"{path} and {files[path.stem].name}: two files for domain {path.stem}; keep one")
            files[path.stem] = path
        return files
