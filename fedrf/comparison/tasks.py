"""Tasks of a comparison: labelled source domains and an unlabelled target domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedrf.config.registry import DATASETS
from fedrf.config.schema import DataConfig

ALL_DOMAINS = "all"
SourceGrouping = Literal["all", "each", "both"]


@dataclass(frozen=True)
class Task:
    """Labelled source domains and an unlabelled target; `all_sources` if no further source domain is available."""

    sources: tuple[str, ...]
    target: str
    all_sources: bool

    @property
    def label(self) -> str:
        """The heading of its column."""
        return f"→ {self.target}" if self.all_sources else f"{', '.join(self.sources)} → {self.target}"


def find_tasks(
    data: DataConfig, targets: Sequence[str], grouping: SourceGrouping, require_files: bool
) -> tuple[tuple[Task, ...], list[str]]:
    """Return the tasks, and notes about domains without files."""
    available, missing = _domains(data, require_files) if ALL_DOMAINS in targets or not data.sources else ((), ())
    tasks: list[Task] = []
    for target in available if ALL_DOMAINS in targets else tuple(dict.fromkeys(targets)) or (data.target,):
        pool = data.sources or available
        is_partitioned = data.partition != "none" and data.sources
        sources = pool if is_partitioned else tuple(domain for domain in pool if domain != target)
        if not sources:
            raise ValueError(f"data.target={target!r}: there is no other domain as a source; data.sources={pool}")
        if grouping != "each":
            tasks.append(Task(sources, target, True))
        if grouping != "all":
            tasks += [Task((source,), target, len(sources) == 1) for source in sources]
    notes = [f"{data.name}: left out, because not there: {', '.join(missing)}"] if missing else []
    return tuple(dict.fromkeys(tasks)), notes


def _domains(data: DataConfig, require_files: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the available and the missing domains; without `require_files`, all domains count as available."""
    dataset = DATASETS.find(data.name)
    domains, missing = dataset.domains(data), {}
    for domain in domains if require_files else ():
        try:
            dataset.locate(data, domain)
        except ValueError as error:
            missing[domain] = error
    if missing and len(missing) == len(domains):
        raise missing[domains[0]]
    return tuple(domain for domain in domains if domain not in missing), tuple(missing)
