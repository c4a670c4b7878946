"""Tables and remarks as Markdown, as LaTeX, and on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedrf.comparison.remarks import remarks
from fedrf.comparison.results import Comparison
from fedrf.comparison.tables import Grid, accuracy_grid, all_grids, analysis_grids

LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "→": r"$\rightarrow$",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "≥": r"$\geq$",
}
PREAMBLE = "% Needs \\usepackage{booktabs}; take it in with \\input.\n"
MAX_WIDTH = 10_000  # characters, more than any table has


def as_markdown(comparison: Comparison) -> str:
    """Return all tables and remarks as Markdown."""
    plan = comparison.plan
    parts = [f"# {plan.recipe}: variants {len(plan.variants)}, tasks {len(plan.tasks)}, seeds {len(plan.seeds)}"]
    parts += [_markdown_table(grid) for grid in all_grids(comparison)]
    parts.append("\n".join(f"- {remark}" for remark in remarks(comparison)))
    return "\n\n".join(parts) + "\n"


def _markdown_table(grid: Grid) -> str:
    rows = [[f"**{entry.text}**" if entry.best else entry.text for entry in row] for row in grid.rows]
    rule = ["---", *["---:"] * (len(grid.columns) - 1)]
    lines = [markdown_row(grid.columns), markdown_row(rule), *map(markdown_row, rows)]
    return "\n".join([f"**{grid.title}**", "", *lines])


def markdown_row(texts: Sequence[str]) -> str:
    """Return one row of a Markdown table."""
    return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |"


def as_latex(comparison: Comparison) -> str:
    """Return all tables as LaTeX floats, followed by the remarks."""
    tables = [_latex_table(grid) for grid in all_grids(comparison)]
    return "\n".join([PREAMBLE, *tables, *(_escape_latex(remark) + "\n" for remark in remarks(comparison))])


def _latex_table(grid: Grid) -> str:
    texts = [[_escape_latex(entry.text) for entry in row] for row in grid.rows]
    rows = [
        [rf"\textbf{{{text}}}" if entry.best else text for entry, text in zip(row, row_texts, strict=True)]
        for row, row_texts in zip(grid.rows, texts, strict=True)
    ]
    head = _latex_row([_escape_latex(column) for column in grid.columns])
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escape_latex(grid.title)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(grid.columns) - 1)}}}",
        *[r"\toprule", head, r"\midrule", *map(_latex_row, rows), r"\bottomrule"],
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join([*lines, ""])


def _latex_row(texts: Sequence[str]) -> str:
    return " & ".join(texts) + r" \\"


def _escape_latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def print_full_width(table: Table, console: Console) -> None:
    """Print a table at full width, also on a narrow terminal: rich would cut numbers off."""
    table.width = console.measure(table, options=console.options.update(max_width=MAX_WIDTH)).maximum
    console.print(table, crop=False)


def print_tables(comparison: Comparison, console: Console) -> None:
    """Print the accuracy after the last round, the statistical tests and the remarks."""
    for grid in (accuracy_grid(comparison, "final"), *analysis_grids(comparison)):
        table = Table(box=None, pad_edge=False)
        for number, column in enumerate(grid.columns):
            table.add_column(escape(column), justify="right" if number else "left", no_wrap=True)
        for row in grid.rows:
            table.add_row(
                *(f"[bold]{escape(entry.text)}[/bold]" if entry.best else escape(entry.text) for entry in row)
            )
        console.print(f"\n{escape(grid.title)}\n")
        print_full_width(table, console)
    console.print()
    for remark in remarks(comparison):
        console.print(escape(remark))
    console.print(f"Tables and runs: {escape(str(comparison.folder))}", soft_wrap=True)
