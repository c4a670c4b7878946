"""Whole federations in one process: algorithm 5 against a plain loop, what leaves a client, the paper's settings."""

import copy
import pickle
from math import ceil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

import fedrf
from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.loader import load_config
from fedrf.config.participation import membership
from fedrf.data.domains import clients_of, load_samples
from fedrf.experiment.results import RunFolder
from fedrf.experiment.run import Experiment
from fedrf.federation.client import Client
from fedrf.federation.client_info import ClientInfo
from fedrf.protocol.messages import Reply
from fedrf.protocol.schedule import members_of
from fedrf.runtime.local import LocalFederation
from fedrf.tca.problems import ScatterProblem
from fedrf.tca.statistics import DomainStatistics
from tests.conftest import TINY, final_weights

SYNC = {**TINY, "federation.mode": "sync"}
LITERAL = {**SYNC, "method": "fedrf-tca"}


class Sniffing(LocalFederation):
    """Keeps everything that clients send, and what they get."""

    def __init__(self, *arguments):
        self.seen = []
        super().__init__(*arguments)

    def call(self, name, *arguments):
        answer = super().call(name, *arguments)
        self.seen.append((name, arguments, answer))
        return answer


def run_sniffed(overrides, folder):
    config = load_config(None, overrides)
    made = []

    def make(*arguments):
        made.append(Sniffing(*arguments))
        return made[-1]

    result = Experiment(config, RunFolder.create(config, folder), False).run(make)
    return result, [entry for entry in made[0].seen if entry[0] not in ("poll", "leave", "stop")]


def new_client(config, name, folder):
    """A client that has greeted, but does not train."""
    sources, target = clients_of(config)
    samples = load_samples(config, name)

    def link(call, *arguments):
        assert call == "greet"
        return config.model.sigma, Reply()

    shown = samples.without_labels() if name == target else samples
    return Client(config, ClientInfo(name, sources, target, folder), shown, link, Evaluator(samples.labels))


def algorithm_5(config, folder):
    """The paper's protocol as a plain loop with two barriers a round; returns everybody's model."""
    sources, target = clients_of(config)
    names = (*sources, target)
    clients = {name: new_client(config, name, folder) for name in names}
    models = {name: copy.deepcopy(clients[name].model) for name in names}
    federation, lr = config.federation, config.train.lr
    optimizers = {
        name: torch.optim.Adam(
            [model.aligner, *model.adapter.parameters()]
            + ([] if name == target else list(model.classifier.parameters())),
            lr=lr,
        )
        for name, model in models.items()
    }
    for number in range(1, config.train.rounds + 1):
        chosen = members_of(config, sources, number)
        batches = {name: clients[name].batch(number, config.train.batch_size) for name in names}
        features = {name: models[name].features(batches[name].inputs) for name in names}
        own = {name: features[name].mean(0) for name in names}
        sent = {name: value.detach().clone() for name, value in own.items()}
        for name in names:
            model = models[name]
            if name == target:
                pairs = [own[name] - sent[source] for source in sources if source in chosen.mean_embedding]
                if not pairs:
                    continue
                loss = torch.stack([(pair @ model.aligner).square().sum() for pair in pairs]).mean()
            else:
                loss = cross_entropy(model.logits(features[name]), batches[name].labels)
                if name in chosen.mean_embedding:
                    difference = (own[name] - sent[target]) @ model.aligner
                    loss = loss + config.align.weight * difference.square().sum()
            optimizers[name].zero_grad()
            loss.backward()
            optimizers[name].step()
        with torch.no_grad():
            if number % federation.aligner_interval == 0 or number == config.train.rounds:
                average(models, [name for name in sources if name in chosen.aligner], target, "aligner", True)
            if number % federation.classifier_interval == 0:
                average(models, [name for name in sources if name in chosen.classifier], target, "classifier", False)
    return models


