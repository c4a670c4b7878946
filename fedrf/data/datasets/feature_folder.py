"""A folder of the user with one file of features for each domain."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrf.config.schema import DataConfig
from fedrf.data.content import Arrays
from fedrf.data.dataset import Dataset, abbreviate
from fedrf.data.feature_files import LABEL_KEYS, list_feature_files, load_features
from fedrf.data.samples import Labels, Samples


class FileSummary(NamedTuple):
    """Numbers of rows and columns of a file, and its labels as they are written."""

    rows: int
    columns: int
    labels: NDArray[Any] | None


def _summary(path: Path) -> FileSummary:
    """Return the summary of a file, which is read again only after a change."""
    stat = path.stat()
    return _read_summary(path, stat.st_size, stat.st_mtime_ns)


@lru_cache
def _read_summary(path: Path, size: int, modified: int) -> FileSummary:
    features, labels = load_features(path)
    return FileSummary(len(features), features.shape[1], labels)


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
            labels = _summary(path).labels
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
        return Samples.all_of(Arrays(features.astype(np.float32)), self._numbers(config, path, labels))

    def outline(self, config: DataConfig, domain: str) -> Samples:
        """Return one domain without its features."""
        path = self.locate(config, domain)
        summary = _summary(path)
        return Samples.without_values(summary.rows, self._numbers(config, path, summary.labels))

    def _numbers(self, config: DataConfig, path: Path, labels: NDArray[Any] | None) -> Labels | None:
        """Return the position of each label among the classes."""
        if labels is None:
            return None
        classes = self.classes(config)
        distinct, positions = np.unique(labels, return_inverse=True)
        for label in distinct:
            if str(label) not in classes:
                raise ValueError(
                    f"{path}: label {label} is not one of the classes {abbreviate(classes)}; see data.classes"
                )
        return np.array([classes.index(str(label)) for label in distinct])[positions]

    def check_together(self, config: DataConfig, domains: Sequence[str]) -> None:
        """Check that all domains have the same number of columns, and that all sources have labels."""
        widths: dict[int, Path] = {}
        for domain in domains:
            path = self.locate(config, domain)
            summary = _summary(path)
            widths.setdefault(summary.columns, path)
            if summary.labels is None and config.target not in ("", domain):
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
