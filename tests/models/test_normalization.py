"""AdaBN and AutoDIAL: the statistics that standardise aligned features, by hand and in whole runs."""

import csv
from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from fedrf.config.loader import load_config
from fedrf.data.domains import load_domain
from fedrf.methods.base import Inbox
from fedrf.models.mixture_share import INITIAL, MixtureShare
from fedrf.models.normalization import DomainNormalization, moments
from tests.methods.toys import (
    COUNTS,
    NETWORK,
    SOURCES,
    TARGET,
    RecordedRun,
    assert_same_networks,
    classification,
    logits_of,
    new_client,
    plain_loop,
    projected,
    toy,
)

RELATIVE_EPSILON = 1e-5


def statistics(rows):
    mean = rows.sum(0) / len(rows)
    return mean, (rows - mean).square().sum(0) / len(rows)


def standardised(rows, mean, variance):
    return (rows - mean) / (variance + RELATIVE_EPSILON * variance.mean()).sqrt()


def mixed(own, others, share):
    """Return mean and variance of a mixture of two domains, from its first two moments."""
    mean = share * own[0] + (1 - share) * others[0]
    squares = share * (own[1] + own[0] ** 2) + (1 - share) * (others[1] + others[0] ** 2)
    return mean, squares - mean**2


def by_batch(model, inputs):
    rows = projected(model, inputs)
    return normalize(standardised(rows, *statistics(rows)))


@pytest.fixture
def rows():
    torch.manual_seed(0)
    return torch.randn(20, 3) * torch.tensor([1.0, 5.0, 0.2]) + torch.tensor([1.0, -3.0, 0.5])


