"""The data, backbones and lengths of the paper's experiments, in full and scaled down (`--quick`).

In full, every value is the paper's as far as it tells. Quick experiments use the same recipes with a tenth of the
rounds, fewer samples, backbones that run on a processor, and the domains that are on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fedrf.data.availability import Availability, find_dataset
from fedrf.paper.federated_job import federated
from fedrf.paper.plan import Job

PAPER_ROUNDS = 1600
OFFICE31 = {"A": "amazon", "D": "dslr", "W": "webcam"}
OFFICE_CALTECH = {"A": "amazon", "C": "caltech", "D": "dslr", "W": "webcam"}
DIGIT_FIVE = {"mt": "mnist", "mm": "mnist-m", "up": "usps", "sv": "svhn", "sy": "synthetic"}
# Embedded digits that take the place of Digit-Five where it is missing.
EMBEDDED = {"mt": "handwritten", "mm": "textured", "sv": "street", "sy": "rendered"}


@dataclass(frozen=True)
class Domains:
    """The data of an experiment.

    Attributes
    ----------
    settings
        Keys of the configuration: data set, extractor and numbers of samples.
    names
        The domains that are there, by the paper's abbreviations, in its order.
    notes
        Backbone and samples, and how they differ from the paper's.
    stand_in
        Data that take the place of missing data.
    """

    settings: Mapping[str, Any]
    names: Mapping[str, str]
    notes: tuple[str, ...] = ()
    stand_in: str = ""

    def to(self, target: str, sources: Sequence[str] = ()) -> dict[str, Any]:
        """Return the settings of a task; default sources are all other domains."""
        chosen = sources or [name for name in self.names if name != target]
        return {
            **self.settings,
            "data.target": self.names[target],
            "data.sources": [self.names[source] for source in chosen],
        }

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs of two different domains."""
        return [(source, target) for source in self.names for target in self.names if source != target]


