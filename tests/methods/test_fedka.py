"""FedKA: the result of a vote, and what the target learns from it."""

import pytest
import torch

from fedrf.config.registry import METHODS
from fedrf.methods.base import Inbox
from fedrf.methods.fedka import majority
from fedrf.models.parts import get_part
from tests.methods.toys import (
    SOURCES,
    TARGET,
    RecordedRun,
    classification,
    constant_prediction,
    new_client,
    outputs_of_copy,
    target_of,
    toy,
)


def predictions_of(*classes, confidence=0.6, num_classes=3):
    """Return K networks' probabilities for one sample, given the class that each predicts."""
    rows = torch.full((len(classes), 1, num_classes), (1 - confidence) / (num_classes - 1))
    for network, label in enumerate(classes):
        rows[network, 0, label] = confidence
    return rows


@pytest.mark.parametrize(
    ("predicted", "winner"),
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
def test_a_class_needs_more_than_half_of_the_votes(predicted, winner):
    classes, agreed = majority(predictions_of(*predicted))
    assert agreed.tolist() == [winner is not None]
    if winner is not None:
        assert classes.tolist() == [winner]


def test_each_sample_has_its_own_vote():
    probabilities = torch.cat([predictions_of(0, 0, 1), predictions_of(0, 1, 2), predictions_of(2, 1, 2)], dim=1)
    classes, agreed = majority(probabilities)
    assert agreed.tolist() == [True, False, True]
    assert classes[agreed].tolist() == [0, 2]


def test_the_vote_trains_the_classifier_of_the_target(tmp_path):
    config, module, batch, features = target_of(tmp_path, "fedka")
    own = module.align(features)
    models = {"a": constant_prediction(1), "b": constant_prediction(1), "c": constant_prediction(0)}
    inbox = Inbox(own, models=models, is_target=True)
    terms = METHODS.find("fedka").target_loss(module, batch, features, inbox, config)
    expected = classification(module, own, torch.ones(8, dtype=torch.int64), smoothing=0.0)
    torch.testing.assert_close(terms["loss"], expected)
    assert float(terms["agreed"]) == 1
    gradient = torch.autograd.grad(terms["loss"], module.classifier.weight, retain_graph=True)[0]
    assert gradient.abs().max() > 0
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, module.classifier.weight)[0])


def test_without_a_majority_there_is_no_loss(tmp_path):
    config, module, batch, features = target_of(tmp_path, "fedka")
    models = {"a": constant_prediction(1), "b": constant_prediction(0)}
    inbox = Inbox(module.align(features), models=models, is_target=True)
    assert "loss" not in METHODS.find("fedka").target_loss(module, batch, features, inbox, config)


def test_in_a_run_the_target_learns_from_the_agreement_of_the_source_models_it_received(tmp_path):
    run = RecordedRun(toy(tmp_path, "fedka"), tmp_path)
    assert {at for at, _ in run.figures("agreed")} == {4, 5, 6, 7}  # since the first source models
    module = new_client(run.config, TARGET, tmp_path).module
    models = run.replies(TARGET)[4].source_models
    for number in (4, 5, 6):
        inputs = module.samples.batch(number, 8).inputs
        predicted = [outputs_of_copy(module, models[name], inputs).argmax(1) for name in SOURCES]
        agreement = float((predicted[0] == predicted[1]).float().mean())
        assert run.figures("agreed")[number, TARGET] == pytest.approx(agreement)
    assert sum(run.figures("agreed").values()) > 0
    sent = run.sent("classifier")
    assert torch.equal(sent[4, TARGET], get_part(module, "classifier"))  # not trained until then
    assert not torch.allclose(sent[7, TARGET], torch.tensor(run.replies(TARGET)[4].parts["classifier"]), atol=1e-3)
