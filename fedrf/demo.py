"""`make demo`: closed-form domain adaptation, on Office-Caltech where it is to be had, else on shifted digits.

Every method gets the same settings on every task, and none sees a target label: they only score the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from statistics import mean

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits

from fedrf.closed_form import accuracy, align_pair, scaled
from fedrf.data.catalogue import data_root, find_dataset
from fedrf.data.feature_files import FeatureSet, load_features
from fedrf.estimators import RFTCA, RTCA, TCA, DomainAligner

DIM, NUM_FEATURES = 20, 1000
SCORED_BY = ("1-NN", "SVM")
METHODS: dict[str, Callable[[], DomainAligner]] = {
    "TCA": lambda: TCA(dim=DIM, gamma="auto"),
    "R-TCA": lambda: RTCA(dim=DIM, gamma="auto"),
    "RF-TCA gaussian": lambda: RFTCA(dim=DIM, num_features=NUM_FEATURES, gamma="auto"),
    "RF-TCA laplace": lambda: RFTCA(dim=DIM, num_features=NUM_FEATURES, gamma="auto", kernel="laplace"),
}


def office_caltech() -> dict[str, FeatureSet] | None:
    """Return the four Office-Caltech domains as SURF histograms, standardised; None where they are not to be had.

    Each row is scaled to sum 1 and each column standardised within its domain, as is usual with these counts.
    """
    dataset, root = find_dataset("office-caltech10-surf"), data_root()
    if root is None or set(dataset.found(root)) != set(dataset.domains):
        return None
    domains = {}
    for name, path in dataset.domains.items():
        counts = load_features(root / path)
        shares = counts.features / counts.features.sum(axis=1, keepdims=True)
        domains[name[0].upper()] = scaled(counts._replace(features=shares), "standard")
    return domains


def shifted_digits() -> dict[str, FeatureSet]:
    """Return the handwritten digits of scikit-learn in three equal parts, two of them under a light from one side."""
    images, labels = load_digits(return_X_y=True)
    images = images / 16
    fading = np.linspace(0.6, 0.0, 8)
    looks = {"plain": 0.0, "left": np.tile(fading, 8), "top": np.repeat(fading, 8)}
    part = np.random.RandomState(0).permutation(len(images)) % len(looks)
    return {
        name: FeatureSet(images[part == index] + light, labels[part == index])
        for index, (name, light) in enumerate(looks.items())
    }


def scores(source: FeatureSet, target: FeatureSet) -> Iterator[float]:
    """Yield the accuracy on the target of each classifier, without alignment and then for each method."""
    for name in SCORED_BY:
        yield accuracy(name, source, target)
    for make in METHODS.values():
        pair = align_pair(source, target, make())
        for name in SCORED_BY:
            yield accuracy(name, pair.aligned_source, pair.aligned_target)


def main() -> None:
    """Run all tasks and print one table."""
    console = Console()
    domains = office_caltech()
    title = "Office-Caltech10, SURF"
    if domains is None:
        domains, title = shifted_digits(), "Built-in digits under three lights"
        console.print("Office-Caltech10 not found below $FEDRF_DATA: see `fedrf doctor`. Using built-in digits.")
    tasks = list(permutations(domains, 2))
    hidden = not console.is_terminal
    rows = {
        f"{a}→{b}": list(scores(domains[a], domains[b]))
        for a, b in track(tasks, "Aligning", console=console, transient=True, disable=hidden)
    }
    rows["mean"] = [mean(column) for column in zip(*rows.values(), strict=True)]
    console.print(f"Accuracy on the target in %, {' and '.join(SCORED_BY)}. {title}; {DIM} components.")
    table = Table("task", box=SIMPLE, pad_edge=False)
    for method in ("source only", *METHODS):
        table.add_column(method.replace(" ", "\n"), justify="right")
    step = len(SCORED_BY)
    for task, values in rows.items():
        cells = [values[start : start + step] for start in range(0, len(values), step)]
        table.add_row(task, *("  ".join(f"{100 * value:.1f}" for value in cell) for cell in cells))
    console.print(table)


if __name__ == "__main__":
    main()
