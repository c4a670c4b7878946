"""A sample of the sources in each round (`federation.participants=8`): the others compute nothing and send nothing."""

import copy
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import fedrf
from fedrf.config.loader import load_config
from fedrf.data.domains import clients_of
from fedrf.experiment.driver import Experiment
from fedrf.experiment.results import RunFolder
from fedrf.federation.client import in_file
from fedrf.runtime.local import LocalFederation
from tests.conftest import final_weights
from tests.experiment.test_interruption import InterruptedOnce, run_interrupted
from tests.federation.recording import SYNC, exchanges, new_client, run_recorded
from tests.federation.reference import batch_rows, local_loss, new_optimizer, participants

SAMPLED = {
    **SYNC,
    "data.partition": "even",
    "data.clients": 2,
    "federation.participants": 2,
    "train.rounds": 9,
    "federation.checkpoint_seconds": 0,
}
LITERAL = {**SAMPLED, "method": "fedrf-tca", "model.sharing": "local", "model.sigma": 1.0}
PARTS = ("aligner", "extractor", "classifier")


def tensors(model, part):
    if part == "aligner":
        return [model.aligner]
    return list((model.classifier if part == "classifier" else model.extractor.adapter).parameters())


def algorithm_5_with_samples(config, folder):
    """Return the model of each client after all rounds, from a plain loop over the clients in S_t."""
    sources, target = clients_of(config)
    names = (*sources, target)
    models = {name: copy.deepcopy(new_client(config, name, folder).module) for name in names}
    samples = {name: new_client(config, name, folder).module.samples for name in names}
    optimizers = {name: new_optimizer(model, name == target, config.train.lr) for name, model in models.items()}
    newest = dict.fromkeys(PARTS, (0, None))  # the round after which a part was averaged last, and the average
    known = {name: dict.fromkeys(PARTS, 0) for name in sources}
    senders, before, last = {part: set() for part in PARTS}, set(sources), config.train.rounds
    for number in range(1, last + 2):
        sets = participants(sources, config, number)
        present = set(sources) if number > last else sample(config, sources, number)
        for name in (*present, target):
            for part, (averaged_after, values) in newest.items():
                if name in before or name == target:
                    is_new = averaged_after == number - 1 and (name == target or name in senders[part])
                else:  # it has skipped rounds
                    is_new = averaged_after > known[name][part]
                if values is not None and is_new:
                    assign(tensors(models[name], part), values)
                    if name != target:
                        known[name][part] = averaged_after
        if number > last:
            return models
        step(config, number, [name for name in names if name in present or name == target], models, samples, optimizers)
        senders = {"aligner": sets[1], "extractor": sets[1], "classifier": sets[2]}
        for part in due_parts(config, number):
            chosen = [name for name in sources if name in senders[part]]
            chosen += [target] if part != "classifier" else []
            values = [
                torch.stack(each).mean(0)
                for each in zip(*(tensors(models[name], part) for name in chosen), strict=True)
            ]
            newest[part] = (number, values) if chosen else newest[part]
        before = present


def sample(config, sources, number):
    """Return the K sources of a round, as docs/protocol.md describes it."""
    order = np.random.RandomState([config.seed, number, 0x5EED]).permutation(len(sources))
    return {sources[position] for position in order[: config.federation.participants]}


def due_parts(config, number):
    is_last = number == config.train.rounds
    intervals = {"aligner": config.federation.aligner_interval, "classifier": config.federation.classifier_interval}
    if config.model.sharing == "averaged":
        intervals["extractor"] = config.model.extractor_interval
    return [
        part for part, interval in intervals.items() if number % interval == 0 or (is_last and part != "classifier")
    ]


@torch.no_grad()
def assign(values, average):
    for value, mean in zip(values, average, strict=True):
        value.copy_(mean)


def step(config, number, present, models, samples, optimizers):
    """Do one round of algorithm 5 with the clients that are present, the target last."""
    sources, target = clients_of(config)
    embedders, *_ = participants(sources, config, number)
    positions = {name: position for position, name in enumerate((*sources, target))}
    rows = {name: batch_rows(config, positions[name], len(samples[name].rows), number) for name in present}
    features = {name: models[name].features(samples[name].rows[rows[name]]) for name in present}
    own = {name: values.mean(0) for name, values in features.items()}
    sent = {name: value.detach().clone() for name, value in own.items()}
    for name in present:
        labels = None if name == target else samples[name].labels[rows[name]]
        loss = local_loss(name, target, models[name], features[name], labels, own, sent, embedders, sources)
        if loss is not None:
            optimizers[name].zero_grad()
            loss.backward()
            optimizers[name].step()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"federation.classifier_interval": 3, "federation.aligner_interval": 2},
        {"federation.aligners_from": "subset", "federation.classifiers_from": "subset"},
        {"model.sharing": "averaged", "model.extractor_interval": 2},
    ],
    ids=["K", "intervals", "subsets", "extractors averaged"],
)
def test_sampled_rounds_are_algorithm_5_with_the_sources_of_the_sample(tmp_path, more):
    overrides = {**LITERAL, "federation.classifier_interval": 1, **more}
    expected = algorithm_5_with_samples(load_config(None, overrides), tmp_path)
    result, _ = run_recorded(overrides, tmp_path / "run")
    for name, model in expected.items():
        weights = load_file(result.folder / "checkpoints" / name / "final.safetensors")
        for key, value in model.state_dict().items():
            if not key.startswith("own_embedding."):
                # Adam makes single weights with almost no gradient differ by more than rounding.
                assert (weights[in_file(key)] - value).square().mean().sqrt() < 1e-4, f"{name}: {key}"


