"""Weights & Biases, used by the driver alone. It never asks for a login."""

from __future__ import annotations

import netrc
import os
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from fedrf.config.schema import Config


def wandb_key() -> str | None:
    """Return where a W&B key is stored, without going online; None if there is none."""
    if os.environ.get("WANDB_API_KEY"):
        return "WANDB_API_KEY"
    import wandb

    host = urlsplit(wandb.Settings().base_url).hostname
    file = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    try:
        known = netrc.netrc(file).authenticators(host or "")
    except (OSError, netrc.NetrcParseError):
        return None
    return f"{host} in {file}" if known else None


def check_tracking(config: Config) -> None:
    """Raise if `track.wandb=online` and there is no key."""
    if config.track.wandb == "online" and wandb_key() is None:
        raise ValueError(
            "track.wandb=online needs a key: run `wandb login` or set WANDB_API_KEY; offline and disabled need none"
        )


def _id(folder: Path) -> str:
    """Return the id of the run, which stays the same when it is resumed; names of directories are not unique."""
    path = folder / "wandb-id.txt"
    if not path.exists():
        path.write_text(token_hex(8))
    return path.read_text()


class Tracker:
    """Sends figures and the summary to W&B, if tracking is enabled."""

    def __init__(self, config: Config, folder: Path, resume: bool) -> None:
        self._run: Any = None
        if config.track.wandb == "disabled":
            return
        import wandb

        name = f"{config.method}-{config.data.target}-s{config.seed}"
        self._run = wandb.init(
            project=config.track.project,
            name=name,
            group=config.track.group or f"{config.data.name}-{config.data.target}",
            id=_id(folder),
            resume="allow" if resume else None,
            config=config.model_dump(mode="json"),
            mode=config.track.wandb,
            dir=folder,
            settings=wandb.Settings(silent=True),
        )
        self._run.define_metric("*", step_metric="round")

    def log(self, rows: list[dict[str, Any]]) -> None:
        """Log figures under the name of their client, by round."""
        if self._run is not None:
            for row in rows:
                named = {
                    f"{row['client']}/{key}": value for key, value in row.items() if key not in ("client", "round")
                }
                self._run.log({"round": row["round"], **named})

    def close(self, summary: dict[str, Any] | None) -> None:
        """Add the summary and end the run."""
        if self._run is not None:
            self._run.summary.update(summary or {})
            self._run.finish(exit_code=0 if summary and summary["status"] == "finished" else 1)
            self._run = None
