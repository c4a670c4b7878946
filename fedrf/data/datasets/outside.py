"""A data set from outside of fedrf: its answers are checked, and its mistakes become one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrf.config.schema import DataConfig
from fedrf.data.content import Arrays
from fedrf.data.dataset import Dataset
from fedrf.data.samples import Samples
from fedrf.errors import reason

ATTRIBUTES = ("name", "about", "origin", "folders", "splits", "content", "settings", "user_defined", "quick")


class OutsideDataset(Dataset):
    """Asks another data set, and checks what it returns.

    Parameters
    ----------
    dataset
        An instance of the class from outside.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset, self.owner = dataset, type(dataset).__name__
        vars(self).update({name: getattr(dataset, name) for name in ATTRIBUTES})

    def domains(self, config: DataConfig) -> tuple[str, ...]:
        """Return the names of all domains."""
        return self._names("domains", config)

    def classes(self, config: DataConfig) -> tuple[str, ...]:
        """Return the names of the classes."""
        return self._names("classes", config)

    def locate(self, config: DataConfig, domain: str) -> Path | None:
        """Return the file or folder of one domain."""
        path: Path | None = self._ask("locate", config, domain)
        return path

    def check_together(self, config: DataConfig, domains: Sequence[str]) -> None:
        """Check that these domains can be used together."""
        self._ask("check_together", config, domains)

    def expected(self, config: DataConfig, domain: str) -> tuple[int, ...]:
        """Return the possible numbers of samples of a complete domain."""
        return tuple(self._ask("expected", config, domain))

    def load(self, config: DataConfig, domain: str) -> Samples:
        """Return all samples of one domain; arrays of doubles become single precision."""
        samples = self._ask("load", config, domain)
        if not isinstance(samples, Samples):
            raise self._mistake("load", f"returned {type(samples).__name__}; expected fedrf.data.samples.Samples")
        if samples.labels is not None:
            self._check_labels(samples, domain, len(self.classes(config)))
        if isinstance(samples.content, Arrays):
            samples = replace(samples, content=self._checked_arrays(samples.content, domain))
        return samples

    def _check_labels(self, samples: Samples, domain: str, classes: int) -> None:
        labels = samples.labels
        assert labels is not None
        if len(labels) != len(samples):
            raise self._mistake("load", f"returned {len(labels)} labels for {len(samples)} samples of {domain}")
        if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
            span = f"{labels.min()} to {labels.max()}"
            raise self._mistake("load", f"returned labels from {span} for {domain}; allowed: 0 to {classes - 1}")

    def _checked_arrays(self, content: Arrays, domain: str) -> Arrays:
        values = np.asarray(content.values)
        if values.dtype == np.float64:
            values = values.astype(np.float32)
        if values.dtype not in (np.float32, np.uint8) or values.ndim not in (2, 4):
            kind = f"an array of {values.dtype} of shape {values.shape}"
            raise self._mistake(
                "load", f"returned {kind} for {domain}; allowed: float32 or uint8, (n, p) or (n, c, h, w)"
            )
        if values.dtype == np.float32 and not np.isfinite(values).all():
            raise self._mistake("load", f"returned numbers that are not finite for {domain}")
        return Arrays(values, content.names)

    def _names(self, question: str, config: DataConfig) -> tuple[str, ...]:
        names = self._ask(question, config)
        if not isinstance(names, tuple | list) or not names or not all(isinstance(name, str) for name in names):
            raise self._mistake(question, f"returned {names!r:.100}; expected a tuple of names")
        return tuple(names)

    def _ask(self, question: str, *arguments: Any) -> Any:
        try:
            return getattr(self.dataset, question)(*arguments)
        except (ValueError, OSError, MemoryError):
            raise
        except Exception as error:  # code of others can raise anything
            raise self._mistake(question, f"failed ({type(error).__name__}: {reason(error)})") from error

    def _mistake(self, question: str, text: str) -> ValueError:
        return ValueError(f"{self.owner}.{question} {text}")
