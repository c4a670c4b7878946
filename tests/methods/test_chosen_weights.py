"""FADA and KD3A, whose target weighs the networks of the sources: its messages and their effect."""

from math import exp

import numpy as np
import pytest
import torch

from fedrf.methods.kd3a import UNSUPPORTED
from tests.methods.toys import (
    NETWORK,
    SOURCES,
    TARGET,
    RecordedRun,
    k_means_spread,
    new_client,
    outputs_of_copy,
    toy,
)

LONG = {"train__rounds": 9}
# The parts whose average includes the target's own.
TARGET_COUNTS = {"fada": {"aligner", "extractor"}, "kd3a": {"aligner", "extractor", "classifier"}}


@pytest.fixture(scope="module", params=["fada", "kd3a"])
def weighted(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, RecordedRun(toy(folder, request.param, **LONG), folder), folder


def quality(predictions):
    """Return the quality of the consensus of some networks, by a loop over samples."""
    total = 0.0
    for sample in range(len(predictions[0])):
        rows = [probabilities[sample] for probabilities in predictions]
        confident = [row for row in rows if row.max() >= 0.9]
        votes = {int(row.argmax()): 0 for row in confident}
        for row in confident:
            votes[int(row.argmax())] += 1
        most = max(votes.values(), default=0)
        if not confident:
            total += UNSUPPORTED * float((sum(rows) / len(rows)).max())
            continue
        tied = [label for label, count in votes.items() if count == most]
        chosen = max(tied, key=lambda label: float(sum(row[label] for row in rows)))
        supporting = [row for row in confident if int(row.argmax()) == chosen]
        total += len(supporting) * float((sum(supporting) / len(supporting)).max())
    return total


def test_the_target_receives_the_parts_of_every_source(weighted):
    _, run, _ = weighted
    for number, reply in run.replies(TARGET).items():
        assert set(reply.source_models) == set(SOURCES)
        for name, parts in reply.source_models.items():
            assert set(parts) == set(NETWORK)
            for part, values in parts.items():
                torch.testing.assert_close(torch.tensor(values), run.sent(part)[number, name], rtol=0, atol=0)
    assert all(not reply.source_models for name in SOURCES for reply in run.replies(name).values())


def test_weights_change_the_aggregate(weighted):
    """The first average is unweighted; later ones use the weights that the target sent with the same call."""
    method, run, _ = weighted
    weights_sent = run.sent("weights")
    assert set(weights_sent) == {(7, TARGET), (10, TARGET)}
    aggregates = run.replies(TARGET) | run.replies(TARGET, "final")
    assert set(aggregates) == {4, 7, 10}
    for number, reply in aggregates.items():
        weights = weights_sent.get((number, TARGET), torch.ones(3)).double()
        for part in NETWORK:
            sent = run.sent(part)
            counted = [*SOURCES, TARGET] if part in TARGET_COUNTS[method] else [*SOURCES]
            assert {name for at, name in sent if at == number} == set(counted)
            shares = weights[: len(counted)] / weights[: len(counted)].sum()
            mean = sum(share * sent[number, name] for share, name in zip(shares, counted, strict=True))
            torch.testing.assert_close(torch.tensor(reply.parts[part]), mean.float(), atol=1e-6, rtol=1e-5)
    assert all(abs(float(weights[0] - weights[1])) > 1e-3 for weights in weights_sent.values())


def test_weights_are_those_of_the_source_models_received_last(weighted):
    method, run, folder = weighted
    module = new_client(run.config, TARGET, folder).module
    inputs = module.samples.rows[np.arange(20)]
    for number, received in ((7, 4), (10, 7)):
        models = run.replies(TARGET)[received].source_models
        if method == "fada":
            rows = [outputs_of_copy(module, models[name], inputs, "aligned").numpy() for name in SOURCES]
            spreads = [k_means_spread(values, values[[0, 9, 19]]) for values in rows]
            shares = [exp(-10 * spread) for spread in spreads]
        else:
            predictions = [outputs_of_copy(module, models[name], inputs).softmax(1) for name in SOURCES]
            both, *without = (quality(rest) for rest in (predictions, predictions[1:], predictions[:1]))
            shares = [max(0.0, both - rest) for rest in without]
        expected = [2 * share / sum(shares) for share in shares]
        assert run.sent("weights")[number, TARGET].tolist() == pytest.approx([*expected, 1.0], rel=1e-3)
