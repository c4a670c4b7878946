"""Tables of outcomes on a terminal and as Markdown."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from fedrf.comparison.rendering import markdown_row, print_full_width
from fedrf.paper.outcome import PAPER, Outcome


def heading(outcome: Outcome) -> str:
    """Return the name, the title, the mode and what stands in for missing data."""
    return f"{outcome.name}: {outcome.title} ({mode_of(outcome)})"


def mode_of(outcome: Outcome) -> str:
    """Return the mode, what stands in for missing data, and how many jobs are missing."""
    stand_in = f"; stand-in: {outcome.stand_in}" if outcome.stand_in else ""
    missing = f"; {outcome.finished} of {outcome.jobs} jobs" if outcome.finished < outcome.jobs else ""
    return f"{outcome.mode}{stand_in}{missing}"


def remarks(outcome: Outcome) -> list[str]:
    """Return everything that a reader has to know beside the numbers."""
    published = outcome.published
    texts = [f"In the paper: {published.place}."] if published.place else []
    texts += [f"Setting of the paper: {published.setting}"] if published.setting else []
    texts += [f"Here: {note}" for note in outcome.notes]
    texts += [f"Paper: {note}" for note in published.notes]
    texts += [f"No value: {failure}" for failure in outcome.failures]
    count = outcome.num_seeds
    seeds = "One seed" if count < 2 else f"Mean and standard deviation over {count} seeds where ± is shown"
    texts.append(
        f"{seeds}, {outcome.jobs} jobs, {outcome.seconds / 60:.1f} minutes of one thread, {outcome.written}, fedrf "
        f"{outcome.version}. Repeat: {outcome.command}"
    )
    return texts


def print_outcome(outcome: Outcome, console: Console) -> None:
    """Print all tables of an experiment, and the remarks."""
    console.print(f"[bold]{escape(heading(outcome))}[/bold]")
    for table in outcome.shown:
        view = RichTable(box=None, pad_edge=False)
        view.add_column(escape(table.heading), no_wrap=True)
        view.add_column("")
        for column in outcome.columns(table):
            view.add_column(escape(column), justify="right", no_wrap=True)
        previous = ""
        for line in outcome.lines(table):
            style = "dim" if line.origin == PAPER else None
            name = line.row if line.row != previous else ""
            view.add_row(escape(name), line.origin, *map(escape, line.entries), style=style)
            previous = line.row
        console.print()
        print_full_width(view, console)
    console.print()
    for text in remarks(outcome):
        console.print(f"- {text}", markup=False, highlight=False)


def as_markdown(outcome: Outcome) -> str:
    """Return all tables of an experiment and the remarks as Markdown."""
    parts = [f"## {heading(outcome)}"]
    for table in outcome.shown:
        columns = outcome.columns(table)
        lines = [markdown_row([table.heading, "", *columns]), markdown_row(["---", "---", *["---:"] * len(columns)])]
        lines += [markdown_row([line.row, line.origin, *line.entries]) for line in outcome.lines(table)]
        parts.append("\n".join(lines))
    parts.append("\n".join(f"- {text}" for text in remarks(outcome)))
    return "\n\n".join(parts) + "\n"
