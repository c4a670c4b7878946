"""A run directory: configuration, figures, log, checkpoints and summary. One process at a time writes to it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from fedrf.config.loader import RETIRED, load_config
from fedrf.config.registry import METHODS
from fedrf.config.schema import Config
from fedrf.experiment.disk import check_writable
from fedrf.experiment.environment import now
from fedrf.federation.checkpoints import files_root
from fedrf.files import write_atomically
from fedrf.ownership import Owner, RunTakenOverError
from fedrf.protocol.messages import COUNTING_FIGURES
from fedrf.store import files_in


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
    """Writes and reads one run directory.

    `create` and `claim` make this process its owner, until the end of a `with` block; only then it can be written to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.metrics = self.path / "metrics.jsonl"
        self._owner: Owner | None = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._owner is not None:
            self._owner.release()
            self._owner = None

    @property
    def owner(self) -> Owner:
        """The ownership of this process."""
        if self._owner is None:
            raise ValueError(f"{self.path} is not owned by this process")
        return self._owner

    def claim(self) -> RunFolder:
        """Become the owner of the directory; a `ValueError` if another process uses it."""
        self._owner = Owner.claim(self.path)
        return self

    @classmethod
    def create(cls, config: Config, out: Path | None) -> RunFolder:
        """Create and own a directory; one that already holds figures or checkpoints of a run is never changed."""
        if out is None:
            stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")[:-3]
            name = f"{config.data.name}-{config.data.target}-{METHODS.find(config.method).name}-{stamp}"
            out = Path("runs") / re.sub(r"[^\w.-]+", "_", name)
        cls.check_unused(out)
        cls.check_store(config, out)
        out.mkdir(parents=True, exist_ok=True)
        folder = cls(out).claim()
        try:
            cls.check_unused(out)  # again: another process may have used it meanwhile
        except ValueError:
            folder.__exit__()
            raise
        config.save(folder.path / "config.yaml")
        return folder

    @classmethod
    def check_store(cls, config: Config, out: Path) -> None:
        """Raise a `ValueError` if `track.storage` has a run of the same name."""
        root = files_root(out.resolve(), config.track.storage)
        if root != out.resolve() and files_in(root, "*"):
            raise ValueError(f"track.storage: {root} already holds a run; continue it with --resume {root}")

    @classmethod
    def check_unused(cls, out: Path) -> None:
        """Raise a `ValueError` if a directory cannot be that of a new run; nothing is created."""
        check_writable("--out", out)
        if cls(out).rows() or any(out.glob("checkpoints/*/*")):
            raise ValueError(f"--out: {out} already holds a run; continue it with --resume {out}, or name another")

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Return a directory that holds a run."""
        if not (path / "config.yaml").is_file():
            raise ValueError(f"{path} is not a run directory: it has no config.yaml")
        return cls(path)

    def plain_config(self) -> dict[str, Any]:
        """Return the configuration as it was written, by whatever version of fedrf."""
        content = yaml.safe_load((self.path / "config.yaml").read_text())
        if not isinstance(content, dict):
            raise ValueError(f"{self.path / 'config.yaml'} is damaged: it is no mapping of keys; start a new run")
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

    @property
    def is_finished(self) -> bool:
        """Whether the run is complete."""
        return (self.read_summary() or {}).get("status") == "finished"

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write summary.json."""
        self.owner.fence.check()
        text = json.dumps(summary, indent=1) + "\n"
        write_atomically(self.path / "summary.json", lambda path: path.write_text(text))

    def keep_rows(self, count: int) -> None:
        """Drop figures after the first `count`, which a resumed run will write again.

        Raises
        ------
        ValueError
            If there are fewer.
        """
        self.owner.fence.check()
        lines = self._whole_lines()
        if len(lines) < count:
            raise ValueError(
                f"{self.metrics} has {len(lines)} figures, and the checkpoint was written after {count}: put the whole "
                "file back, or start a new run"
            )
        write_atomically(self.metrics, lambda path: path.write_text("".join(lines[:count])))

    def append_rows(self, rows: Collection[dict[str, Any]]) -> None:
        """Append figures, one line each."""
        if not rows:
            return
        self.owner.fence.check()
        with self.metrics.open("a") as file:
            file.writelines(json.dumps(_as_json(row)) + "\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())  # the coordinator forgets rows that were written

    def log(self, event: str, **details: Any) -> None:
        """Append a line to run.log: the time, an event, and details. A full disk does not end a run here."""
        with suppress(OSError, RunTakenOverError):
            self.owner.fence.check()
            with (self.path / "run.log").open("a") as file:
                file.write(json.dumps({"time": now(), "event": event, **details}) + "\n")

    def rows(self) -> list[dict[str, Any]]:
        """Return all figures."""
        return [json.loads(line) for line in self._whole_lines()]

    def _whole_lines(self) -> list[str]:
        """Return the lines of metrics.jsonl; the last may have been cut off by a crash."""
        lines = self.metrics.read_text().splitlines(keepends=True) if self.metrics.exists() else []
        return lines if not lines or lines[-1].endswith("\n") else lines[:-1]


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with integers as integers, and null for numbers that JSON does not have."""

    def plain(key: str, value: Any) -> Any:
        if key in COUNTING_FIGURES:
            return int(value)
        return None if isinstance(value, float) and not isfinite(value) else value

    return {key: plain(key, value) for key, value in row.items()}
