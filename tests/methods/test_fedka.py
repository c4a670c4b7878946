"""FedKA: who wins a vote, and what the target learns from it."""

import pytest
import torch

from fedrf.methods import METHODS, Inbox
from fedrf.methods.fedka import majority
from tests.methods.toys import SOURCES, TARGET, Sniffed, classification, constant, new_client, seen, target_of, toy


def opinions_of(*classes, sure=0.6, among=3):
    """K networks' probabilities of one sample: so much for the class that each names, the rest evenly."""
    rows = torch.full((len(classes), 1, among), (1 - sure) / (among - 1))
    for network, name in enumerate(classes):
        rows[network, 0, name] = sure
    return rows


@pytest.mark.parametrize(
    ("named", "winner"),
    [
        ((2,), 2),
        ((1, 1), 1),
        ((0, 1), None),
        ((0, 1, 1), 1),
        ((0, 1, 2), None),
        ((2, 2, 1, 1), None),  # half is not more than half
        ((2, 2, 1, 2), 2),
        ((0, 0, 1, 2), None),
        ((0, 0, 1, 2, 0), 0),
    ],
)
def test_more_than_half_decide(named, winner):
    classes, agreed = majority(opinions_of(*named))
    assert agreed.tolist() == [winner is not None]
    if winner is not None:
        assert classes.tolist() == [winner]


def test_samples_are_voted_on_one_by_one():
    both = torch.cat([opinions_of(0, 0, 1), opinions_of(0, 1, 2), opinions_of(2, 1, 2)], dim=1)
    classes, agreed = majority(both)
    assert agreed.tolist() == [True, False, True]
    assert classes[agreed].tolist() == [0, 2]


def test_the_vote_trains_the_classifier_of_the_target(tmp_path):
    config, model, batch, features = target_of(tmp_path, "fedka")
    own = model.align(features)
    models = {"a": constant(1), "b": constant(1), "c": constant(0)}
    loss = METHODS["fedka"].target_loss(model, batch, features, Inbox(own, models=models, is_target=True), config)
    expected = classification(model, own, torch.ones(8, dtype=torch.int64), smoothing=0.0)
    torch.testing.assert_close(loss["loss"], expected)
    assert float(loss["agreed"]) == 1
    got = torch.autograd.grad(loss["loss"], model.classifier.weight, retain_graph=True)[0]
    assert got.abs().max() > 0
    torch.testing.assert_close(got, torch.autograd.grad(expected, model.classifier.weight)[0])


def test_where_no_more_than_half_agree_there_is_nothing_to_learn(tmp_path):
    config, model, batch, features = target_of(tmp_path, "fedka")
    inbox = Inbox(model.align(features), models={"a": constant(1), "b": constant(0)}, is_target=True)
    assert "loss" not in METHODS["fedka"].target_loss(model, batch, features, inbox, config)


def test_in_a_run_the_target_learns_what_the_networks_shown_to_it_agree_on(tmp_path):
    run = Sniffed(toy(tmp_path, "fedka"), tmp_path)
    assert {at for at, _ in run.figures("agreed")} == {4, 5, 6, 7}  # from the first networks on
    client = new_client(run.config, TARGET, tmp_path)
    ballots = run.replies(TARGET)[4].ballots
    for number in (4, 5, 6):
        inputs = client.batch(number, 8).inputs
        named = [seen(client.model, ballots[name], inputs).argmax(1) for name in SOURCES]
        assert run.figures("agreed")[number, TARGET] == pytest.approx(float((named[0] == named[1]).float().mean()))
    assert sum(run.figures("agreed").values()) > 0
    sent = run.sent("classifier")
    assert torch.equal(sent[4, TARGET], client.model.get_part("classifier"))  # not trained before
    assert not torch.allclose(sent[7, TARGET], torch.tensor(run.replies(TARGET)[4].parts["classifier"]), atol=1e-3)
