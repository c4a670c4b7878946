"""summary.json: the result of a run in one file."""

from __future__ import annotations

from typing import Any

from fedrf.adaptation.selection import BUILT_IN, best, evaluations
from fedrf.config.schema import Config
from fedrf.errors import NOT_THE_SAME_BITS
from fedrf.experiment.resolve import warnings_about
from fedrf.federation.status import Status

ALWAYS_LISTED = ("mean_embedding", "aligner", "classifier", "extractor")


def summarise(
    config: Config,
    sources: tuple[str, ...],
    outcome: str,
    status: Status,
    rows: list[dict[str, Any]],
    failures: list[str],
) -> dict[str, Any]:
    """Return the content of summary.json.

    `final` is the last evaluation, after everything; `selected` is the best one by the score `track.select`, chosen
    without labels; `oracle` is the best one, chosen with them.
    """
    target, select = config.data.target, config.track.select
    placement = {client: place._asdict() for client, place in status.places.items()}
    evaluated = evaluations(rows, target)
    last: dict[str, Any] = next((row for row in reversed(evaluated) if row.get("final")), {})
    rounds = max((row["round"] for row in rows if "step" not in row), default=0)
    return {
        "method": config.method,
        "dataset": config.data.name,
        "sources": list(sources),
        "target": target,
        "seed": config.seed,
        "status": outcome,
        "rounds": rounds,
        "target_accuracy": _accuracies(evaluated, last, select),
        "target_information": last.get("information"),
        "scores": {score: last[score] for score in dict.fromkeys((*BUILT_IN, select)) if score in last},
        "source_accuracy": {
            row["client"]: row["accuracy"] for row in rows if "accuracy" in row and row["client"] != target
        },
        "communication": _communication(status, rounds),
        "seconds": {"total": status.seconds, "per_round": status.round_seconds / rounds if rounds else 0.0},
        "measured": dict(status.measured),
        "placement": placement,
        "determinism": determinism(config, status),
        "config_hash": config.digest,
        "failures": [*failures, *status.failures],
        "suspicions": {name: dict(reasons) for name, reasons in status.suspicions.items()},
        "notes": [*warnings_about(config), *status.notes],
    }


def determinism(config: Config, status: Status) -> str | None:
    """Return what a run promises for the same seed; None before any client has started."""
    devices = {place.device.partition(":")[0] for place in status.places.values()}
    if not devices:
        return None
    if not config.has_fixed_order or not devices <= {"cpu", "cuda"}:
        return "not deterministic"
    if any(NOT_THE_SAME_BITS in note for note in status.notes):
        return "not deterministic: the notes name operations that have no deterministic implementation"
    return "same bits on the same GPU models and versions" if "cuda" in devices else "same seed, same bits"


def _accuracies(evaluated: list[dict[str, Any]], last: dict[str, Any], select: str) -> dict[str, float | None]:
    return {
        "final": last.get("accuracy"),
        "selected": (best(evaluated, select) or {}).get("accuracy"),
        "oracle": max((row["accuracy"] for row in evaluated if "accuracy" in row), default=None),
    }


def _communication(status: Status, rounds: int) -> dict[str, Any]:
    by_kind = dict.fromkeys(ALWAYS_LISTED, 0)
    for (_, kind), number in status.traffic.items():
        by_kind[kind] = by_kind.get(kind, 0) + number
    total = sum(by_kind.values())
    return {
        "bytes_total": total,
        "bytes_per_round": total / rounds if rounds else 0.0,
        "bytes_by_kind": by_kind,
        "by_direction": {
            wanted: {kind: number for (direction, kind), number in status.traffic.items() if direction == wanted}
            for wanted in ("up", "down")
        },
        "refused": dict(status.refused),
        "staleness": {str(age): number for age, number in sorted(status.staleness.items())},
    }
