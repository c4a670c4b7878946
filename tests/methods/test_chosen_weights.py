"""FADA and KD3A, whose target weighs the networks of the sources: what it sends, and what that changes."""

from math import exp

import numpy as np
import pytest
import torch

from fedrf.methods.kd3a import HARDLY
from tests.methods.toys import NETWORK, SOURCES, TARGET, Sniffed, lloyd, new_client, seen, toy

LONG = {"train__rounds": 9}
LISTENS = {  # whose average the target's own part is in
    "fada": {"aligner", "extractor"},
    "kd3a": {"aligner", "extractor", "classifier"},
}


@pytest.fixture(scope="module", params=["fada", "kd3a"])
def weighed(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, Sniffed(toy(folder, request.param, **LONG), folder), folder


def quality(opinions):
    """Of the consensus of some networks: a loop over samples."""
    total = 0.0
    for sample in range(len(opinions[0])):
        rows = [one[sample] for one in opinions]
        sure = [row for row in rows if row.max() >= 0.9]
        votes = {int(row.argmax()): 0 for row in sure}
        for row in sure:
            votes[int(row.argmax())] += 1
        most = max(votes.values(), default=0)
        if not sure:
            total += HARDLY * float((sum(rows) / len(rows)).max())
            continue
        tied = [name for name, count in votes.items() if count == most]
        chosen = max(tied, key=lambda name: float(sum(row[name] for row in rows)))
        behind = [row for row in sure if int(row.argmax()) == chosen]
        total += len(behind) * float((sum(behind) / len(behind)).max())
    return total


def test_the_target_is_shown_the_parts_of_every_source(weighed):
    _, run, _ = weighed
    for number, reply in run.replies(TARGET).items():
        assert set(reply.ballots) == set(SOURCES)
        for name, parts in reply.ballots.items():
            assert set(parts) == set(NETWORK)
            for kind, values in parts.items():
                torch.testing.assert_close(torch.tensor(values), run.sent(kind)[number, name], rtol=0, atol=0)
    assert all(not reply.ballots for name in SOURCES for reply in run.replies(name).values())


def test_weights_change_the_aggregate(weighed):
    """The first average is plain; afterwards a part counts for what the target said with the same call."""
    method, run, _ = weighed
    said = run.sent("weights")
    assert set(said) == {(7, TARGET), (10, TARGET)}
    aggregates = run.replies(TARGET) | run.replies(TARGET, "final")
    assert set(aggregates) == {4, 7, 10}
    for number, reply in aggregates.items():
        weights = said.get((number, TARGET), torch.ones(3)).double()
        for kind in NETWORK:
            sent = run.sent(kind)
            counted = [*SOURCES, TARGET] if kind in LISTENS[method] else [*SOURCES]
            assert {name for at, name in sent if at == number} == set(counted)
            shares = weights[: len(counted)] / weights[: len(counted)].sum()
            mean = sum(share * sent[number, name] for share, name in zip(shares, counted, strict=True))
            torch.testing.assert_close(torch.tensor(reply.parts[kind]), mean.float(), atol=1e-6, rtol=1e-5)
    assert all(abs(float(one[0] - one[1])) > 1e-3 for one in said.values())


def test_weights_are_those_of_the_networks_that_were_shown_last(weighed):
    method, run, folder = weighed
    client = new_client(run.config, TARGET, folder)
    inputs = client.trunk[np.arange(20)]
    for number, shown in ((7, 4), (10, 7)):
        ballots = run.replies(TARGET)[shown].ballots
        if method == "fada":
            rows = [seen(client.model, ballots[name], inputs, "aligned").numpy() for name in SOURCES]
            spreads = [lloyd(one, one[[0, 9, 19]]) for one in rows]
            shares = [exp(-10 * one) for one in spreads]
        else:
            opinions = [seen(client.model, ballots[name], inputs).softmax(1) for name in SOURCES]
            both, *alone = (quality(one) for one in (opinions, opinions[1:], opinions[:1]))
            shares = [max(0.0, both - one) for one in alone]
        expected = [2 * one / sum(shares) for one in shares]
        assert run.sent("weights")[number, TARGET].tolist() == pytest.approx([*expected, 1.0], rel=1e-3)
