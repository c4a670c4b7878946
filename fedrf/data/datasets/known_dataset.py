"""Data sets of which all is known beforehand: domains, classes and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fedrf.config.schema import DataConfig
from fedrf.data.dataset import Dataset


class KnownDataset(Dataset):
    """One data set by its tables.

    Attributes
    ----------
    domain_names
        Names that the file or folder of each domain goes by.
    class_names
        In the order of the labels.
    counts
        Samples of each domain: a number for each of `splits`; without these, for each class, or only their sum.
    """

    domain_names: ClassVar[Mapping[str, tuple[str, ...]]]
    class_names: ClassVar[tuple[str, ...]] = ()
    counts: ClassVar[Mapping[str, tuple[int, ...]]]

    def domains(self, config: DataConfig) -> tuple[str, ...]:
        """Return all domains, found or not."""
        return tuple(self.domain_names)

    def classes(self, config: DataConfig) -> tuple[str, ...]:
        """Return all classes, found or not."""
        return self.class_names

    def expected(self, config: DataConfig, domain: str) -> tuple[int, ...]:
        """Return the size of a domain, or of the parts of it that `data.split` chooses."""
        if not self.splits:
            return (sum(self.counts[domain]),)
        counts = dict(zip(self.splits, self.counts[domain], strict=True))
        return (sum(counts[part] for part in self.parts(config)),)

    def parts(self, config: DataConfig) -> tuple[str, ...]:
        """Return which of `splits` are wanted."""
        return self.splits if config.split == "all" else (config.split,)
