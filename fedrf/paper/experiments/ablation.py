"""Ablations: without alignment, without random features (tables VIII and IX), and without Σℓ (figure 5)."""

from __future__ import annotations

from typing import Any

from fedrf.paper.experiments.accuracy import Rows, federated_cells
from fedrf.paper.experiments.robustness import ALIKE, LIKE_FEDRF_TCA, OFFICE_CALTECH_TASKS
from fedrf.paper.figures import draw_heterogeneity
from fedrf.paper.plan import Cell, Experiment, Plan
from fedrf.paper.setting import Setting

ROWS: Rows = {
    "FedAvg": {"method": "fedavg", **LIKE_FEDRF_TCA},
    "FedAvg + RF-TCA module": {"method": "fedavg-rf", **LIKE_FEDRF_TCA},
    "FedRF-TCA": {"method": "fedrf-tca"},
}
SHARES = 5  # of one domain, for implicit heterogeneity: four sources and the target
HETEROGENEOUS = {"mm": "MNIST-M", "sy": "Synthetic Digits"}


def table8(setting: Setting) -> Plan:
    """Return the ablation on Digit-Five."""
    data = setting.digit_five()
    cells = federated_cells(setting, data, ROWS, {name: f"→{name}" for name in data.names})
    return Plan(tuple(cells), (*setting.notes, *data.notes, ALIKE), data.stand_in)


def table9(setting: Setting) -> Plan:
    """Return the ablation on Office-Caltech."""
    data = setting.office_caltech()
    cells = federated_cells(setting, data, ROWS, OFFICE_CALTECH_TASKS)
    return Plan(tuple(cells), (*setting.notes, *data.notes, ALIKE), data.stand_in)


def fig5(setting: Setting) -> Plan:
    """Return FedRF-TCA between domains, and with, without Σℓ and FedAvg between shares of one domain."""
    data = setting.digit_five()
    implicit: dict[str, dict[str, Any]] = {
        "FedRF-TCA: implicit": {"method": "fedrf-tca"},
        "Without Σℓ: implicit": {"method": "fedrf-tca", "federation.embeddings_from": "none"},
        "FedAvg: implicit": {"method": "fedavg", **LIKE_FEDRF_TCA},
    }
    cells = []
    for seed in setting.seeds(3):
        for short, column in HETEROGENEOUS.items():
            if short not in data.names:
                continue
            between = setting.run(seed, {**data.to(short), "method": "fedrf-tca"})
            cells.append(Cell("FedRF-TCA: explicit", column, between))
            shares = data.to(short, [short]) | {"data.partition": "even", "data.clients": SHARES - 1}
            cells += [Cell(row, column, setting.run(seed, {**shares, **own})) for row, own in implicit.items()]
    note = f"Implicit: one domain is split evenly over {SHARES - 1} sources and the target."
    return Plan(tuple(cells), (*setting.notes, *data.notes, note, ALIKE), data.stand_in)


TABLE8 = Experiment("table8-ablation-digits", "ablation on Digit-Five", table8, has_average=True)
TABLE9 = Experiment("table9-ablation-office", "ablation on Office-Caltech", table9, has_average=True)
FIG5 = Experiment(
    "fig5-heterogeneity",
    "implicit and explicit heterogeneity, with and without Σℓ",
    fig5,
    draw_heterogeneity,
)
