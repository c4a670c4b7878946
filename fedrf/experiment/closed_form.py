"""Closed-form alignment of two sets of features, and the accuracies of classifiers if there are labels."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC
from sklearn.utils import get_tags

from fedrf.data.feature_files import FeatureSet
from fedrf.estimators import DomainAligner
from fedrf.files import write_atomically

CLASSIFIERS = {
    "1-NN": lambda: KNeighborsClassifier(n_neighbors=1),
    "SVM": lambda: SVC(),
    "logistic": lambda: LogisticRegression(max_iter=1000),
    "FCNN": lambda: MLPClassifier((100, 100), max_iter=1000, random_state=0),  # the paper's network
}


def unit_norm(features: NDArray[Any]) -> NDArray[Any]:
    """Scale each sample to norm 1, as in the paper; samples of zeros stay unchanged."""
    norms = np.sqrt(np.einsum("ij,ij->i", features, features, dtype=np.float64))[:, None]
    return (features / np.where(norms > 0, norms, 1)).astype(features.dtype)


def standardise(features: NDArray[Any]) -> NDArray[Any]:
    """Scale each column to mean 0 and variance 1 over this domain; constant columns become 0."""
    constant = np.ptp(features, axis=0) == 0  # their computed deviation can be rounding error
    centred: NDArray[Any] = features - features.mean(axis=0)
    return np.where(constant, 0, centred / np.where(constant, 1, features.std(axis=0)))


SCALINGS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "unit": unit_norm,
    "standard": standardise,
    "none": lambda x: x,
}


@dataclass(frozen=True)
class AlignedPair:
    """Two domains before and after alignment, the aligner that was fitted to them, and its time in seconds."""

    source: FeatureSet
    target: FeatureSet
    aligned_source: FeatureSet
    aligned_target: FeatureSet
    aligner: DomainAligner
    seconds: float


def scaled(domain: FeatureSet, scaling: str) -> FeatureSet:
    """Return the domain with its features scaled by one of `SCALINGS`."""
    features = domain.features.astype(domain.features.dtype if domain.features.dtype == np.float32 else np.float64)
    return domain._replace(features=SCALINGS[scaling](features))


def stacked(source: FeatureSet, target: FeatureSet) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the rows of both domains, and 1 for each row of the source and −1 for each of the target."""
    rows = np.vstack([source.features, target.features])
    return rows, np.where(np.arange(len(rows)) < len(source.features), 1, -1)


def align_pair(source: FeatureSet, target: FeatureSet, aligner: DomainAligner) -> AlignedPair:
    """Fit the aligner to both domains and transform both.

    Source labels are passed to the aligner, target labels are not.
    """
    if source.features.shape[1] != target.features.shape[1]:
        raise ValueError(
            f"source has {source.features.shape[1]} columns and target {target.features.shape[1]}; "
            "both must come from the same extractor"
        )
    if source.labels is None and get_tags(aligner).target_tags.required:
        raise ValueError(f"{type(aligner).__name__} learns from labels of the source, and the source has none")
    rows, domain = stacked(source, target)
    count = len(source.features)
    # The aligner ignores the labels of target rows; they only need the type of the others.
    labels = None if source.labels is None else np.resize(source.labels, len(rows))
    start = time.perf_counter()
    aligned = aligner.fit_transform(rows, labels, sample_domain=domain)
    seconds = time.perf_counter() - start
    aligned_source = source._replace(features=aligned[:count])
    aligned_target = target._replace(features=aligned[count:])
    return AlignedPair(source, target, aligned_source, aligned_target, aligner, seconds)


def accuracy(classifier: str, source: FeatureSet, target: FeatureSet) -> float:
    """Return the accuracy on the target after training on the source; both must have labels."""
    trained = CLASSIFIERS[classifier]().fit(source.features, source.labels)
    return float(trained.score(target.features, target.labels))


def why_not_scored(source: FeatureSet, target: FeatureSet) -> str:
    """Return the reason why this pair cannot be scored, or an empty string if it can."""
    if source.labels is None or target.labels is None:
        return "both files need labels for that"
    classes = set(source.labels.tolist())
    if len(classes) < 2:
        return "the source has only one class"
    if classes.isdisjoint(target.labels.tolist()):
        return "no label of the target is a class of the source"
    return ""


def accuracies(source: FeatureSet, target: FeatureSet) -> dict[str, float]:
    """Return the target accuracy of each classifier; empty if the pair cannot be scored."""
    return {} if why_not_scored(source, target) else {name: accuracy(name, source, target) for name in CLASSIFIERS}


def save_pair(pair: AlignedPair, path: Path) -> None:
    """Write the aligned features, and W, eigenvalues and labels if there are any, atomically to an .npz file."""
    arrays: dict[str, Any] = {
        "source": pair.aligned_source.features,
        "target": pair.aligned_target.features,
        "aligner": getattr(pair.aligner, "aligner_", None),
        "eigenvalues": getattr(pair.aligner, "eigenvalues_", None),
        "source_labels": pair.source.labels,
        "target_labels": pair.target.labels,
    }
    present = {name: array for name, array in arrays.items() if array is not None}

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:  # given a path, NumPy would append a suffix
            np.savez(file, **present)

    write_atomically(path, write)
