"""Aggregation rules: pure functions from the parameters of K clients, of one shape, and their weights to one of it.

Weights are positive and need not sum to 1; rules that rank clients or coordinates ignore them. None of the rules
depends on the order of the clients, up to rounding, and equal inputs pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Weights = NDArray[np.float64]
Rule = Callable[[Sequence[Array], Weights], Array]
BLOCK = 32_768


def mean(clients: Sequence[Array], weights: Weights) -> Array:
    """Weighted mean: FedAvg's for sample counts, the plain mean for equal weights."""
    shares = (weights / weights.sum()).astype(np.float32)
    result = clients[0].copy()
    flat, sent = result.reshape(-1), [values.reshape(-1) for values in clients]
    # Block by block, so that it stays in the cache; by differences, which keep equal inputs equal to the last bit.
    for start in range(0, flat.size, BLOCK):
        block = slice(start, start + BLOCK)
        for values, share in zip(sent[1:], shares[1:], strict=True):
            flat[block] += share * (values[block] - sent[0][block])
    return result


def median(clients: Sequence[Array], weights: Weights) -> Array:
    """Median of each coordinate: up to half of the clients may send anything."""
    return np.median(np.stack(clients), axis=0).astype(np.float32)


def trimmed_mean(clients: Sequence[Array], weights: Weights) -> Array:
    """Mean of each coordinate without its largest and smallest fifth, at least one of each where K > 2."""
    count = len(clients)
    cut = max(1, count // 5) if count > 2 else 0
    kept = np.sort(np.stack(clients), axis=0)[cut : count - cut]
    return mean(list(kept), np.ones(len(kept)))


def krum(clients: Sequence[Array], weights: Weights) -> Array:
    """Return the one client that is nearest to its neighbours (Blanchard et al. 2017).

    Scores are sums of squared distances to the K − f − 2 nearest others, with f as large as K > 2f + 2 allows.
    Between equal scores the bytes of the parameters decide, so that the order of the clients has no say.
    """
    count = len(clients)
    liars = max(0, (count - 3) // 2)
    neighbours = max(1, count - liars - 2)
    squared = np.array([[np.square(a - b, dtype=np.float64).sum() for b in clients] for a in clients])
    scores = np.sort(squared, axis=1)[:, 1 : neighbours + 1].sum(axis=1)
    nearest = [values for values, score in zip(clients, scores, strict=True) if score == scores.min()]
    return min(nearest, key=lambda values: values.tobytes()).copy()


def geometric_median(clients: Sequence[Array], weights: Weights) -> Array:
    """Point with the least sum of weighted distances to all clients, by Weiszfeld's iteration (Pillutla et al.)."""
    flat = np.stack(clients).reshape(len(clients), -1).astype(np.float64)
    origin = np.median(flat, axis=0)  # not a mean: one client far away would cost all the digits
    rows = flat - origin
    point = np.zeros_like(origin)
    scale = np.median(np.linalg.norm(rows, axis=1))
    for _ in range(100 if scale else 0):  # without a scale, half of the clients agree
        distances = np.linalg.norm(rows - point, axis=1)
        pulls = weights / np.maximum(distances, 1e-9 * scale)
        moved = (pulls / pulls.sum()) @ rows
        step = np.linalg.norm(moved - point)
        point = moved
        if step <= 1e-7 * scale:
            break
    return (origin + point).astype(np.float32).reshape(clients[0].shape)


RULES: dict[str, Rule] = {
    "mean": mean,
    "weighted": mean,
    "chosen": mean,
    "median": median,
    "trimmed": trimmed_mean,
    "krum": krum,
    "geometric-median": geometric_median,
}


def staleness_weight(staleness: float, exponent: float) -> float:
    """FedAsync's polynomial discount (1 + τ)^(−a) of a message that is τ rounds old (Xie et al. 2019)."""
    return float((1.0 + max(staleness, 0.0)) ** -exponent)


def mix(current: Array, update: Array, weight: float) -> Array:
    """FedAsync's step from the current parameters towards one client's: (1 − α) · current + α · update."""
    return (current + weight * (update - current)).astype(current.dtype)


def flush(buffer: Sequence[tuple[Array, float]]) -> Array:
    """FedBuff: weighted mean of the updates in a full buffer (Nguyen et al. 2022)."""
    updates, weights = zip(*buffer, strict=True)
    return mean(updates, np.asarray(weights, dtype=np.float64))
