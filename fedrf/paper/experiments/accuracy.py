"""Accuracy against federated and central baselines: tables IV to VII."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedrf.paper.experiments.alignment import (
    CLOSED_FORMS,
    closed_form_cells,
    closed_form_notes,
    pair_name,
    random_features,
)
from fedrf.paper.experiments.robustness import OFFICE_CALTECH_TASKS, fedrf_settings
from fedrf.paper.plan import Cell, Experiment, Plan
from fedrf.paper.setting import Domains, Setting

Rows = Mapping[str, Mapping[str, Any]]
CENTRAL: Rows = {
    "DDC (central)": {"method": "pooled-ddc"},
    "DAN (central)": {"method": "pooled-dan"},
    "DANN (central)": {"method": "pooled-dann"},
    "CDAN (central)": {"method": "pooled-cdan"},
}
FEDERATED: Rows = {
    "AdaBN": {"method": "adabn"},
    "AutoDIAL": {"method": "autodial"},
    "f-DAN": {"method": "f-dan"},
    "f-DANN": {"method": "f-dann"},
    "FADA": {"method": "fada"},
    "FedAvg": {"method": "fedavg"},
    "FedSGD": {"method": "fedsgd"},
    "FedMA": {"method": "fedavg", "federation.aggregation": "fedma", "model.classifier": "mlp"},
}
OWN: Rows = {
    "FedRF-TCA, local extractors": {"method": "fedrf-tca", "model.sharing": "local"},
    "fedrf-plus": {"method": "fedrf-plus"},
}
# Independently trained networks without random features, and a majority vote at the target.
SOURCE_ONLY: Mapping[str, Any] = {"method": "source-only", "model.kernel": "none", "model.sharing": "local"}
BASELINES = (
    "Baselines have their own settings (docs/methods.md): a linear classifier, averages every fifth "
    "round. fedrf-plus is this package's own method."
)
CENTRAL_NOTE = "Central references see the samples of all domains in one place."
FEDMA_NOTE = "FedMA matches the hidden neurons of the classifier before it averages them; else it is FedAvg."
COLUMNS_7 = ("Source only", "DANN", "CDAN", "FedRF-TCA")
CLIENTS = 4  # of the federated half of table VII


def federated_cells(setting: Setting, data: Domains, rows: Rows, columns: Mapping[str, str]) -> list[Cell]:
    """Return the cells of federated runs, from all other domains to each target."""
    return [
        Cell(row, columns[target], setting.run(seed, {**data.to(target), **settings}))
        for seed in setting.seeds()
        for target in data.names
        for row, settings in rows.items()
    ]


def table4(setting: Setting) -> Plan:
    """Return single sources of Office-31: closed forms on features, FedRF-TCA and central references on images."""
    images, features = setting.office31(), setting.office31_features()
    numbers = {f"RF-TCA (N={number})": random_features(number) for number in (500, 1000)}
    closed = {row: CLOSED_FORMS[row] for row in ("TCA", "JDA", "CORAL", "GFK", "DaNN")} | numbers
    rows: Rows = {"FedRF-TCA": {"method": "fedrf-tca"}, **OWN, **CENTRAL}
    cells = closed_form_cells(setting, features, closed) + [
        Cell(row, pair_name(pair), setting.run(seed, {**images.to(pair[1], [pair[0]]), **settings}))
        for seed in setting.seeds()
        for pair in images.pairs
        for row, settings in rows.items()
    ]
    own = (BASELINES, CENTRAL_NOTE)
    notes = dict.fromkeys((*setting.notes, *images.notes, *closed_form_notes(setting, features), *own))
    return Plan(tuple(cells), tuple(notes), features.stand_in)


def table5(setting: Setting) -> Plan:
    """Return all methods on Office-Caltech."""
    data = setting.office_caltech()
    rows: Rows = {"ResNet101": SOURCE_ONLY, **FEDERATED, **fedrf_settings(setting), **OWN, **CENTRAL}
    cells = federated_cells(setting, data, rows, OFFICE_CALTECH_TASKS)
    first = "The row ResNet101 is a majority vote of independently trained sources, on the backbone named above."
    return Plan(tuple(cells), (*setting.notes, *data.notes, first, BASELINES, FEDMA_NOTE, CENTRAL_NOTE), data.stand_in)


def table6(setting: Setting) -> Plan:
    """Return all methods on Digit-Five."""
    data = setting.digit_five()
    rows: Rows = {"Source only": SOURCE_ONLY, **FEDERATED, **fedrf_settings(setting), **OWN, **CENTRAL}
    cells = federated_cells(setting, data, rows, {name: f"→{name}" for name in data.names})
    first = "Source only is a majority vote of independently trained sources."
    return Plan(tuple(cells), (*setting.notes, *data.notes, first, BASELINES, FEDMA_NOTE, CENTRAL_NOTE), data.stand_in)


def table7(setting: Setting) -> Plan:
    """Return centralised and federated training on VisDA-C; federated, the source is split over clients."""
    data = setting.visda()
    rows: dict[str, tuple[Mapping[str, Any], dict[str, str]]] = {
        "Centralized": ({}, dict(zip(COLUMNS_7, ("pooled", "pooled-dann", "pooled-cdan", "fedrf-tca"), strict=True))),
        "Federated": (
            {"data.partition": "even", "data.clients": CLIENTS},
            dict(zip(COLUMNS_7, ("fedavg", "fade-dann", "fade-cdan", "fedrf-tca"), strict=True)),
        ),
    }
    cells = [
        Cell(row, column, setting.run(seed, {**data.to("T"), **split, "method": method}))
        for seed in setting.seeds()
        for row, (split, methods) in rows.items()
        for column, method in methods.items()
    ]
    notes = (
        f"Federated, the source is split evenly over {CLIENTS} clients: FedAvg, and FADE with DANN and CDAN. "
        "Centralized FedRF-TCA has one source client.",
    )
    return Plan(tuple(cells), (*setting.notes, *data.notes, *notes), data.stand_in)


TABLE4 = Experiment(
    "table4-office31",
    "accuracy with single sources, Office-31",
    table4,
    has_average=True,
)
TABLE5 = Experiment("table5-office-caltech", "accuracy on Office-Caltech", table5, has_average=True)
TABLE6 = Experiment("table6-digit-five", "accuracy on Digit-Five", table6, has_average=True)
TABLE7 = Experiment("table7-visda", "accuracy on VisDA-C", table7)