def test_a_batch_is_standardised_by_its_own_statistics(rows):
    layer = DomainNormalization(3)
    output = layer(rows)
    torch.testing.assert_close(output, standardised(rows, *statistics(rows)))
    torch.testing.assert_close(output.mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(output.square().mean(0), torch.ones(3), atol=5e-3, rtol=0)
    torch.testing.assert_close(layer(1e-6 * rows), output, atol=1e-4, rtol=0)  # the scale of W does not matter


def test_a_constant_column_becomes_zero():
    layer = DomainNormalization(2)
    torch.testing.assert_close(layer(torch.full((4, 2), 3.0)), torch.zeros(4, 2))
    assert layer(torch.tensor([[1.0, 5.0], [2.0, 5.0]]))[:, 1].tolist() == [0, 0]


@settings(deadline=None, max_examples=30)
@given(st.sets(st.integers(1, 19)))
def test_population_statistics_do_not_depend_on_the_pieces(cuts):
    torch.manual_seed(0)
    rows = 3 + torch.randn(20, 3)
    layer = DomainNormalization(3)
    layer.fit_population(rows[start:end] for start, end in pairwise([0, *sorted(cuts), 20]))
    torch.testing.assert_close(layer.settled, torch.stack(statistics(rows)), atol=1e-5, rtol=0)
    layer.use_population = True
    torch.testing.assert_close(layer(rows[:2]), standardised(rows, *statistics(rows))[:2], atol=1e-5, rtol=0)


def test_population_statistics_are_used_inside_the_context_and_batch_statistics_outside(tmp_path):
    config = load_config(None, toy(tmp_path, "adabn"))
    model = new_client(config, TARGET, tmp_path).module
    samples = model.samples.rows
    inputs = samples[np.arange(20)]
    with torch.no_grad():
        expected = by_batch(model, inputs)[:3]  # the batch is the population
        with suppress(KeyError), model.population_statistics(lambda: samples.split(7)):
            torch.testing.assert_close(model(inputs[:3], "aligned"), expected, atol=1e-5, rtol=1e-5)
            raise KeyError  # they are not used after an error either
        torch.testing.assert_close(model(inputs[:3], "aligned"), by_batch(model, inputs[:3]))
    assert not torch.allclose(by_batch(model, inputs[:3]), expected, atol=1e-2)


def test_adabn_trains_with_batch_statistics_and_predicts_with_population_statistics(tmp_path):
    overrides = toy(tmp_path, "adabn")

    def loss(name, model, rows, batch, received):
        return None if name == TARGET else classification(model, rows, batch.labels)

    config = load_config(None, overrides)
    expected = plain_loop(config, tmp_path, loss, COUNTS.get, network=by_batch)
    run = RecordedRun(overrides, tmp_path)
    assert_same_networks(run, expected)
    with open(run.result.folder / "predictions.csv") as file:
        table = list(csv.DictReader(file))
    inputs = torch.from_numpy(load_domain(config.data, TARGET).array())
    model = expected[TARGET]
    with torch.no_grad():
        confidence, predicted = logits_of(model, by_batch(model, inputs)).softmax(1).max(1)
    assert [int(row["predicted"]) for row in table] == predicted.tolist()
    np.testing.assert_allclose([float(row["confidence"]) for row in table], confidence, atol=1e-3)


def test_adabn_sends_no_statistics(tmp_path):
    run = RecordedRun(toy(tmp_path, "adabn"), tmp_path)
    assert run.kinds() == {*NETWORK, "metrics"}
    sizes = {part: {values.numel() for values in run.sent(part).values()} for part in NETWORK}
    assert sizes == {"aligner": {5 * 4}, "classifier": {3 * 5}, "extractor": {5 * 128 + 128 + 128 * 5 + 5}}
    assert all(set(reply.parts) <= set(NETWORK) and not reply.embeddings for _, reply in run.calls)
    own = {name: run.weights(name)["normalization.settled"] for name in (*SOURCES, TARGET)}
    assert not torch.allclose(own["ward"], own[TARGET])


# AutoDIAL


@given(st.floats(-1e4, 1e4))
def test_the_share_is_between_one_half_and_one(raw):
    mixture = MixtureShare()
    with torch.no_grad():
        mixture.raw.fill_(raw)
        assert 0.5 <= float(mixture.share()) <= 1


def test_the_share_grows_with_its_parameter():
    mixture = MixtureShare()
    assert float(mixture.share().detach()) == pytest.approx(0.5 + 0.5 / (1 + np.exp(-INITIAL)))
    with torch.no_grad():
        mixture.raw.zero_()
        assert float(mixture.share()) == 0.75


@pytest.mark.parametrize("name", ["ward", TARGET])
def test_autodial_mixes_own_and_received_statistics(tmp_path, name):
    """Both losses are computed by hand, and their derivatives with respect to α by finite differences."""
    config = load_config(None, toy(tmp_path, "autodial", align__weight=0.3))
    model = new_client(config, name, tmp_path).module.double()
    batch, is_target = model.samples.batch(1, 8), name == TARGET
    inputs = batch.inputs.double()
    torch.manual_seed(3)
    peers = tuple(torch.stack([torch.randn(4), torch.rand(4) + 0.1]).double() for _ in range(2 if is_target else 1))
    others = mixed(*peers, 0.5) if is_target else peers[0]

    def by_hand(raw):
        rows = projected(model, inputs)
        share = 0.5 + 0.5 / (1 + np.exp(-raw))
        aligned = normalize(standardised(rows, *mixed(statistics(rows), others, share)))
        if not is_target:
            return classification(model, aligned, batch.labels)
        probabilities = logits_of(model, aligned).softmax(1)
        return -0.3 * (probabilities * probabilities.log()).sum(1).mean()

    features = model.features(inputs)
    loss = model.method.target_loss if is_target else model.method.source_loss
    terms = loss(model, batch, features, Inbox(features, peers, is_target=is_target), config)
    torch.testing.assert_close(terms["loss"], by_hand(INITIAL), atol=1e-6, rtol=0)
    terms["loss"].backward()
    derivative = (by_hand(INITIAL + 1e-4) - by_hand(INITIAL - 1e-4)) / 2e-4
    assert abs(float(derivative.detach())) > 1e-4
    assert float(model.auxiliary.raw.grad) == pytest.approx(float(derivative.detach()), rel=1e-3)
    # If a message is lost, the previous statistics are used.
    again = loss(model, batch, model.features(inputs), Inbox(features, (), is_target=is_target), config)
    torch.testing.assert_close(again["loss"], terms["loss"])


def test_only_own_statistics_are_used_before_the_first_message(rows):
    layer = DomainNormalization(3)
    layer.share = lambda: torch.tensor([0.7])
    torch.testing.assert_close(layer(rows), standardised(rows, *statistics(rows)))


def test_autodial_exchanges_statistics_and_all_clients_learn_the_share(tmp_path):
    run = RecordedRun(toy(tmp_path, "autodial", train__rounds=6), tmp_path)
    sent = run.sent("moments")
    assert set(sent) == {(number, name) for number in range(1, 7) for name in (*SOURCES, TARGET)}
    others = {name: run.weights(name)["normalization.others"] for name in (*SOURCES, TARGET)}
    for name in SOURCES:
        torch.testing.assert_close(others[name], sent[6, TARGET])
    torch.testing.assert_close(others[TARGET], torch.stack(mixed(sent[6, "clinic"], sent[6, "ward"], 0.5)))
    shares = run.sent("auxiliary")
    assert set(shares) == {(number, name) for number in (4, 7) for name in (*SOURCES, TARGET)}
    learned = {float(shares[4, name]) for name in (*SOURCES, TARGET)}
    assert len(learned - {INITIAL}) == 3  # a different value at each client
    for name in (*SOURCES, TARGET):
        # Sources and target have equal weight.
        mean = (shares[7, "clinic"] + shares[7, "ward"] + 2 * shares[7, TARGET]) / 4
        torch.testing.assert_close(run.weights(name)["companion.raw"], mean)


def test_the_first_statistics_sent_are_those_of_the_batch(tmp_path):
    overrides = toy(tmp_path, "autodial", train__rounds=3)
    run, config = RecordedRun(overrides, tmp_path), load_config(None, overrides)
    for name in (*SOURCES, TARGET):
        module = new_client(config, name, tmp_path).module
        rows = projected(module, module.samples.batch(1, 8).inputs).detach()
        torch.testing.assert_close(run.sent("moments")[1, name], torch.stack(statistics(rows)))
        torch.testing.assert_close(moments(rows), torch.stack(statistics(rows)))
