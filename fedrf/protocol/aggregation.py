"""Aggregation rules: pure functions from the parameters of K clients, and their weights, to one array of that shape.

Weights are positive and need not sum to 1; rules that rank clients or coordinates ignore them. No rule depends on the
order of the clients, up to rounding, and equal inputs pass through unchanged.
`fedrf.config.registry.AGGREGATION_RULES` finds rules by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedrf.errors import reason

Array = NDArray[np.float32]
Weights = NDArray[np.float64]
BLOCK = 32_768  # values that are averaged at a time, so that they stay in the processor's cache
MAX_REACH_RATIO = 1.5


@dataclass(frozen=True)
class Rule:
    """An aggregation rule.

    Attributes
    ----------
    combine
        From the parameters of the clients, and their weights, to the aggregate.
    weights
        What weights are: equal, the clients' numbers of `samples`, or `chosen` by the target.
    asynchronous
        For rules that exist in async mode only: `mix` each update into the aggregate, or average a full `buffer`.
    outliers
        From the parameters of the clients to the positions of those that are left out; None: nobody is.
    matches_neurons
        Whether hidden neurons of the clients' classifiers are put in a common order before `combine` gets them. Needs a
        classifier with hidden layers, and a rule of both modes.
    """

    combine: Callable[[Sequence[Array], Weights], Array]
    weights: Literal["equal", "samples", "chosen"] = "equal"
    asynchronous: Literal["mix", "buffer"] | None = None
    outliers: Callable[[Sequence[Array]], list[int]] | None = None
    matches_neurons: bool = False


def mean(clients: Sequence[Array], weights: Weights) -> Array:
    """Return the weighted mean: that of FedAvg for sample counts, the plain mean for equal weights."""
    shares = (weights / weights.sum()).astype(np.float32)
    result = clients[0].copy()
    flat, sent = result.reshape(-1), [values.reshape(-1) for values in clients]
    # Sums of differences keep equal inputs equal to the last bit.
    for start in range(0, flat.size, BLOCK):
        block = slice(start, start + BLOCK)
        for values, share in zip(sent[1:], shares[1:], strict=True):
            flat[block] += share * (values[block] - sent[0][block])
    return result


def outliers(clients: Sequence[Array]) -> list[int]:
    """Return the positions of clients that are far from every majority of the clients.

    The reach of a client is the least distance within which it finds enough others for a majority with itself. A client
    is left out if its reach is larger than 1.5 times the median reach and than the median norm: parameters of 0 would
    be nearer to the others than its own. At least half of the clients remain; of two clients, both do.

    If fewer than half of K clients are hostile, all honest ones remain that are nearer to each other than the shortest
    of them is long. Who remains is no further from some honest client than the larger of 1.5 times the largest distance
    between honest clients and the norm of the longest of them.
    """
    count = len(clients)
    if count < 3:
        return []
    sent = [values.reshape(-1) for values in clients]
    # Differences first: products of the parameters themselves would lose the digits that distances consist of.
    squares, lengths = np.zeros((count, count)), np.zeros(count)
    for start in range(0, sent[0].size, BLOCK):
        blocks = [values[start : start + BLOCK] for values in sent]
        for one, block in enumerate(blocks):
            lengths[one] += block @ block
            for other in range(one):
                difference = block - blocks[other]
                squares[one, other] += difference @ difference
    distances = np.sqrt(squares + squares.T)
    reach = np.sort(distances, axis=1)[:, count // 2]
    limit = max(MAX_REACH_RATIO * np.median(reach), np.median(np.sqrt(lengths)))
    return [int(position) for position in np.flatnonzero(reach > limit)]


def median(clients: Sequence[Array], weights: Weights) -> Array:
    """Return the median of each coordinate: robust against fewer than half of the clients."""
    return np.median(np.stack(clients), axis=0).astype(np.float32)


def trimmed_mean(clients: Sequence[Array], weights: Weights) -> Array:
    """Return the mean of each coordinate without its largest and smallest fifth, at least one of each if K > 2."""
    count = len(clients)
    cut = max(1, count // 5) if count > 2 else 0
    kept = np.sort(np.stack(clients), axis=0)[cut : count - cut]
    return mean(list(kept), np.ones(len(kept)))


def krum(clients: Sequence[Array], weights: Weights) -> Array:
    """Return the parameters of the client that is nearest to its neighbours (Blanchard et al. 2017).

    Scores are sums of squared distances to the K − f − 2 nearest others, with f as large as K > 2f + 2 allows.
    Ties are broken by the bytes of the parameters, so that the order of the clients does not matter.
    """
    count = len(clients)
    faulty = max(0, (count - 3) // 2)
    neighbours = max(1, count - faulty - 2)
    squared = np.array([[np.square(a - b, dtype=np.float64).sum() for b in clients] for a in clients])
    scores = np.sort(squared, axis=1)[:, 1 : neighbours + 1].sum(axis=1)
    nearest = [values for values, score in zip(clients, scores, strict=True) if score == scores.min()]
    return min(nearest, key=lambda values: values.tobytes()).copy()


def geometric_median(clients: Sequence[Array], weights: Weights) -> Array:
    """Return the point with the least sum of weighted distances, by Weiszfeld's iteration (Pillutla et al. 2022)."""
    flat = np.stack(clients).reshape(len(clients), -1).astype(np.float64)
    origin = np.median(flat, axis=0)  # not a mean: one distant client would cost all significant digits
    rows = flat - origin
    point = np.zeros_like(origin)
    scale = np.median(np.linalg.norm(rows, axis=1))
    for _ in range(100 if scale else 0):  # scale 0: half of the clients are equal
        distances = np.linalg.norm(rows - point, axis=1)
        pulls = weights / np.maximum(distances, 1e-9 * scale)
        moved = (pulls / pulls.sum()) @ rows
        step = np.linalg.norm(moved - point)
        point = moved
        if step <= 1e-7 * scale:
            break
    return (origin + point).astype(np.float32).reshape(clients[0].shape)


