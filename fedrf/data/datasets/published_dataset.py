"""Base class of published data sets, whose domains, classes and sizes are fixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fedrf.config.schema import DataConfig
from fedrf.data.dataset import Dataset


class PublishedDataset(Dataset):
    """A data set that is described by tables.

    Attributes
    ----------
    domain_names
        Possible names of the file or folder of each domain.
    class_names
        Names of the classes, in the order of the labels.
    counts
        Numbers of samples of each domain: one for each of `splits`; without splits, one for each class, or their sum.
    """

    domain_names: ClassVar[Mapping[str, tuple[str, ...]]]
    class_names: ClassVar[tuple[str, ...]] = ()
    counts: ClassVar[Mapping[str, tuple[int, ...]]]

    def domains(self, config: DataConfig) -> tuple[str, ...]:
        """Return all domains, also those whose files are missing."""
        return tuple(self.domain_names)

    def classes(self, config: DataConfig) -> tuple[str, ...]:
        """Return all classes."""
        return self.class_names

    def expected(self, config: DataConfig, domain: str) -> tuple[int, ...]:
        """Return the size of a domain, or of the splits that `data.split` selects."""
        if not self.splits:
            return (sum(self.counts[domain]),)
        counts = dict(zip(self.splits, self.counts[domain], strict=True))
        return (sum(counts[split] for split in self.selected_splits(config)),)

    def selected_splits(self, config: DataConfig) -> tuple[str, ...]:
        """Return the splits that `data.split` selects."""
        return self.splits if config.split == "all" else (config.split,)
