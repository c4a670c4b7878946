"""Matched averaging: permuted copies, noise, unchanged functions, and all permutations of tiny networks."""

from itertools import pairwise, permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils import parameters_to_vector

from fedrf.config.loader import load_config
from fedrf.federation.aggregate import Aggregate
from fedrf.models.network import make_classifier
from fedrf.protocol.aggregation import BUILT_IN, combine, mean
from fedrf.protocol.ledger import Ledger
from fedrf.protocol.matching import matched, nearest_order
from fedrf.protocol.messages import Aligner, Classifier
from fedrf.protocol.schedule import participants_of
from fedrf.protocol.sizes import classifier_widths

FEDMA, SOURCES, TARGET = BUILT_IN["fedma"], ("rendered", "street"), "handwritten"
TINY = (2, 3, 3, 2)


def drawn(random, widths):
    """Return the layers of a random network: weights, outputs × inputs, and biases."""
    return [(random.randn(after, before), random.randn(after)) for before, after in pairwise(widths)]


def flat(layers):
    return np.concatenate([part.ravel() for layer in layers for part in layer]).astype(np.float32)


def unflat(vector, widths):
    layers, rest = [], vector
    for before, after in pairwise(widths):
        weights, bias, rest = np.split(rest, [before * after, (before + 1) * after])
        layers.append((weights.reshape(after, before), bias))
    return layers


def permuted(layers, orders):
    """Return the layers with the neurons of each hidden layer in another order."""
    result = [tuple(part.copy() for part in layer) for layer in layers]
    for number, order in enumerate(orders):
        weights, bias = result[number]
        result[number] = (weights[order], bias[order])
        above, its_bias = result[number + 1]
        result[number + 1] = (above[:, order], its_bias)
    return result


def outputs(layers, rows):
    rows = rows.astype(np.float64)
    for number, (weights, bias) in enumerate(layers):
        rows = rows @ weights.T.astype(np.float64) + bias
        rows = np.maximum(rows, 0) if number < len(layers) - 1 else rows
    return rows


def shuffled(random, layers, noise=0.0):
    orders = [random.permutation(len(bias)) for _, bias in layers[:-1]]
    noisy = [tuple(part + noise * random.randn(*part.shape) for part in layer) for layer in layers]
    return permuted(noisy, orders)


WIDTHS = st.lists(st.integers(1, 6), min_size=2, max_size=5)


@given(WIDTHS, st.integers(1, 5), st.integers(0, 999))
@settings(max_examples=100, deadline=None)
def test_copies_with_other_orders_average_to_the_network_exactly(widths, count, seed):
    random = np.random.RandomState(seed)
    network = drawn(random, widths)
    clients = [flat(network), *(flat(shuffled(random, network)) for _ in range(count))]
    weights = np.array([5.0, *random.uniform(0.5, 2, count)])
    np.testing.assert_array_equal(combine(FEDMA, clients, weights, widths), clients[0])


@given(WIDTHS, st.integers(1, 5), st.integers(0, 999))
@settings(max_examples=100, deadline=None)
def test_matching_changes_no_function_and_does_not_depend_on_the_order_of_the_clients(widths, count, seed):
    random = np.random.RandomState(seed)
    clients = [flat(drawn(random, widths)) for _ in range(count)]
    weights, rows = random.choice([1.0, 2.0], count), random.randn(7, widths[0])
    results = matched(clients, widths, weights)
    for before, after in zip(clients, results, strict=True):
        assert after.dtype == np.float32
        expected = outputs(unflat(before, widths), rows)
        np.testing.assert_allclose(outputs(unflat(after, widths), rows), expected, rtol=1e-9, atol=1e-9)
    order = random.permutation(count)
    others = matched([clients[client] for client in order], widths, weights[order])
    for client, values in zip(order, others, strict=True):
        np.testing.assert_array_equal(values, results[client])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [2, 4])
def test_the_average_of_noisy_copies_is_nearer_to_the_network_than_the_plain_average(seed, count):
    random, widths = np.random.RandomState(seed), (8, 20, 20, 4)
    network, rows = drawn(random, widths), random.randn(50, 8)
    clients = [flat(shuffled(random, network, noise=0.1)) for _ in range(count)]

    def error(vector):
        return np.square(outputs(unflat(vector, widths), rows) - outputs(network, rows)).mean()

    weights = random.uniform(1, 2, count)
    together = error(combine(FEDMA, clients, weights, widths))
    assert together < 0.1 * error(mean(clients, weights))
    assert together < np.mean([error(client) for client in clients])


