"""Theorem 1: the error of RF-TCA against R-TCA over N and n."""

from __future__ import annotations

from collections.abc import Mapping

from fedrf.paper.approximation_job import CLUSTERS, COLUMNS, DIM, GAMMA, SIGMA, approximation
from fedrf.paper.figures import draw_theorem
from fedrf.paper.fits import exponent
from fedrf.paper.outcome import Table
from fedrf.paper.plan import Cell, Experiment, Plan
from fedrf.paper.setting import Setting

TABLES = {
    "error": "error |HΣᵀW_RF − HKW_R|_F",
    "davis-kahan": "Davis-Kahan bound of the proof",
    "kernel": "kernel error |ΣᵀΣ − K|₂ / |K|₂",
    "predicted": "√(dim(K) log(n) / N)",
}


def theorem1(setting: Setting) -> Plan:
    """Compare both on n samples of four clusters, with N random frequencies."""
    counts = (200, 400, 800) if setting.quick else (200, 400, 800, 1600, 3200)
    numbers = tuple(50 * 2**power for power in range(7 if setting.quick else 9))
    cells = [
        Cell(f"n={count}", str(number), approximation(count, number, seed), name, table)
        for seed in setting.seeds(5, 10)
        for count in counts
        for number in numbers
        for name, table in TABLES.items()
    ]
    notes = (
        "The paper states the theorem without an experiment. Columns are N.",
        f"Rows are drawn from {CLUSTERS} normal distributions in {COLUMNS} dimensions, the target shifted; m = {DIM}, "
        f"γ = {GAMMA:g}, σ = {SIGMA:g}. The clusters give the eigen-gap that the theorem requires.",
    )
    return Plan(tuple(cells), notes, units=dict.fromkeys(TABLES.values(), ""))


def rates(tables: Mapping[str, Table]) -> list[Table]:
    """Return the exponent of N that fits each row."""
    rows = {
        name: {row: [exponent(table, row)] for row in table.rows if len(table.rows[row]) > 1}
        for name, table in tables.items()
    }
    columns = tuple(dict.fromkeys(column for entries in rows.values() for column in entries))
    return [Table("fitted exponent of N (theorem: −0.5)", "", columns, rows)]


THEOREM1 = Experiment("theorem1", "error of RF-TCA against R-TCA over N and n", theorem1, draw_theorem, rates)