def average(models, senders, target, kind, target_counts):
    """Average over the senders, and over the target if it counts; assign to all of them."""
    counted = [*senders, target] if target_counts else senders
    if not counted:
        return
    for values in zip(*(models[name].parts()[kind] for name in [*senders, target]), strict=True):
        middle = torch.stack(values[: len(counted)]).mean(0)
        for value in values:
            value.copy_(middle)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"federation.participants": "random"},
        {"federation.participants": "random", "federation.classifier_interval": 3},
        {"federation.participants": "random", "federation.messages": "same/subset/subset"},
        {"federation.messages": "ordered/random/same", "train.rounds": 9},
        {"federation.drop": 0.5, "federation.classifier_interval": 2},
        {"federation.participants": "random", "federation.aligner_interval": 4},
    ],
    ids=["I", "II", "III", "table III (III)", "C", "drop", "T_W"],
)
def test_sync_mode_is_algorithm_5(tmp_path, more):
    config = load_config(None, {**LITERAL, "model.sigma": 1.0, "federation.classifier_interval": 1, **more})
    expected = algorithm_5(config, tmp_path)
    result, _ = run_sniffed({**LITERAL, "model.sigma": 1.0, **more}, tmp_path / "run")
    for name, model in expected.items():
        weights = load_file(result.folder / "checkpoints" / name / "final.safetensors")
        for key, value in model.state_dict().items():
            if not key.startswith("own."):
                torch.testing.assert_close(weights[key], value, rtol=1e-3, atol=1e-4, msg=lambda m, k=key: f"{k}: {m}")


def test_only_embeddings_pass_between_clients_and_never_from_source_to_source(tmp_path):
    result, seen = run_sniffed(SYNC, tmp_path / "run")
    _, target = clients_of(result.config)
    calls = [(arguments[0], answer) for name, arguments, answer in seen if name == "exchange"]
    assert len(calls) == 4 * 7
    for envelope, reply in calls:
        senders = {message.sender for message in reply.embeddings}
        assert all(type(message).__name__ == "MeanEmbedding" for message in reply.embeddings)
        assert senders <= ({target} if envelope.sender != target else set(result.summary["sources"]))
        assert target not in senders or envelope.sender != target


@pytest.mark.parametrize("method", ["fedrf-plus", "fedrf-tca", "fedavg", "source-only"])
def test_the_size_of_what_leaves_does_not_depend_on_the_number_of_samples(tmp_path, method):
    """Byte for byte: the whole of every call, pickled, from clients with 60 and with 150 samples."""

    def sizes(samples):
        settings = {**SYNC, "method": method, "data.samples": samples, "federation.aggregation": "mean"}
        _, seen = run_sniffed(settings, tmp_path / f"{samples}")
        calls = {}
        for name, arguments, _ in seen:
            sender = getattr(arguments[0], "sender", arguments[0])
            calls.setdefault(sender, []).append((name, len(pickle.dumps(arguments))))
        return calls

    few = sizes(60)
    assert len(few) == 4
    assert few == sizes(150)


def test_a_sample_never_leaves(tmp_path):
    """No array that leaves has as many rows or columns as there are samples, or trunk features, or pixels."""
    result, seen = run_sniffed({**SYNC, "data.samples": 97, "model.sigma": 1.0}, tmp_path / "run")
    forbidden = {97, new_client(result.config, "street", tmp_path).trunk[[0]].shape[1], 256}
    shapes = {
        message.values.shape
        for name, arguments, _ in seen
        if name == "exchange"
        for message in arguments[0].messages
        if isinstance(message.values, np.ndarray)
    }
    assert shapes == {(60,), (60, 8), (90,)}
    assert not forbidden & {number for shape in shapes for number in shape}


def test_the_target_client_has_no_labels(tmp_path):
    config = load_config(None, {**TINY, "model.sigma": 1.0})
    assert new_client(config, "handwritten", tmp_path).labels is None
    assert new_client(config, "street", tmp_path).labels is not None


