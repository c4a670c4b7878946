"""One domain's features, and labels if it has any, from a file with any of the usual key names."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedrf.data.dataset import entries, reading, some

FEATURE_KEYS = ("fts", "feas", "features", "X", "Xt", "Xs", "data")
LABEL_KEYS = ("labels", "label", "Y", "y", "Yt", "Ys", "gnd")


class FeatureSet(NamedTuple):
    """Features of one domain in rows, with labels where the file has them."""

    features: NDArray[Any]
    labels: NDArray[Any] | None


def load_features(path: str | Path) -> FeatureSet:
    """Read one domain; a file that cannot be used raises a `ValueError` that names it and says what is missing.

    Labels are int64 or text. Features that lie in columns are turned, if the number of labels leaves no doubt.
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
    """Return the files of a folder that could have features."""
    return [Path(one.path) for one in entries(folder) if one.is_file() and Path(one.name).suffix.lower() in _READERS]


# NumPy reads headers with Python's own parser, of which 3.11 cannot run two in threads of one process.
_ONE_AT_A_TIME = threading.Lock()


def read_arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    """Read all arrays of a file by their names."""
    if not os.path.isfile(path):
        raise ValueError(f"{path}: no such file")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        *others, last = _READERS
        raise ValueError(f"{path}: the file name must end in {', '.join(others)} or {last}")
    with reading(path), _ONE_AT_A_TIME:
        return reader(path)


def pick(path: Path, arrays: Mapping[str, NDArray[Any]], keys: Sequence[str], what: str) -> NDArray[Any]:
    """Return the array that has the first of these names."""
    for key in keys:
        if key in arrays:
            return arrays[key]
    found = some(sorted(arrays), 12) or "no arrays"
    raise ValueError(f"{path}: no {what} found under {', '.join(keys)}; the file has {found}")


def whole_labels(path: Path, labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels in one row, as int64 or text."""
    labels = labels.ravel()
    if labels.dtype.kind in "SU":
        return np.char.strip(labels.astype(np.str_))  # MATLAB fills texts up to one length
    if labels.dtype.kind not in "biuf":
        raise ValueError(f"{path}: labels must be whole numbers or text, one a sample; found {labels.dtype}")
    wrong = ~np.isfinite(labels) | (labels != np.floor(labels))
    if wrong.any():
        raise ValueError(f"{path}: labels must be whole numbers or text, one a sample; found {labels[wrong][0]}")
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
    """Turn what MATLAB has besides arrays into one: sparse matrices, and cells of texts."""
    if hasattr(value, "toarray"):
        value = value.toarray()
    array = np.asarray(value)
    if array.dtype == object and array.size and all(isinstance(one, np.ndarray) for one in array.flat):
        cells = [one for one in array.flat if one.dtype.kind == "U" and one.size == 1]
        array = np.array([one.item() for one in cells]) if len(cells) == array.size else array
    return array


def _read_safetensors(path: Path) -> Mapping[str, NDArray[Any]]:
    from safetensors.numpy import load_file

    return load_file(path)


_READERS = {".npz": _read_npz, ".mat": _read_mat, ".safetensors": _read_safetensors}
