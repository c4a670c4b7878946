"""Unreliable networks: lost messages, the interval T_C, one-shot votes and the order of messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedrf.paper.figures import draw_interval
from fedrf.paper.plan import Cell, Experiment, Plan
from fedrf.paper.setting import Domains, Setting

RANDOM: dict[str, Any] = {"federation.participants": "random"}
# Table III: the senders of Σℓ / W / C.
DROPS: dict[str, dict[str, Any]] = {
    "(I)": RANDOM,
    "(II)": RANDOM | {"federation.classifiers_from": "subset"},
    "(III)": RANDOM | {"federation.aligners_from": "subset", "federation.classifiers_from": "subset"},
}
# Settings of FedRF-TCA that have nothing to do with alignment, for methods that are compared with it one to one.
LIKE_FEDRF_TCA: dict[str, Any] = {
    "model.classifier": "mlp",
    "train.label_smoothing": 0.0,
    "federation.aggregation": "mean",
    "federation.classifier_interval": 1,
}
ALIKE = "FedAvg has the classifier, the loss and the intervals of FedRF-TCA here."
INTERVALS = (10, 20, 50, 100, 200, 400, 800)
OFFICE_CALTECH_TASKS = {"A": "C,D,W→A", "C": "A,D,W→C", "D": "A,C,W→D", "W": "A,C,D→W"}
TABLE3_TASKS = {"mt": "mm,sv,sy,up→mt", "mm": "mt,sv,sy,up→mm", "up": "mt,mm,sv,sy→up"}


def _vote(embeddings: str, aligners: str) -> dict[str, Any]:
    return {
        "federation.prediction": "vote",
        "federation.embeddings_from": embeddings,
        "federation.aligners_from": aligners,
        "federation.classifiers_from": "none",
    }


# The senders of Σℓ / W, with one vote of the sources' classifiers at the end.
ORDERS_OF_MESSAGES: dict[str, dict[str, Any]] = {
    "(A)": _vote("all", "all"),
    "(B)": _vote("ordered", "same"),
    "(C)": _vote("ordered", "random"),
    "(D)": _vote("random", "same"),
    "(E)": _vote("random", "random"),
}


def fedrf_settings(setting: Setting) -> dict[str, dict[str, Any]]:
    """Return settings (I) to (III) of tables V and VI: all clients, random subsets, and those with T_C = 50."""
    return {
        "FedRF-TCA (I)": {"method": "fedrf-tca"},
        "FedRF-TCA (II)": {"method": "fedrf-tca", **RANDOM},
        "FedRF-TCA (III)": {
            "method": "fedrf-tca",
            **RANDOM,
            "federation.classifier_interval": setting.interval(50),
        },
    }


def table3(setting: Setting) -> Plan:
    """Return settings (I) to (III) with T_C = 50."""
    data = setting.digit_five()
    interval = {"method": "fedrf-tca", "federation.classifier_interval": setting.interval(50)}
    cells = [
        Cell(task, column, setting.run(seed, {**data.to(target), **interval, **drops}))
        for seed in setting.seeds(3)
        for target, task in TABLE3_TASKS.items()
        if target in data.names
        for column, drops in DROPS.items()
    ]
    return Plan(tuple(cells), (*setting.notes, *data.notes), data.stand_in)


def _interval_cells(setting: Setting, data: Domains, intervals: Mapping[str, Any]) -> list[Cell]:
    """Return FedRF-TCA and FedAvg over T_C, in setting (I) of table III."""
    methods: dict[str, dict[str, Any]] = {
        "FedRF-TCA": {"method": "fedrf-tca"},
        "FedAvg": {"method": "fedavg", **LIKE_FEDRF_TCA},
    }
    return [
        Cell(
            f"{name} →{target}",
            column,
            setting.run(seed, {**data.to(target), **RANDOM, **method, "federation.classifier_interval": interval}),
        )
        for seed in setting.seeds(2)
        for target in data.names
        if target in ("mt", "up", "mm")
        for name, method in methods.items()
        for column, interval in intervals.items()
    ]


def fig4(setting: Setting) -> Plan:
    """Return the accuracy over T_C."""
    data = setting.digit_five()
    intervals = {str(interval): setting.interval(interval) for interval in INTERVALS}
    notes = (*setting.notes, *data.notes, ALIKE, _columns(setting))
    return Plan(tuple(_interval_cells(setting, data, intervals)), notes, data.stand_in)


def fig7(setting: Setting) -> Plan:
    """Return the accuracy over T_C, with one average after the last round."""
    data = setting.digit_five()
    intervals: dict[str, Any] = {str(interval): setting.interval(interval) for interval in INTERVALS}
    cells = _interval_cells(setting, data, intervals | {"1600": "last"})
    return Plan(tuple(cells), (*setting.notes, *data.notes, ALIKE, _columns(setting)), data.stand_in)


def _columns(setting: Setting) -> str:
    if not setting.quick:
        return "Columns are T_C."
    return f"Columns are the paper's T_C of 1,600 rounds; here it is {setting.interval(100)} for 100, and so on."


def voting_office_caltech(setting: Setting) -> Plan:
    """Return one-shot votes on Office-Caltech."""
    return _voting(setting, setting.office_caltech(), OFFICE_CALTECH_TASKS)


def voting_digit_five(setting: Setting) -> Plan:
    """Return one-shot votes on Digit-Five."""
    data = setting.digit_five()
    return _voting(setting, data, {name: f"→{name}" for name in data.names})


def _voting(setting: Setting, data: Domains, columns: Mapping[str, str]) -> Plan:
    rows = {"FedRF-TCA (IV)": ORDERS_OF_MESSAGES["(A)"], "FedRF-TCA (V)": ORDERS_OF_MESSAGES["(E)"]}
    cells = [
        Cell(row, columns[target], setting.run(seed, {**data.to(target), "method": "fedrf-tca", **vote}))
        for seed in setting.seeds()
        for target in data.names
        for row, vote in rows.items()
    ]
    notes = (
        "The paper does not define (IV) and (V); its numbers suggest (A) all/all and (E) random/random of the orders.",
        "The baselines of these tables are those of table5-office-caltech and table6-digit-five.",
    )
    return Plan(tuple(cells), (*setting.notes, *data.notes, *notes), data.stand_in)


def orders(setting: Setting) -> Plan:
    """Return orders (A) to (E) of Σℓ and W."""
    data = setting.digit_five()
    cells = [
        Cell(task, column, setting.run(seed, {**data.to(target), "method": "fedrf-tca", **order}))
        for seed in setting.seeds()
        for target, task in TABLE3_TASKS.items()
        if target in data.names
        for column, order in ORDERS_OF_MESSAGES.items()
    ]
    return Plan(tuple(cells), (*setting.notes, *data.notes), data.stand_in)


TABLE3 = Experiment("table3-drops", "lost messages, settings (I)-(III) with T_C = 50", table3)
FIG4 = Experiment("fig4-interval", "accuracy over T_C, FedRF-TCA and FedAvg", fig4, draw_interval)
FIG7 = Experiment("fig7-one-shot", "accuracy over T_C up to one average", fig7, draw_interval)
VOTING_OFFICE_CALTECH = Experiment(
    "voting-office-caltech",
    "one-shot hard voting, Office-Caltech",
    voting_office_caltech,
    has_average=True,
)
VOTING_DIGIT_FIVE = Experiment(
    "voting-digit-five", "one-shot hard voting, Digit-Five", voting_digit_five, has_average=True
)
ORDERS = Experiment("orders-digit-five", "orders (A)-(E) of the messages", orders)
