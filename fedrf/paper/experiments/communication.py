"""What is sent: table I (complexity) and table II (numbers of an update)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedrf.paper.federated_job import federated
from fedrf.paper.fits import exponent
from fedrf.paper.outcome import Table
from fedrf.paper.plan import Cell, Experiment, Job, Plan
from fedrf.paper.setting import Setting

METHODS = {"FADA": "fada", "FedKA": "fedka", "FDA": "fda", "FedRF-TCA": "fedrf-tca"}
BASE = {"n": 200, "N": 100, "K": 4}
VALUES = {"n": (50, 100, 200, 400), "N": (50, 100, 200, 400), "K": (1, 2, 4, 8)}
EXPONENTS = "fitted exponents of these bytes"
PAPER_SIZES: dict[str, Any] = {"model.num_features": 1000, "model.dim": 800, "model.classifier": "mlp"}


def table1(setting: Setting) -> Plan:
    """Count the data-dependent bytes of one update over all n samples, for several n, N and K."""
    cells = [
        Cell(row, str(value), _update(method, BASE | {variable: value}), "bytes of data", _table_name(variable))
        for variable, values in VALUES.items()
        for row, method in METHODS.items()
        for value in values
    ]
    notes = (
        "One update is a round whose batch is all n samples of a client, so that all methods use the same data. "
        "Data-dependent bytes are all but model parameters, both ways, as the ledger counts them.",
        "N is the number of random frequencies of FedRF-TCA, and the number of aligned features of the others. "
        f"Where they do not vary, n = {BASE['n']}, N = {BASE['N']} and K = {BASE['K']}.",
        "Embedded digits; sizes do not depend on the data. An exponent of K below 1 is the target's own message, which "
        "does not grow with K: 3K + 1 messages in a round.",
        "W (2N × m numbers) and C are model parameters, for FedRF-TCA as for the others; table II counts them.",
    )
    return Plan(tuple(cells), notes, units={_table_name(variable): "" for variable in VALUES})


def _table_name(variable: str) -> str:
    return f"data-dependent bytes over {variable}"


def _update(method: str, sizes: Mapping[str, int]) -> Job:
    features = {"model.num_features": sizes["N"], "model.dim": 10}
    settings: dict[str, Any] = {
        "method": method,
        "data.name": "digits",
        "data.sources": ["rendered"],
        "data.target": "handwritten",
        "data.partition": "even",
        "data.clients": sizes["K"],
        "data.samples": sizes["n"] * sizes["K"],
        "federation.mode": "sync",
        "train.rounds": 1,
        "train.batch_size": sizes["n"],
        "track.evaluate_every": 100,
    }
    return federated(settings | (features if method == "fedrf-tca" else {"model.dim": sizes["N"]}))


def exponents(tables: Mapping[str, Table]) -> list[Table]:
    """Return the exponent of n, N and K that fits the bytes of each method."""
    rows = {
        row: {
            variable: [exponent(tables[_table_name(variable)], row)]
            for variable in VALUES
            if len(tables[_table_name(variable)].rows.get(row, {})) > 1
        }
        for row in METHODS
    }
    return [Table(EXPONENTS, "", tuple(VALUES), rows)]


def table2(setting: Setting) -> Plan:
    """Count the numbers that one source sends in an update, at the paper's sizes."""
    settings: dict[str, Any] = {
        "data.name": "digits",
        "data.sources": ["rendered"],
        "data.target": "handwritten",
        "data.samples": 8,
        "model.extractor": "resnet50",
        "model.weights": "none",
        "train.rounds": 1,
        "train.batch_size": 4,
        "federation.mode": "sync",
        "federation.classifier_interval": 1,
        "track.evaluate_every": 100,
        **PAPER_SIZES,
    }
    jobs = {
        "FedAvg": federated({**settings, "method": "fedavg"}),
        "FedRF-TCA": federated({**settings, "method": "fedrf-tca", "model.sharing": "local"}),
        "FedRF-TCA, extractors averaged": federated(
            {**settings, "method": "fedrf-tca", "model.sharing": "averaged", "model.extractor_interval": 1}
        ),
    }
    columns = {
        "data-dependent features": "data",
        "model parameters": "parameters",
        "sum": "sum",
    }
    cells = [Cell(row, column, job, value, "numbers") for row, job in jobs.items() for column, value in columns.items()]
    notes = (
        "Numbers in the messages of one client in one update, one way, from the ledger. The paper's 1.691 million "
        "parameters are those of N = 1000, m = 800 and a classifier with two hidden layers of 100 neurons for 10 "
        "classes; these sizes are used here.",
        "Σℓ has 2N = 2,000 numbers; the paper prints 0.001 million.",
        "FedAvg sends what it trains: the last stage of ResNet-50, W and C, 16.7 million numbers. The paper's "
        "25.637 million are about those of the whole ResNet-50 with its ImageNet classifier (25.557).",
        "The accuracies of the other tables are those of FedRF-TCA with averaged extractors.",
        "Random weights and eight images: sizes do not depend on them.",
    )
    return Plan(tuple(cells), notes, units={"numbers": "million"})


TABLE1 = Experiment("table1-communication", "communication complexity over n, N and K", table1, derive=exponents)
TABLE2 = Experiment("table2-message-size", "numbers sent in an update", table2)
