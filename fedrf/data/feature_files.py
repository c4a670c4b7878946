"""Read the features of one domain, and its labels if there are any, from a file with common key names."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrf.data.dataset import abbreviate, list_entries, wrap_read_errors

FEATURE_KEYS = ("fts", "feas", "features", "X", "Xt", "Xs", "data")
LABEL_KEYS = ("labels", "label", "Y", "y", "Yt", "Ys", "gnd")


class FeatureSet(NamedTuple):
    """Features of one domain, samples in rows, and labels if the file has them."""

    features: NDArray[Any]
    labels: NDArray[Any] | None


def load_features(path: str | Path) -> FeatureSet:
    """Read one domain; a `ValueError` names an invalid file and says what is wrong with it.

    Labels are int64 or text. Features with samples in columns are transposed if only this fits the number of labels.
    """
    path = Path(path)
    arrays = read_arrays(path)
    features = pick(path, arrays, FEATURE_KEYS, "features")
    if features.ndim != 2 or features.dtype.kind not in "fiub" or 0 in features.shape:
        raise ValueError(
            f"{path}: features must be a table of numbers, samples in rows; found {features.dtype} {features.shape}"
        )
    if not np.isfinite(features).all():
        raise ValueError(f"{path}: features must be finite; found NaN or infinity")
    if not any(key in arrays for key in LABEL_KEYS):
        return FeatureSet(features, None)
    labels = whole_labels(path, pick(path, arrays, LABEL_KEYS, "labels"))
    if len(features) != len(labels) == features.shape[1]:
        features = features.T
    if len(labels) != len(features):
        raise ValueError(f"{path}: {len(labels)} labels for {len(features)} samples")
    return FeatureSet(features, labels)


def list_feature_files(folder: Path) -> list[Path]:
    """Return the files of a folder with a suffix that can be read."""
    files = [Path(entry.path) for entry in list_entries(folder) if entry.is_file()]
    return [path for path in files if path.suffix.lower() in _READERS]


# NumPy parses headers with Python's own parser, which is not thread-safe in Python 3.11.
_PARSER_LOCK = threading.Lock()


def read_arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    """Read all arrays of a file by their names."""
    if not os.path.isfile(path):
        raise ValueError(f"{path}: no such file")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        *others, last = _READERS
        raise ValueError(f"{path}: the file name must end in {', '.join(others)} or {last}")
    with wrap_read_errors(path), _PARSER_LOCK:
        return reader(path)


def pick(path: Path, arrays: Mapping[str, NDArray[Any]], keys: Sequence[str], what: str) -> NDArray[Any]:
    """Return the array with the first of these names that exists."""
    for key in keys:
        if key in arrays:
            return arrays[key]
    present = abbreviate(sorted(arrays), 12) or "no arrays"
    raise ValueError(f"{path}: no {what} found under {', '.join(keys)}; the file has {present}")


def whole_labels(path: Path, labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels as a vector of int64 or text."""
    labels = labels.ravel()
    if labels.dtype.kind in "SU":
        return np.char.strip(labels.astype(np.str_))  # MATLAB pads texts to equal length
    if labels.dtype.kind not in "biuf":
        raise ValueError(f"{path}: labels must be whole numbers or text, one for each sample; found {labels.dtype}")
    wrong = ~np.isfinite(labels) | (labels != np.floor(labels))
    if wrong.any():
        raise ValueError(f"{path}: labels must be whole numbers or text, one for each sample; found {labels[wrong][0]}")
    return labels.astype(np.int64)


def _read_npz(path: Path) -> Mapping[str, NDArray[Any]]:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def _read_mat(path: Path) -> Mapping[str, NDArray[Any]]:
    import scipy.io

    try:
        arrays = scipy.io.loadmat(path)
    except NotImplementedError:
        raise ValueError("MATLAB 7.3 files are not supported; save it again with '-v7'") from None
    return {key: _dense(value) for key, value in arrays.items() if not key.startswith("__")}


def _dense(value: Any) -> NDArray[Any]:
    """Convert a sparse matrix or a cell array of texts from MATLAB to a NumPy array."""
    if hasattr(value, "toarray"):
        value = value.toarray()
    array = np.asarray(value)
    if array.dtype == object and array.size and all(isinstance(cell, np.ndarray) for cell in array.flat):
        texts = [cell.item() for cell in array.flat if cell.dtype.kind == "U" and cell.size == 1]
        array = np.array(texts) if len(texts) == array.size else array
    return array


def _read_safetensors(path: Path) -> Mapping[str, NDArray[Any]]:
    from safetensors.numpy import load_file

    return load_file(path)


_READERS = {".npz": _read_npz, ".mat": _read_mat, ".safetensors": _read_safetensors}
