"""One domain's features, and labels if it has any, from a .npz or .mat file with any of the usual key names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.io
from numpy.typing import NDArray

FEATURE_KEYS = ("fts", "feas", "features", "X", "Xt", "Xs", "data")
LABEL_KEYS = ("labels", "label", "Y", "y", "Yt", "Ys", "gnd")


class FeatureSet(NamedTuple):
    """Features of one domain in rows, with labels where the file has them."""

    features: NDArray[Any]
    labels: NDArray[Any] | None


def load_features(path: str | Path) -> FeatureSet:
    """Read one domain; a file that cannot be used raises a `ValueError` that names it and says what is missing."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    arrays = _read(path)
    features = _pick(arrays, FEATURE_KEYS)
    if features is None:
        found = ", ".join(sorted(arrays)) or "no arrays"
        raise ValueError(f"{path}: no features found under {', '.join(FEATURE_KEYS)}; the file has {found}")
    if features.ndim != 2 or features.dtype.kind not in "fiub" or 0 in features.shape:
        raise ValueError(
            f"{path}: features must be a table of numbers, samples in rows; found {features.dtype} {features.shape}"
        )
    if not np.isfinite(features).all():
        raise ValueError(f"{path}: features must be finite; found NaN or infinity")
    labels = _pick(arrays, LABEL_KEYS)
    if labels is not None:
        labels = labels.ravel()
        if labels.dtype.kind not in "biufSU" or (labels.dtype.kind == "f" and not np.isfinite(labels).all()):
            raise ValueError(f"{path}: labels must be whole numbers or text, one a sample; found {labels.dtype}")
        if len(labels) != len(features):
            raise ValueError(f"{path}: {len(labels)} labels for {len(features)} samples")
    return FeatureSet(features, labels)


def _read(path: Path) -> Mapping[str, Any]:
    readers = {".npz": _read_npz, ".mat": _read_mat}
    if path.suffix not in readers:
        raise ValueError(f"{path}: the file name must end in {' or '.join(readers)}")
    try:
        return readers[path.suffix](path)
    except NotImplementedError:
        raise ValueError(f"{path}: MATLAB 7.3 files are not supported; save it again with '-v7'") from None
    except Exception as error:  # the parsers raise anything from KeyError to zlib.error on a damaged file
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path}: cannot be read ({reason})") from error


def _read_npz(path: Path) -> Mapping[str, Any]:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def _read_mat(path: Path) -> Mapping[str, Any]:
    arrays = scipy.io.loadmat(path)
    return {
        key: value.toarray() if scipy.sparse.issparse(value) else value
        for key, value in arrays.items()
        if not key.startswith("__")
    }


def _pick(arrays: Mapping[str, Any], keys: tuple[str, ...]) -> NDArray[Any] | None:
    return next((np.asarray(arrays[key]) for key in keys if key in arrays), None)
