"""A run directory: configuration, figures, checkpoints and summary."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from fedrf.config.loader import RETIRED, load_config
from fedrf.config.registry import METHODS
from fedrf.config.schema import Config
from fedrf.files import write_atomically

INTEGER_FIGURES = ("round", "step", "final")


@dataclass(frozen=True)
class RunResult:
    """The result of a run; `summary` is the content of summary.json."""

    folder: Path
    config: Config
    summary: dict[str, Any]

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
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
        """Create a directory; one that already holds figures or checkpoints of a run is never changed."""
        if out is None:
            stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")[:-3]
            name = f"{config.data.name}-{config.data.target}-{METHODS.find(config.method).name}-{stamp}"
            out = Path("runs") / re.sub(r"[^\w.-]+", "_", name)
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
    def open(cls, path: Path) -> RunFolder:
        """Return a directory that holds a run."""
        if not (path / "config.yaml").is_file():
            raise ValueError(f"{path} is not a run directory: it has no config.yaml")
        return cls(path)

    def plain_config(self) -> dict[str, Any]:
        """Return the configuration as it was written, by whatever version of fedrf."""
        content: dict[str, Any] = yaml.safe_load((self.path / "config.yaml").read_text())
        return content

    def config(self) -> Config:
        """Return the configuration; a `ValueError` if another version of fedrf has written it."""
        content = self.plain_config()
        for key in RETIRED:
            section, _, name = key.partition(".")
            if name in content.get(section, {}):
                raise ValueError(
                    f"{self.path} was written by an earlier version of fedrf ({key} is no longer a key), whose "
                    "checkpoints cannot be continued; start a new run"
                )
        return load_config(self.path / "config.yaml")

    def read_summary(self) -> dict[str, Any] | None:
        """Return the summary, if there is one."""
        path = self.path / "summary.json"
        return json.loads(path.read_text()) if path.exists() else None

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write summary.json."""
        text = json.dumps(summary, indent=1) + "\n"
        write_atomically(self.path / "summary.json", lambda path: path.write_text(text))

    def keep_rows(self, count: int) -> None:
        """Drop figures after the first `count`, which a resumed run will write again."""
        lines = self.metrics.read_text().splitlines(keepends=True)[:count] if self.metrics.exists() else []
        write_atomically(self.metrics, lambda path: path.write_text("".join(lines)))

    def append_rows(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append figures, one line each."""
        with self.metrics.open("a") as file:
            file.writelines(json.dumps(_as_json(row)) + "\n" for row in rows)

    def log(self, text: str) -> None:
        """Append text to run.log."""
        with (self.path / "run.log").open("a") as file:
            file.write(text)

    def rows(self) -> list[dict[str, Any]]:
        """Return all figures."""
        return [json.loads(line) for line in self.metrics.read_text().splitlines()] if self.metrics.exists() else []


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with integers as integers, and null for numbers that JSON does not have."""

    def plain(key: str, value: Any) -> Any:
        if key in INTEGER_FIGURES:
            return int(value)
        return None if isinstance(value, float) and not isfinite(value) else value

    return {key: plain(key, value) for key, value in row.items()}
