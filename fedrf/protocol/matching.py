"""Matching of hidden neurons before networks are averaged, layer by layer (FedMA, Wang et al. 2020).

A network computes the same function with its hidden neurons in any order. Neurons at the same position in the networks
of two clients need not correspond, and then their average is a neuron of neither. Here the neurons of each client are
assigned one to one to those of the average of the clients matched so far, by the Hungarian algorithm, and this is
repeated until no assignment changes.

This differs from FedMA in two points. The average has as many neurons as the clients' networks, and does not grow by
neurons without a counterpart. All layers are matched when the networks arrive: clients do not train the layers above a
matched one before these are matched.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

Vector = NDArray[np.float32]
Layer = NDArray[np.float32]  # a row for each neuron: its incoming weights and its bias
Neurons = NDArray[np.float64]
Order = NDArray[np.intp]
PASSES = 10  # over all clients, at most; most often the second pass changes nothing


def matched(clients: Sequence[Vector], widths: Sequence[int], weights: NDArray[np.float64]) -> list[Vector]:
    """Return the networks with their hidden neurons in a common order; each computes the same function as before.

    The order is that of the client with the largest weight, so that it does not depend on the order of the clients.

    Parameters
    ----------
    clients
        The parameters of each network: for each layer its weights, outputs × inputs, and its biases.
    widths
        Numbers of neurons from the inputs to the outputs.
    weights
        How much each client counts in the average.
    """
    networks = [_layers(values, widths) for values in clients]
    ranked = sorted(range(len(clients)), key=lambda client: (-weights[client], clients[client].tobytes()))
    for number in range(len(widths) - 2):  # neurons of the last layer are classes
        neurons = [networks[client][number].astype(np.float64) for client in ranked]
        for client, order in zip(ranked, matching_orders(neurons, weights[ranked]), strict=True):
            _reorder(networks[client], number, order)
    return [_vector(layers) for layers in networks]


def matching_orders(clients: Sequence[Neurons], weights: NDArray[np.float64]) -> list[Order]:
    """Return the order of each client's neurons (rows) in which they match those of the others.

    The neurons of the first client keep their order. Those of each further client are put into the order that matches
    the average of the clients before it. Every step reduces the sum of weighted squared distances to the average, or
    changes nothing.
    """
    orders = [np.arange(len(clients[0])) for _ in clients]
    total, count = weights[0] * clients[0], weights[0]
    for number in range(PASSES):
        before = list(orders)
        for client in range(1, len(clients)):
            if number:
                total, count = total - weights[client] * clients[client][orders[client]], count - weights[client]
            orders[client] = nearest_order(total / count, clients[client], orders[client])
            total, count = total + weights[client] * clients[client][orders[client]], count + weights[client]
        if number and all(old is new for old, new in zip(before, orders, strict=True)):
            break
    return orders


def nearest_order(reference: Neurons, neurons: Neurons, order: Order) -> Order:
    """Return the order with the least sum of squared distances to the reference; `order` if none is better."""
    costs = cdist(reference, neurons, "sqeuclidean")
    places, best = linear_sum_assignment(costs)
    is_better: bool = costs[places, best].sum() < costs[places, order].sum()
    return best if is_better else order


def _layers(values: Vector, widths: Sequence[int]) -> list[Layer]:
    """Split the parameters of a network into its layers."""
    layers, start = [], 0
    for inputs, outputs in pairwise(widths):
        bias, end = start + inputs * outputs, start + (inputs + 1) * outputs
        layers.append(np.column_stack([values[start:bias].reshape(outputs, inputs), values[bias:end]]))
        start = end
    return layers


def _vector(layers: Sequence[Layer]) -> Vector:
    """Join layers into one vector; the inverse of `_layers`."""
    return np.concatenate([part for layer in layers for part in (layer[:, :-1].reshape(-1), layer[:, -1])])


def _reorder(layers: list[Layer], number: int, order: Order) -> None:
    """Put the neurons of one layer in another order, and the inputs of the next layer too."""
    layers[number] = layers[number][order]
    layers[number + 1] = layers[number + 1][:, [*order, -1]]