WITHOUT = {"adapt.when": "never"}
SETTINGS = {
    "I": {},
    "II": {"federation.participants": "random"},
    "III": {"federation.participants": "random", "federation.classifier_interval": 3},
    "table III (II)": {"federation.participants": "random", "federation.messages": "same/same/subset"},
    "table III (III)": {"federation.participants": "random", "federation.messages": "same/subset/subset"},
    "IV": {"federation.prediction": "vote", "federation.classifier_interval": "never"},
    "V": {"federation.prediction": "vote", "federation.messages": "random/random/none"},
    "A": {"federation.prediction": "vote", "federation.messages": "all/all/none"},
    "B": {"federation.prediction": "vote", "federation.messages": "ordered/same/none"},
    "C": {"federation.prediction": "vote", "federation.messages": "ordered/random/none"},
    "D": {"federation.prediction": "vote", "federation.messages": "random/same/none"},
    "E": {"federation.prediction": "vote", "federation.messages": "random/random/none"},
    "without Σℓ": {"federation.messages": "none/participants/same"},
    "T_C = T": {"federation.classifier_interval": 6},
    "lost messages": {"federation.drop": 0.5, "federation.messages": "same/same/subset"},
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("method", ["fedrf-tca", "fedrf-plus"])
def test_the_settings_of_the_paper_send_exactly_what_they_say(tmp_path, setting, method):
    overrides = {**SYNC, "method": method, **WITHOUT, **SETTINGS[setting]}
    config = load_config(None, overrides)
    result, _ = run_sniffed(overrides, tmp_path / "run")
    sources, _ = clients_of(config)
    federation, rounds, size = config.federation, config.train.rounds, 4 * 60
    rounds_sets = [members_of(config, sources, number) for number in range(1, rounds + 1)]
    interval = federation.classifier_interval
    aligners = {rounds, *range(federation.aligner_interval, rounds, federation.aligner_interval)}
    classifier = 4 * (8 * 10 + 10 if method == "fedrf-plus" else 8 * 100 + 100 + 100 * 101 + 100 * 10 + 10)
    votes = federation.prediction == "vote"
    up = {
        "mean_embedding": size * sum(len(one.mean_embedding) + bool(one.mean_embedding) for one in rounds_sets),
        "aligner": 8 * size * sum(len(one.aligner) for number, one in enumerate(rounds_sets, 1) if number in aligners),
        "classifier": classifier
        * sum(len(one.classifier) for number, one in enumerate(rounds_sets, 1) if not votes and number % interval == 0)
        + (classifier * len(sources) if votes else 0),
    }
    trains = method == "fedrf-tca" and setting != "without Σℓ"
    up["aligner"] += 8 * size * len(aligners) * trains  # the target's own W
    sent = result.summary["communication"]
    assert {kind: sent["by_direction"]["up"].get(kind, 0) for kind in up} == up
    assert result.finished
    assert 0 <= result.target_accuracy <= 1


def test_a_vote_counts_heads(tmp_path):
    """Three linear classifiers of constant opinion: two against one."""
    from fedrf.adaptation.stage import judge, vote

    config = load_config(None, {**TINY, "model.sigma": 1.0})
    client = new_client(config, "handwritten", tmp_path)
    ballots = []
    for opinion in (3, 3, 7):
        classifier = torch.zeros(90)
        classifier[80 + opinion] = 5.0
        ballots.append({"classifier": classifier})
    before = client.model.get_part("classifier")
    seen = []
    figures = judge(vote(client.model, client.trunk, ballots), lambda guess: seen.append(guess) or 0.5)
    assert seen[0].unique().tolist() == [3]
    assert figures["accuracy"] == 0.5
    torch.testing.assert_close(client.model.get_part("classifier"), before, rtol=0, atol=0)


@pytest.mark.parametrize("form", ["statistics", "subspace"])
def test_a_warm_start_is_the_pooled_solution(tmp_path, form):
    settings = {**SYNC, "align.warm_start": form, "model.sigma": 1.0, "align.gamma": 0.01}
    result, seen = run_sniffed(settings, tmp_path / "run")
    sources, target = clients_of(result.config)
    features = {}
    for name in (*sources, target):
        client = new_client(load_config(None, {**TINY, "model.sigma": 1.0}), name, tmp_path)
        with torch.no_grad():
            features[name] = client.model.features(client.trunk[np.arange(len(client.trunk))])
    pooled = ScatterProblem(
        DomainStatistics.of(torch.cat([features[name] for name in sources]).double()),
        DomainStatistics.of(features[target].double()),
    ).solve(0.01, 8)
    got = torch.tensor([answer for name, _, answer in seen if name == "warm_start"][-1].values).double()
    first, second = torch.linalg.qr(pooled.aligner).Q, torch.linalg.qr(got).Q
    assert torch.linalg.matrix_norm(first - second @ (second.T @ first), 2) < 1e-2
    assert result.finished


def test_both_forms_of_the_warm_start_cost_what_they_say(tmp_path):
    up = {}
    for form, kind in (("statistics", "statistics"), ("subspace", "product")):
        settings = {**SYNC, "align.warm_start": form, "model.num_features": 200}
        result, _ = run_sniffed(settings, tmp_path / form)
        up[form] = result.summary["communication"]["by_direction"]["up"][kind]
    assert up["statistics"] == 4 * (4 * 401 * 400 + 8)
    assert up["subspace"] < up["statistics"] / 2


def test_a_slow_client_costs_the_others_nothing_in_async_mode(tmp_path):
    settings = {**TINY, "train.rounds": 30, "federation.delays": {"street": 0.5}, "federation.checkpoint_seconds": 1e9}
    result, _ = run_sniffed(settings, tmp_path / "run")
    rounds = {}
    for row in RunFolder(result.folder).rows():
        if "loss" in row or "mmd" in row:
            rounds[row["client"]] = max(row["round"], rounds.get(row["client"], 0))
    assert rounds["handwritten"] == 30
    assert max(rounds["rendered"], rounds["textured"]) == 30
    assert rounds["street"] < 20
    assert max(int(age) for age in result.summary["communication"]["staleness"]) > 1


@pytest.mark.parametrize(
    ("mode", "rule"),
    [
        *(("sync", rule) for rule in ("mean", "median", "trimmed", "krum", "geometric-median", "weighted")),
        *(("async", rule) for rule in ("mean", "median", "weighted", "fedasync", "fedbuff")),
    ],
)
def test_every_rule_trains(tmp_path, mode, rule):
    size = {"model.num_features": 200, "model.dim": 32, "train.batch_size": 32, "train.lr": 0.01, "train.rounds": 60}
    settings = {**TINY, **size, "adapt.when": "never", "federation.mode": mode, "federation.aggregation": rule}
    result, _ = run_sniffed(settings, tmp_path / "run")
    assert result.target_accuracy > 0.4  # chance is 0.1
    assert bool(result.summary["communication"]["staleness"]) == (mode == "async")


@pytest.mark.parametrize("message", ["batch", "running", "exact"])
@pytest.mark.parametrize("sharing", ["local", "averaged", "frozen"])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_messages_and_sharing_in_all_combinations(tmp_path, message, sharing, mode):
    settings = {
        **SYNC,
        "federation.mode": mode,
        "align.step": "gradient",
        "align.message": message,
        "model.sharing": sharing,
        "model.extractor_interval": 2,
    }
    result, seen = run_sniffed(settings, tmp_path / "run")
    kinds = result.summary["communication"]["bytes_by_kind"]
    assert (kinds["extractor"] > 0) == (sharing == "averaged")
    phases = {arguments[0].phase for name, arguments, _ in seen if name == "exchange"}
    assert ("commit" in phases) == (sharing == "averaged")


def test_averaged_extractors_are_equal_afterwards(tmp_path):
    settings = {**SYNC, "method": "fedavg", "train.rounds": 4}
    result, _ = run_sniffed(settings, tmp_path / "run")
    weights = [load_file(path) for path in sorted(result.folder.glob("checkpoints/*/final.safetensors"))]
    assert len(weights) == 4
    for other in weights[1:]:
        for key, value in weights[0].items():
            torch.testing.assert_close(other[key], value, rtol=0, atol=0)


def test_adaptation_lifts_the_default_run_above_a_source_only_one(tmp_path):
    """On the digits as they are, in the default asynchronous mode."""
    settings = {"data.target": "street", "train.rounds": 60}
    plus = fedrf.run(None, settings, out=tmp_path / "plus", local=True)
    alone = fedrf.run(None, {**settings, "method": "source-only"}, out=tmp_path / "alone", local=True)
    assert plus.target_accuracy > alone.target_accuracy + 0.05


def test_exchanges_a_round(tmp_path):
    """One call a round and one at the end; with averaged extractors one more every T_G rounds."""
    _, seen = run_sniffed(SYNC, tmp_path / "run")
    assert sum(name == "exchange" for name, *_ in seen) == 4 * (6 + 1)
    averaged = {**SYNC, "model.sharing": "averaged", "model.extractor_interval": 2}
    _, seen = run_sniffed(averaged, tmp_path / "averaged")
    assert sum(name == "exchange" for name, *_ in seen) == 4 * (6 + 1 + ceil(6 / 2) - 1)


@pytest.mark.parametrize("sharing", ["frozen", "local"])
@pytest.mark.parametrize("pseudo_labels", [0, 0.3])
def test_joint_adaptation_trains_the_target_within_the_rounds(tmp_path, sharing, pseudo_labels):
    settings = {**SYNC, "adapt.when": "joint", "adapt.pseudo_labels": pseudo_labels, "model.sharing": sharing}
    result, _ = run_sniffed(settings, tmp_path / "run")
    rows = [row for row in RunFolder(result.folder).rows() if row["client"] == "handwritten" and "adaptation" in row]
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert all(row["loss"] == row["adaptation"] for row in rows)
    assert (
        result.summary["communication"]["by_direction"]["up"]["aligner"] == 2 * 4 * 4 * 60 * 8
    )  # after rounds 5 and 6
    weights = load_file(result.folder / "checkpoints/handwritten/final.safetensors")
    assert bool(weights["adapter.outer.weight"].any()) == (sharing == "local")


def test_pseudo_labels_in_the_last_stage(tmp_path):
    with_labels, _ = run_sniffed({**SYNC, "adapt.pseudo_labels": 1.0, "adapt.renew": 2}, tmp_path / "with")
    without, _ = run_sniffed(SYNC, tmp_path / "without")
    assert (with_labels.folder / "checkpoints/street/final.safetensors").read_bytes() == (
        without.folder / "checkpoints/street/final.safetensors"
    ).read_bytes()
    assert (with_labels.folder / "checkpoints/handwritten/final.safetensors").read_bytes() != (
        without.folder / "checkpoints/handwritten/final.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("messages", ["ordered/same/same", "random/random/same", "same/subset/subset"])
def test_without_waiting_the_target_sees_no_more_sources_than_the_setting_allows(tmp_path, messages):
    settings = {**TINY, "method": "fedrf-tca", "federation.messages": messages, "train.rounds": 20}
    result, seen = run_sniffed({**settings, "federation.participants": "random"}, tmp_path / "run")
    config = result.config
    sources, target = clients_of(config)
    for name, arguments, reply in seen:
        if name == "exchange" and arguments[0].sender == target and arguments[0].phase == "round":
            allowed = membership(sources, "random", messages, config.seed, arguments[0].round).mean_embedding
            assert {message.sender for message in reply.embeddings} <= allowed


@pytest.mark.parametrize("overrides", [{"federation.buffer": 1000, "federation.aggregation": "fedbuff"}])
def test_a_target_that_never_got_a_classifier_says_so(tmp_path, overrides):
    result, _ = run_sniffed({**TINY, **overrides}, tmp_path / "run")
    assert any("never received a classifier" in failure for failure in result.summary["failures"])


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_classifier_reaches_the_target_however_many_messages_are_lost(tmp_path, mode):
    """T_C does not divide T: there is one C of each source, and W after the last round."""
    settings = {**TINY, "federation.mode": mode, "federation.drop": 0.999, "federation.classifier_interval": 4}
    result, seen = run_sniffed({**settings, "adapt.when": "never"}, tmp_path / "run")
    assert result.summary["failures"] == []
    sent = [
        message
        for name, arguments, _ in seen
        if name == "exchange"
        for message in arguments[0].messages
        if message.kind != "metrics"
    ]
    assert {(message.kind, message.round) for message in sent} == {("classifier", 5), ("aligner", 7)}
    weights = load_file(result.folder / "checkpoints/handwritten/final.safetensors")["classifier.weight"].ravel()
    classifiers = [torch.tensor(message.values)[:80] for message in sent if message.kind == "classifier"]
    if mode == "sync":
        assert len(sent) == 6
        torch.testing.assert_close(weights, torch.stack(classifiers).mean(0))
    fresh = new_client(load_config(None, {**TINY, "model.sigma": 1.0}), "street", tmp_path).model
    assert not torch.equal(weights, fresh.get_part("classifier")[:80])  # not what it began with


def test_lost_messages_leave_the_same_bits(tmp_path):
    lossy = {**SYNC, "federation.drop": 0.4, "federation.participants": "random"}
    first, again = (fedrf.run(None, lossy, out=tmp_path / name, local=True) for name in ("first", "again"))
    assert final_weights(first) == final_weights(again)
    assert first.finished


@pytest.mark.parametrize("sharing", ["frozen", "local", "averaged"])
def test_networks_that_vote_are_whole(tmp_path, sharing):
    """Source-only: what the target ends with must be what the sources trained, extractor included."""
    settings = {**SYNC, "method": "source-only", "model.sharing": sharing}
    _, seen = run_sniffed(settings, tmp_path / "run")
    kinds = {
        frozenset(next(iter(reply.ballots.values())))
        for name, arguments, reply in seen
        if name == "exchange" and arguments[0].phase == "ballot" and reply.ballots
    }
    assert kinds == {frozenset({"classifier", "aligner"} | ({"extractor"} if sharing != "frozen" else set()))}


def test_a_classifier_that_is_sent_once_reaches_the_target_without_waiting_too(tmp_path):
    settings = {**TINY, "federation.classifier_interval": TINY["train.rounds"], "adapt.when": "never"}
    result, _ = run_sniffed(settings, tmp_path / "run")
    down = result.summary["communication"]["by_direction"]["down"]
    assert down["classifier"] > 0
    assert result.summary["failures"] == []
    own, other = (
        load_file(result.folder / "checkpoints" / name / "final.safetensors") for name in ("handwritten", "street")
    )
    fresh = new_client(load_config(None, {**TINY, "model.sigma": 1.0}), "street", tmp_path).model.state_dict()
    assert not torch.equal(own["classifier.weight"], fresh["classifier.weight"])  # not what it began with
    assert own["classifier.weight"].shape == other["classifier.weight"].shape