BUILT_IN = {
    "mean": Rule(mean),
    "consistent": Rule(mean, outliers=outliers),
    "weighted": Rule(mean, weights="samples"),
    "chosen": Rule(mean, weights="chosen"),
    "median": Rule(median),
    "trimmed": Rule(trimmed_mean),
    "krum": Rule(krum),
    "geometric-median": Rule(geometric_median),
    "fedma": Rule(mean, weights="samples", matches_neurons=True),
    "fedasync": Rule(mean, asynchronous="mix"),
    "fedbuff": Rule(mean, asynchronous="buffer"),
}


def accept(definition: object) -> Rule:
    """Return a rule, or the rule that a function of parameters and weights is; it is tried on two small arrays."""
    definition = definition() if isinstance(definition, type) else definition
    if not isinstance(definition, Rule) and not callable(definition):
        raise ValueError(f"{definition!r} is neither a Rule nor a function of parameters and weights")
    rule = definition if isinstance(definition, Rule) else Rule(definition)
    if not any(rule is known for known in BUILT_IN.values()):
        clients = [np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)]
        combine(rule, clients, np.ones(2))
    return rule


def combine(
    rule: Rule,
    clients: Sequence[Array],
    weights: Weights,
    widths: Sequence[int] = (),
    suspect: Callable[[int], None] = lambda position: None,
) -> Array:
    """Apply a rule and check its result.

    With `widths`, those of a network's layers, hidden neurons of the clients are matched first. `suspect` gets the
    position of each client that is left out.
    """
    if left_out := rule.outliers(clients) if rule.outliers else []:
        for position in left_out:
            suspect(position)
        kept = [position for position in range(len(clients)) if position not in left_out]
        clients, weights = [clients[position] for position in kept], weights[kept]
    if widths:
        from fedrf.protocol.matching import matched  # here, because SciPy takes a second to import

        clients = matched(clients, widths, weights)
    try:
        result = rule.combine(clients, weights)
    except Exception as error:  # code of others can raise anything
        raise ValueError(f"the aggregation rule failed ({type(error).__name__}: {reason(error)})") from error
    shape = clients[0].shape
    if not isinstance(result, np.ndarray) or result.shape != shape or not np.issubdtype(result.dtype, np.floating):
        got = getattr(result, "shape", type(result).__name__)
        raise ValueError(f"the aggregation rule must return an array of numbers of shape {shape}; got {got}")
    return result.astype(np.float32, copy=False)


def staleness_weight(staleness: float, exponent: float) -> float:
    """Return FedAsync's polynomial discount (1 + τ)^(−a) of a message that is τ rounds old (Xie et al. 2019)."""
    return float((1.0 + max(staleness, 0.0)) ** -exponent)


def mix(current: Array, update: Array, weight: float) -> Array:
    """Return FedAsync's step from the current parameters towards one client's: (1 − α) · current + α · update."""
    return (current + weight * (update - current)).astype(current.dtype)


def flush(buffer: Sequence[tuple[Array, float]]) -> Array:
    """Return the weighted mean of the updates in a full buffer of FedBuff (Nguyen et al. 2022)."""
    updates, weights = zip(*buffer, strict=True)
    return mean(updates, np.asarray(weights, dtype=np.float64))