@pytest.mark.parametrize("method", ["fedrf-plus", "fedrf-tca", "f-dann", "fedavg"])
def test_a_sample_of_all_sources_gives_the_bits_of_all(tmp_path, method):
    settings = {**SAMPLED, "method": method, "federation.checkpoint_seconds": 60}
    everyone = fedrf.run(None, {**settings, "federation.participants": "all"}, out=tmp_path / "all", local=True)
    count = len(everyone.summary["sources"])
    sampled = fedrf.run(None, {**settings, "federation.participants": count}, out=tmp_path / "sampled", local=True)
    assert final_weights(sampled) == final_weights(everyone)
    assert sampled.summary["communication"]["bytes_by_kind"] == everyone.summary["communication"]["bytes_by_kind"]


def test_sources_outside_the_sample_send_nothing(tmp_path):
    _, calls = run_recorded(SAMPLED, tmp_path / "run")
    config = load_config(None, SAMPLED)
    sources, target = clients_of(config)
    drawn = {number: sample(config, sources, number) for number in range(1, 10)}
    called = {(envelope.phase, number): set() for envelope, _ in exchanges(calls) for number in range(1, 11)}
    for envelope, _ in exchanges(calls):
        called[envelope.phase, envelope.round].add(envelope.sender)
    for number in range(1, 10):
        assert called["round", number] == drawn[number] | {target}
    for number in range(2, 10):
        assert called["commit", number] == drawn[number - 1] | drawn[number] | {target}
    assert called["final", 10] == {*sources, target}
    with_parts = {
        (envelope.round, envelope.sender)
        for envelope, _ in exchanges(calls)
        if envelope.phase == "commit" and any(message.is_part for message in envelope.messages)
    }
    assert all(name in drawn[number - 1] for number, name in with_parts if name != target)


@pytest.mark.parametrize(
    "more",
    [
        {"federation.prediction": "vote", "adapt.when": "never"},
        {"align.statistics": "means"},
        {"align.warm_start": "subspace"},
    ],
    ids=["vote", "statistics", "warm start"],
)
def test_what_follows_the_last_round_comes_from_all_sources(tmp_path, more):
    result, calls = run_recorded({**SAMPLED, **more}, tmp_path / "run")
    sources, _ = clients_of(result.config)
    assert result.finished
    assert not result.summary["failures"]
    senders = {
        envelope.sender
        for envelope, _ in exchanges(calls)
        if envelope.phase in ("statistics", "source_models") and envelope.messages
    }
    assert "align.warm_start" in more or senders >= set(sources)


class InterruptedSample(InterruptedOnce):
    def is_time(self):
        return max(self.call("poll", 0).rounds.values()) >= 4


SLOW = {"federation.delays": {"handwritten": 0.05}}


@pytest.mark.parametrize("more", [{}, {"method": "f-dann"}], ids=["mean embeddings", "messages that need W"])
def test_an_interrupted_run_gives_the_same_bits(tmp_path, more):
    stopped = run_interrupted({**SAMPLED, **more, **SLOW}, tmp_path / "run", InterruptedSample)
    assert 3 <= stopped.summary["rounds"] < 9
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    undisturbed = {**SAMPLED, **more, "federation.checkpoint_seconds": 60}
    assert final_weights(resumed) == final_weights(fedrf.run(None, undisturbed, out=tmp_path / "other", local=True))


class LostAfter(LocalFederation):
    """The connection is lost when a round has been reached that `rounds` still has; all go back to a version."""

    rounds: ClassVar = [8, 5]

    def wait(self, seconds):
        if self.rounds and max(self.call("poll", 0).rounds.values()) >= self.rounds[-1]:
            self.rounds.pop()
            raise ConnectionError("lost by the test")
        return super().wait(0.001)


def test_a_run_that_goes_back_to_a_version_gives_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(LostAfter, "rounds", [8, 5])
    config = load_config(None, {**SAMPLED, **SLOW})
    with RunFolder.create(config, tmp_path / "run") as folder:
        result = Experiment(config, folder, False).run(LostAfter)
    assert result.summary["failures"] == ["lost by the test"] * 2
    versions = [row for row in (tmp_path / "run/run.log").read_text().splitlines() if "client started" in row]
    assert any('"checkpoint": null' not in row for row in versions)  # it did not begin anew
    undisturbed = {**SAMPLED, "federation.checkpoint_seconds": 60}
    assert final_weights(result) == final_weights(fedrf.run(None, undisturbed, out=tmp_path / "other", local=True))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"federation.mode": "async"}, "federation.participants=2: .* needs federation.mode=sync"),
        ({"federation.participants": 7}, "federation.participants=7: there are 6 sources"),
        ({"federation.participants": 0}, "federation.participants"),
        (
            {"federation.embeddings_from": "all"},
            "federation.embeddings_from=all uses them; allowed: participants, same",
        ),
        ({"federation.aligners_from": "ordered"}, "federation.aligners_from=ordered uses them"),
    ],
)
def test_what_a_sample_cannot_be_used_with_is_refused(tmp_path, more, problem):
    with pytest.raises(ValueError, match=problem):
        fedrf.run(None, {**SAMPLED, **more}, out=tmp_path / "run", local=True)