def squared(one, other):
    return sum(np.square(a - b).sum() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_two_networks_are_matched_as_by_trying_all_orders_layer_by_layer(seed):
    random = np.random.RandomState(seed)
    first, second = (unflat(flat(drawn(random, TINY)), TINY) for _ in range(2))
    expected = second
    for number in range(2):
        tried = []
        for order in map(list, permutations(range(3))):
            orders = [list(range(3))] * number + [order]
            tried.append(permuted(expected, orders))
        expected = min(tried, key=lambda layers, number=number: squared(layers[number], first[number]))
    results = matched([flat(second), flat(first)], TINY, np.array([1.0, 1.5]))
    np.testing.assert_array_equal(results[0], flat(expected))
    np.testing.assert_array_equal(results[1], flat(first))


@pytest.mark.parametrize("seed", range(20))
def test_no_other_order_of_one_of_four_networks_is_nearer_to_the_average_of_the_others(seed):
    random = np.random.RandomState(seed)
    clients, weights = [flat(drawn(random, TINY)) for _ in range(4)], np.array([4.0, 3.0, 2.0, 1.0])
    networks = [unflat(values.astype(np.float64), TINY) for values in matched(clients, TINY, weights)]
    for number in range(2):
        rows = [np.column_stack(layers[number]) for layers in networks]
        for client in (1, 2, 3):  # the first keeps its order
            others = [other for other in range(4) if other != client]
            average = sum(weights[other] * rows[other] for other in others) / weights[others].sum()
            costs = {order: np.square(rows[client][list(order)] - average).sum() for order in permutations(range(3))}
            assert costs[(0, 1, 2)] == pytest.approx(min(costs.values()), rel=1e-9)


def test_equal_networks_pass_through_even_if_some_neurons_differ_only_in_their_outputs():
    random = np.random.RandomState(0)
    network = drawn(random, TINY)
    network[0] = (np.ones((3, 2)), np.zeros(3))
    values = flat(network)
    for result in matched([values] * 3, TINY, np.array([1.0, 0.3, 0.7])):
        np.testing.assert_array_equal(result, values)


def test_an_order_stays_unless_another_one_is_nearer():
    order = np.array([2, 0, 1])
    assert nearest_order(np.ones((3, 2)), np.ones((3, 2)), order) is order
    rows = np.array([[0.0], [5.0], [9.0]])
    np.testing.assert_array_equal(nearest_order(rows[[1, 2, 0]], rows, order), [1, 2, 0])


def test_a_client_without_weight_changes_nothing():
    random = np.random.RandomState(0)
    clients = [flat(drawn(random, TINY)) for _ in range(3)]
    weights = np.array([0.0, 1.0, 0.5])
    expected = combine(FEDMA, clients[1:], weights[1:], TINY)
    np.testing.assert_allclose(combine(FEDMA, clients, weights, TINY), expected, atol=1e-6)


def matching_config(mode):
    overrides = {"method": "fedavg", "model.classifier": "mlp", "federation.aggregation": "fedma", "model.dim": 6}
    return load_config(None, {**overrides, "data.sources": list(SOURCES), "federation.mode": mode})


def copies_of_a_classifier(random, config):
    """Return the parameters of a classifier as it is sent, and of one that computes the same."""
    torch.manual_seed(0)
    model = make_classifier("mlp", config.model.dim, 10)
    vector = parameters_to_vector(model.parameters()).detach().numpy()
    return model, vector, flat(shuffled(random, unflat(vector, classifier_widths(config))))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_coordinator_matches_classifiers_and_only_these(mode):
    random, config = np.random.RandomState(0), matching_config(mode)
    model, vector, copy = copies_of_a_classifier(random, config)
    aggregate = Aggregate(config, SOURCES, TARGET, counts={"rendered": 30, "street": 10})
    aligners = random.randn(2, 4, 6).astype(np.float32)
    entries = {
        name: {"classifier": Classifier(name, 1, 0, values), "aligner": Aligner(name, 1, 0, aligner)}
        for name, values, aligner in zip(SOURCES, (vector, copy), aligners, strict=True)
    }
    if mode == "sync":
        aggregate.combine(entries, Ledger().suspect)
    else:
        for name, accepted in entries.items():
            aggregate.add(name, accepted, 0, participants_of(config, SOURCES, 1), Ledger().suspect)
    np.testing.assert_array_equal(aggregate.current["classifier"], vector)
    expected = 0.75 * aligners[0] + 0.25 * aligners[1]
    np.testing.assert_allclose(aggregate.current["aligner"], expected, atol=1e-6)
    rows = torch.randn(5, 6)
    by_hand = outputs(unflat(copy, classifier_widths(config)), rows.numpy())
    np.testing.assert_allclose(model(rows).detach().numpy(), by_hand, rtol=1e-4, atol=1e-5)
