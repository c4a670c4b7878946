"""The data sets that fedrf looks for below the data root, and where people get them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Dataset:
    """A data set on disk: one path for each domain, relative to the data root."""

    name: str
    domains: dict[str, str]
    source: str

    def found(self, root: Path) -> list[str]:
        """Return the domains that are there."""
        return [domain for domain, path in self.domains.items() if (root / path).exists()]


CATALOGUE = (
    Dataset(
        "office31",
        {domain: f"office31/{domain}" for domain in ("amazon", "dslr", "webcam")},
        "the authors' page of 'Adapting visual category models to new domains'",
    ),
    Dataset(
        "office-caltech10-surf",
        {
            domain: f"office_caltech10/surf/{file}_SURF_L10.mat"
            for domain, file in (
                ("amazon", "amazon"),
                ("caltech", "Caltech10"),
                ("dslr", "dslr"),
                ("webcam", "webcam"),
            )
        },
        "the authors' page of 'Geodesic flow kernel for unsupervised domain adaptation'",
    ),
    Dataset(
        "office-caltech10-decaf6",
        {domain: f"office_caltech10/decaf6/{domain}.mat" for domain in ("amazon", "caltech", "dslr", "webcam")},
        "the authors of 'DeCAF: a deep convolutional activation feature' and pages on transfer learning",
    ),
    Dataset(
        "digit-five",
        {
            "mnist": "digit_five/MNIST/raw",
            "mnist-m": "digit_five/MNIST-M",
            "usps": "digit_five/USPS",
            "svhn": "digit_five/SVHN",
            "synthetic": "digit_five/SYNTH",
        },
        "torchvision (MNIST, USPS, SVHN) and the authors of 'Domain-adversarial training of neural networks'",
    ),
)


def data_root(given: str | Path | None = None) -> Path | None:
    """Return where data sets are: what was given, else $FEDRF_DATA, else None."""
    root = given or os.environ.get("FEDRF_DATA")
    return Path(root) if root else None


def find_dataset(name: str) -> Dataset:
    """Return the data set called `name`."""
    for dataset in CATALOGUE:
        if dataset.name == name:
            return dataset
    raise ValueError(f"dataset must be one of {', '.join(d.name for d in CATALOGUE)}; got {name!r}")
