"""The live display of the driver, and the summary at the end. Without a terminal there is no display."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from fedrf.config.schema import Config
from fedrf.experiment.results import RunResult
from fedrf.federation.status import Status

STRAGGLER = 0.5  # of the fastest client's rounds


class Display:
    """Rounds, losses, bytes and the state of each client, during a run."""

    def __init__(self, config: Config, target: str, console: Console | None = None) -> None:
        self.config, self.target = config, target
        self.console = console or Console(stderr=True)
        self.latest: dict[str, dict[str, Any]] = {}
        self._live = Live(console=self.console, transient=True, refresh_per_second=4)
        self._shown = self.console.is_terminal

    def __enter__(self) -> Display:
        if self._shown:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            self._live.stop()

    def update(self, status: Status) -> None:
        """Show the state of all clients."""
        for row in status.rows:
            self.latest.setdefault(row["client"], {}).update(row)
        if self._shown:
            self._live.update(self.table(status))

    def table(self, status: Status) -> Table:
        """Return the display as a table."""
        total = self.config.train.rounds
        sent = sum(status.traffic.values())
        title = f"{self.config.method} → {escape(self.target)}   {size(sent)} sent   {status.seconds:.0f} s"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for column in ("client", "where", "round", "loss", "MMD", "information", ""):
            table.add_column(column, justify="left" if column in ("client", "where", "") else "right")
        lead = max(status.rounds.values())
        for name, number in status.rounds.items():
            latest = self.latest.get(name, {})
            progress = [f"{min(number, total)}/{total}"] if total else []
            progress += [f"step {latest['step']:.0f}"] if "step" in latest else []
            figures = (f"{latest[key]:.4g}" if key in latest else "" for key in ("loss", "mmd", "information"))
            where = f"{place.node} {place.device}" if (place := status.places.get(name)) else ""
            state = self._state(name, number, lead, status)
            table.add_row(escape(name), escape(where), ", ".join(progress), *figures, state)
        return table

    def _state(self, name: str, number: int, lead: int, status: Status) -> str:
        if name in status.finished:
            return "done"
        if name not in status.present:
            return "gone, restarting"
        if name in status.preparing:
            return f"preparing samples: {status.preparing[name]:.0%}"
        if not lead:
            return "starting"
        return "straggler" if number < STRAGGLER * lead else ""


def size(number: float) -> str:
    """Return a number of bytes with a unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    raise AssertionError


def percent(value: float | None) -> str:
    """Return a fraction in percent."""
    return "–" if value is None else f"{value:.1%}"


def print_summary(result: RunResult, console: Console) -> None:
    """Print the summary of a run."""
    summary = result.summary
    accuracy, traffic = summary["target_accuracy"], summary["communication"]
    title = f"{summary['method']}: {', '.join(summary['sources'])} → {summary['target']} ({summary['status']})"
    console.print(title, markup=False)
    table = Table(box=None, pad_edge=False, show_header=False)
    accuracies = [
        ("accuracy on the target, final", accuracy["final"]),
        ("selected without labels", accuracy["selected"]),
    ]
    for name, value in [*accuracies, ("oracle: best round, chosen with labels", accuracy["oracle"])]:
        table.add_row(name, "-" if value is None else f"{value:.1%}")
    kinds = ", ".join(f"{kind} {size(number)}" for kind, number in traffic["bytes_by_kind"].items() if number)
    seconds, rounds = summary["seconds"], summary["rounds"]
    in_rounds, each = (
        (f" in {rounds} rounds", f", {1000 * seconds['per_round']:.0f} ms a round") if rounds else ("", "")
    )
    table.add_row("sent", f"{size(traffic['bytes_total'])}{in_rounds} ({kinds})")
    table.add_row("time", f"{seconds['total']:.1f} s{each}")
    for kind in ("note", "failure"):
        for text in summary.get(f"{kind}s", [])[:5]:
            table.add_row(kind, escape(text))
    table.add_row("written to", escape(str(result.folder)))
    console.print(table)
