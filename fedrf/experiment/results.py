"""A run directory: configuration, figures, checkpoints, summary."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

from fedrf.adaptation.selection import SIGNS, best, evaluations
from fedrf.config.loader import load_config
from fedrf.config.schema import Config
from fedrf.files import write_atomically

WHOLE = ("round", "step", "final")
SHOWN_KINDS = ("mean_embedding", "aligner", "classifier", "extractor")


@dataclass(frozen=True)
class RunResult:
    """What a run came to; `summary` is what summary.json holds."""

    folder: Path
    config: Config
    summary: dict[str, Any]

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return bool(self.summary["status"] == "finished")

    @property
    def target_accuracy(self) -> float | None:
        """Accuracy on the target after the last round and step."""
        final: float | None = self.summary["target_accuracy"]["final"]
        return final


class RunFolder:
    """Writes and reads one run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.metrics = self.path / "metrics.jsonl"

    @classmethod
    def create(cls, config: Config, out: Path | None) -> RunFolder:
        """Make a new directory; one in which a run has got anywhere is never touched."""
        if out is None:
            stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")[:-3]
            out = Path("runs") / f"{config.data.name}-{config.data.target}-{config.method}-{stamp}"
        if cls(out).rows() or any(out.glob("checkpoints/*/*.ckpt")):
            raise ValueError(f"--out: {out} already holds a run; continue it with --resume {out}, or name another")
        try:
            out.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise ValueError(f"--out: {out} is a file") from None
        folder = cls(out)
        config.save(folder.path / "config.yaml")
        return folder

    @classmethod
    def open(cls, path: Path) -> tuple[RunFolder, Config]:
        """Return a directory that holds a run, and the run's configuration."""
        if not (path / "config.yaml").is_file():
            raise ValueError(f"{path} is no run directory: it has no config.yaml")
        return cls(path), load_config(path / "config.yaml")

    def read_summary(self) -> dict[str, Any] | None:
        """Return the summary, if there is one."""
        path = self.path / "summary.json"
        return json.loads(path.read_text()) if path.exists() else None

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write summary.json."""
        text = json.dumps(summary, indent=1) + "\n"
        write_atomically(self.path / "summary.json", lambda path: path.write_text(text))

    def keep_rows(self, count: int) -> None:
        """Drop figures after the first `count`: what a resumed run will write again."""
        lines = self.metrics.read_text().splitlines(keepends=True)[:count] if self.metrics.exists() else []
        write_atomically(self.metrics, lambda path: path.write_text("".join(lines)))

    def append_rows(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add figures, a line each."""
        with self.metrics.open("a") as file:
            file.writelines(json.dumps(_tidy(row)) + "\n" for row in rows)

    def rows(self) -> list[dict[str, Any]]:
        """Return all figures."""
        return [json.loads(line) for line in self.metrics.read_text().splitlines()] if self.metrics.exists() else []


def _tidy(row: dict[str, Any]) -> dict[str, Any]:
    """Make whole numbers whole, and JSON of numbers that JSON does not know."""
    return {
        key: int(value) if key in WHOLE else None if isinstance(value, float) and not isfinite(value) else value
        for key, value in row.items()
    }


def cautions(config: Config) -> list[str]:
    """Return what is allowed, and hardly meant."""
    if config.model.weights == "none" and config.model.extractor.startswith(("resnet", "efficientnet")):
        return [f"model.weights=none: {config.model.extractor} has random weights, and its features tell little"]
    return []


def summarise(
    config: Config,
    sources: tuple[str, ...],
    status: str,
    progress: dict[str, Any],
    rows: list[dict[str, Any]],
    failures: list[str],
) -> dict[str, Any]:
    """Put summary.json together.

    `final` is the last evaluation, after everything; `selected` is the best one by the score `track.select`, chosen
    without labels; `oracle` is the best one, chosen with them.
    """
    target = config.data.target
    mine = evaluations(rows, target)
    last: dict[str, Any] = next((row for row in reversed(mine) if row.get("final")), {})
    traffic: dict[tuple[str, str], int] = progress.get("traffic", {})
    by_kind = dict.fromkeys(SHOWN_KINDS, 0)
    for (_, kind), number in traffic.items():
        by_kind[kind] = by_kind.get(kind, 0) + number
    total, seconds = sum(by_kind.values()), progress.get("seconds", 0.0)
    rounds = max((row["round"] for row in rows if "step" not in row), default=0)
    return {
        "method": config.method,
        "dataset": config.data.name,
        "sources": list(sources),
        "target": target,
        "seed": config.seed,
        "status": status,
        "rounds": rounds,
        "target_accuracy": {
            "final": last.get("accuracy"),
            "selected": (best(mine, config.track.select) or {}).get("accuracy"),
            "oracle": max((row["accuracy"] for row in mine if "accuracy" in row), default=None),
        },
        "target_information": last.get("information"),
        "scores": {score: last[score] for score in SIGNS if score in last},
        "source_accuracy": {
            row["client"]: row["accuracy"] for row in rows if "accuracy" in row and row["client"] != target
        },
        "communication": {
            "bytes_total": total,
            "bytes_per_round": total / rounds if rounds else 0.0,
            "bytes_by_kind": by_kind,
            "by_direction": {
                way: {kind: number for (there, kind), number in traffic.items() if there == way}
                for way in ("up", "down")
            },
            "refused": progress.get("refused", {}),
            "staleness": {str(age): number for age, number in sorted(progress.get("staleness", {}).items())},
        },
        "seconds": {"total": seconds, "per_round": progress.get("round_seconds", 0.0) / rounds if rounds else 0.0},
        "measured": progress.get("measured", {}),
        "config_hash": config.digest,
        "failures": [*failures, *progress.get("failures", [])],
        "notes": [*cautions(config), *progress.get("notes", [])],
    }