@dataclass(frozen=True)
class Setting:
    """How experiments are run: in full or quick, with which data and seeds."""

    quick: bool
    root: str | None = None
    given_seeds: tuple[int, ...] = ()
    _found: dict[str, Availability] = field(default_factory=dict)

    def seeds(self, quick: int = 1, full: int = 5) -> range | tuple[int, ...]:
        """Return the seeds that were given, or so many."""
        return self.given_seeds or range(quick if self.quick else full)

    # Length

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return PAPER_ROUNDS // 10 if self.quick else PAPER_ROUNDS

    def interval(self, paper: int) -> int:
        """Return an interval of the paper, in rounds, for the number of rounds here."""
        return max(1, paper * self.rounds // PAPER_ROUNDS)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What all federated experiments have in common."""
        scaled = f" instead of {PAPER_ROUNDS:,}, and intervals T_C scaled alike" if self.quick else ""
        return (
            f"{self.rounds:,} rounds{scaled}. Batches of 64, N = 1000, m = 100, learning rate 0.001 (0.003 for quick "
            "digits), the training splits.",
            "FedRF-TCA averages the extractors every round, as the authors' program does in effect, unless a row says "
            "local, which is the paper's text.",
        )

    def run(self, seed: int, settings: Mapping[str, Any]) -> Job:
        """Return the job of one federated run."""
        common: dict[str, Any] = {
            "seed": seed,
            "data.root": self.root,
            "model.num_features": 1000,
            "model.dim": 100,
            "train.rounds": self.rounds,
            "train.lr": 0.001,
            "federation.mode": "sync",
            "track.evaluate_every": self.rounds,
        }
        return federated({**common, **settings})

    # Data

    def office31(self) -> Domains:
        """Return the images of Office-31."""
        names = self._domains("office31", OFFICE31)
        if not self.quick:
            return Domains({"data.name": "office31", "model.extractor": "resnet50"}, names, (_resnet(50),))
        return Domains({"data.name": "office31", "data.samples": 1000}, names, (_backbone("ResNet-50"), _at_most(1000)))

    def office_caltech(self) -> Domains:
        """Return the images of Office-Caltech10."""
        names = self._domains("office-caltech10", OFFICE_CALTECH)
        settings: dict[str, Any] = {"data.name": "office-caltech10"}
        if not self.quick:
            return Domains({**settings, "model.extractor": "resnet101"}, names, (_resnet(101),))
        return Domains(
            settings, names, (_backbone("ResNet-101"), *self._missing("office-caltech10", names, OFFICE_CALTECH))
        )

    def digit_five(self) -> Domains:
        """Return Digit-Five; quick, and without two of its domains, the embedded digits."""
        settings: dict[str, Any]
        if not self.quick:
            names = self._domains("digit-five", DIGIT_FIVE)
            settings = {"data.name": "digit-five", "data.samples": 25_000, "model.extractor": "resnet50"}
            return Domains(settings, names, (_resnet(50), f"{_at_most(25_000)} The paper does not say how many."))
        settings = {
            "data.name": "digit-five",
            "data.samples": 2000,
            "model.extractor": "gradients",
            "train.lr": 0.003,
        }
        names = self._present("digit-five", DIGIT_FIVE)
        backbone = "Histograms of oriented gradients and a small residual block that is trained, instead of ResNet-50."
        if len(names) > 1:
            settings["data.allow_partial"] = True
            return Domains(settings, names, (backbone, _at_most(2000), *self._missing("digit-five", names, DIGIT_FIVE)))
        settings["data.name"] = "digits"
        stand_in = "Digit-Five is not on this machine: the embedded digits take its place (" + ", ".join(
            f"{name} for {short}" for short, name in EMBEDDED.items()
        )
        return Domains(settings, EMBEDDED, (backbone, f"{stand_in})."), "embedded digits")

    def visda(self) -> Domains:
        """Return VisDA-C, S → T; quick, and without it, rendered and handwritten digits."""
        names = {"S": "train", "T": "validation"}
        if not self.quick or len(self._present("visda-c", names)) == 2:
            extractor = "efficientnet-lite0" if self.quick else "resnet101"
            settings: dict[str, Any] = {"data.name": "visda-c", "model.extractor": extractor}
            if self.quick:
                settings |= {"data.samples": 4000}
            notes = (_backbone("ResNet-101"), _at_most(4000)) if self.quick else (_resnet(101),)
            return Domains(settings, self._domains("visda-c", names), notes)
        note = (
            "VisDA-C is not on this machine: embedded digits take its place, rendered (synthetic) to handwritten "
            "(real), with histograms of oriented gradients. These numbers show that the recipe works, no more."
        )
        settings = {"data.name": "digits", "train.lr": 0.003}
        return Domains(settings, {"S": "rendered", "T": "handwritten"}, (note,), "embedded digits")

    def office31_features(self) -> Domains:
        """Return DeCAF6 features of Office-31; quick, those of EfficientNet-Lite0."""
        if not self.quick:
            return Domains({"data.name": "office31-decaf6"}, self._domains("office31-decaf6", OFFICE31))
        names = self._domains("office31", OFFICE31)
        settings = {"data.name": "office31", "data.samples": 1000}
        notes = ("Features of EfficientNet-Lite0 instead of DeCAF6.", _at_most(1000))
        return Domains(settings, names, notes, "EfficientNet-Lite0 features")

    def office_caltech_features(self) -> Domains:
        """Return DeCAF6 features of Office-Caltech10; quick, SURF histograms if a domain is missing."""
        name = "office-caltech10-decaf6"
        if not self.quick or len(self._present(name, OFFICE_CALTECH)) == len(OFFICE_CALTECH):
            return Domains({"data.name": name}, self._domains(name, OFFICE_CALTECH))
        name = "office-caltech10-surf"
        notes = ("SURF histograms, standardised for each domain, instead of DeCAF6, which needs four domains.",)
        return Domains(
            {"data.name": name, "data.scale": "standard"}, self._domains(name, OFFICE_CALTECH), notes, "SURF"
        )

    def availability(self, name: str) -> Availability:
        """Return which domains of a data set are there."""
        if name not in self._found:
            self._found[name] = find_dataset(name, self.root)
        return self._found[name]

    def _present(self, name: str, names: Mapping[str, str]) -> dict[str, str]:
        found = self.availability(name).found
        return {short: domain for short, domain in names.items() if domain in found}

    def _domains(self, name: str, names: Mapping[str, str]) -> dict[str, str]:
        """Return the domains that are there; in full all must be, quick at least two."""
        present, availability = self._present(name, names), self.availability(name)
        if len(present) < (2 if self.quick else len(names)):
            missing = [domain for domain in names.values() if domain in availability.missing]
            hint = "" if self.quick else "; --quick uses what is there"
            reason = availability.missing[missing[0]]
            raise ValueError(f"needs {', '.join(missing)} of {name} ({reason}){hint}")
        return present

    def _missing(self, name: str, present: Mapping[str, str], names: Mapping[str, str]) -> list[str]:
        missing = [f"{domain} ({short})" for short, domain in names.items() if short not in present]
        if not missing:
            return []
        return [
            f"Not on this machine: {', '.join(missing)} of {name}. The sources are the remaining available domains."
        ]


def _backbone(paper: str) -> str:
    return (
        f"EfficientNet-Lite0 instead of {paper}: its layers are fixed, and a small residual block on top is trained "
        f"where the paper trains the last stage of {paper}."
    )


def _resnet(layers: int) -> str:
    return f"ResNet-{layers} with ImageNet weights; its first three stages are fixed, the last one is trained."


def _at_most(count: int) -> str:
    return f"At most {count:,} samples of a domain."
