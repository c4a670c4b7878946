"""A toy federation of two sources of unequal size and a target, what it sent, and plain loops to hold it against."""

import copy

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file
from sklearn.cluster import KMeans
from torch.func import functional_call
from torch.nn.functional import normalize

from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.loader import load_config
from fedrf.data.domains import clients_of, load_samples
from fedrf.experiment.results import RunFolder
from fedrf.federation.client import Client
from fedrf.federation.client_info import ClientInfo
from fedrf.protocol.messages import Reply
from fedrf.protocol.schedule import members_of
from tests.federation.test_federation import run_sniffed

COUNTS = {"clinic": 12, "ward": 30, "home": 20}
SOURCES, TARGET = ("clinic", "ward"), "home"
CLASSES, COLUMNS = 3, 5
NETWORK = ("aligner", "classifier", "extractor")


def toy(folder, method, **more):
    """Write the data; return the overrides of a run that averages after rounds 3 and 6 of 7."""
    (folder / "data").mkdir(exist_ok=True)
    for seed, (name, count) in enumerate(COUNTS.items()):
        random, labels = np.random.RandomState(seed), np.arange(count) % CLASSES
        centres = 2 * np.eye(CLASSES, COLUMNS)[labels]
        rows = centres + seed / 2 + random.randn(count, COLUMNS)
        # Not .npz: in Python 3.11 its headers cannot be read by several threads at once.
        save_file({"features": rows, "labels": labels}, folder / "data" / f"{name}.safetensors")
    return {
        "method": method,
        "data.name": "features",
        "data.root": str(folder / "data"),
        "data.target": TARGET,
        "model.dim": 4,
        "train.rounds": 7,
        "train.batch_size": 8,
        "train.lr": 0.01,
        "federation.mode": "sync",
        "federation.classifier_interval": 3,
        "federation.checkpoint_seconds": 1e9,
        "track.evaluate_every": 100,
        **{key.replace("__", "."): value for key, value in more.items()},
    }


class Sniffed:
    """A run that is over: its result, what was sent and answered, its figures."""

    def __init__(self, overrides, folder):
        self.config = load_config(None, overrides)
        self.result, seen = run_sniffed(overrides, folder / "run")
        self.calls = [(arguments[0], answer) for name, arguments, answer in seen if name == "exchange"]
        self.rows = RunFolder(self.result.folder).rows()

    def sent(self, kind):
        """What clients sent of one kind, by round and sender."""
        return {
            (envelope.round, envelope.sender): torch.tensor(message.values)
            for envelope, _ in self.calls
            for message in envelope.messages
            if message.kind == kind
        }

    def kinds(self):
        return {message.kind for envelope, _ in self.calls for message in envelope.messages}

    def replies(self, receiver, phase="commit"):
        """What a client was answered, by round."""
        return {
            envelope.round: reply
            for envelope, reply in self.calls
            if envelope.sender == receiver and envelope.phase == phase
        }

    def figures(self, name):
        """One of the figures, by round and client."""
        return {(row["round"], row["client"]): row[name] for row in self.rows if name in row and "final" not in row}

    def weights(self, client):
        return load_file(self.result.folder / "checkpoints" / client / "final.safetensors")


def new_client(config, name, folder, foreign=None):
    """A client that has greeted, but does not train."""
    sources, target = clients_of(config)
    samples = load_samples(config, name)
    shown = samples.without_labels() if name == target else samples

    def link(call, *arguments):
        return (1.0, Reply()) if call == "greet" else None

    place = ClientInfo(name, sources, target, folder)
    return Client(config, place, shown, link, Evaluator(samples.labels), foreign=foreign)


def aligned(model, inputs):
    """The network without random features and normalisation, written out up to its classifier."""
    block = model.adapter
    hidden = (inputs @ block.inner.weight.T + block.inner.bias).relu()
    extracted = inputs + hidden @ block.outer.weight.T + block.outer.bias
    return normalize(normalize(extracted) @ model.aligner)


def classification(model, rows, labels, smoothing=0.1):
    """Cross-entropy with smoothed labels, written out."""
    chances = (10 * rows @ model.classifier.weight.T + model.classifier.bias).log_softmax(1)
    wanted = torch.full_like(chances, smoothing / CLASSES)
    wanted[torch.arange(len(labels)), labels] += 1 - smoothing
    return -(wanted * chances).sum(1).mean()


def plain_loop(config, folder, loss, weigh=lambda name: 1.0, target_trains=(), network=aligned):
    """Train all clients in one loop with averages every few rounds; return their models.

    Sources take steps of Adam, the target plain ones that are a hundred times as long, ten times those of its
    classifier; companions always Adam's.

    `loss(name, model, rows, batch, sent)` has what all clients sent in `sent`, or returns None.
    """
    names = (*SOURCES, TARGET)
    clients = {name: new_client(config, name, folder) for name in names}
    models = {name: copy.deepcopy(client.model) for name, client in clients.items()}
    kinds = {name: NETWORK if name != TARGET else target_trains for name in names}
    optimizers, lr = {}, config.train.lr
    for name, model in models.items():
        parts = model.parts()
        trained = [one for kind in kinds[name] if kind != "companion" for one in parts[kind]]
        optimizers[name] = [torch.optim.Adam(parts["companion"], lr)] if parts["companion"] else []
        if trained:
            if name == TARGET:
                steps = [(10 if kind == "classifier" else 100, kind) for kind in kinds[name] if kind != "companion"]
                groups = [{"params": parts[kind], "lr": factor * lr} for factor, kind in steps]
                optimizers[name].append(torch.optim.SGD(groups))
            else:
                optimizers[name].append(torch.optim.Adam(trained, lr))
    interval, rounds = config.federation.classifier_interval, config.train.rounds
    for number in range(1, rounds + 1):
        batches = {name: clients[name].batch(number, config.train.batch_size) for name in names}
        rows = {name: network(models[name], batches[name].inputs) for name in names}
        members = members_of(config, SOURCES, number)
        sent = {name: rows[name].detach() for name in names if name in {*members.mean_embedding, TARGET}}
        for name in names:
            got = {one: sent[one] for one in sent if (one == TARGET) != (name == TARGET) and name in sent}
            value = loss(name, models[name], rows[name], batches[name], got)
            if value is not None:
                for optimizer in optimizers[name]:
                    optimizer.zero_grad()
                value.backward()
                for optimizer in optimizers[name]:
                    optimizer.step()
        if (number == rounds) if interval == "last" else (number % interval == 0):
            for kind in dict.fromkeys((*NETWORK, *target_trains)):
                chosen = members.classifier if kind == "classifier" else members.aligner
                # Both sides count alike in what tells them apart.
                count = (lambda name: 2.0 if name == TARGET else 1.0) if kind == "companion" else weigh
                average(models, [name for name in SOURCES if name in chosen], kind, kind in target_trains, count)
    return models


@torch.no_grad()
def average(models, senders, kind, target_counts, weigh):
    """The weighted mean of one part over the senders, for them and the target."""
    counted = [*senders, TARGET] if target_counts else senders
    if not counted:
        return
    for values in zip(*(models[name].parts()[kind] for name in [*senders, TARGET]), strict=True):
        by_name = dict(zip([*senders, TARGET], values, strict=True))
        middle = sum(weigh(name) * by_name[name].double() for name in counted) / sum(weigh(name) for name in counted)
        for value in values:
            value.copy_(middle)


def assert_same_networks(run, models, tolerance=1e-5):
    """Every client ended with the weights of the plain loop."""
    for name, model in models.items():
        weights = run.weights(name)
        for key, value in model.named_parameters():
            torch.testing.assert_close(
                weights[key], value.detach(), rtol=0, atol=tolerance, msg=lambda m, k=key, n=name: f"{n} {k}: {m}"
            )


def reversed_loss(network, rows, others, label, strength):
    """Cross-entropy of a discriminator which it lowers and the features raise, `strength` times: without reversal.

    With `others`, rows of the other domain, the mean over both.
    """

    def wrong(parameters, one, is_source):
        z = functional_call(network, parameters, (one,))[:, 0]
        return (1 + (-z if is_source else z).exp()).log().mean()

    own = dict(network.named_parameters())
    fixed = {name: one.detach() for name, one in own.items()}
    learned = wrong(own, rows.detach(), label)
    prevented = wrong(fixed, rows, label)
    if others is None:
        return learned - strength * (prevented - prevented.detach())
    learned = (learned + wrong(own, others, not label)) / 2
    return learned - strength * (prevented - prevented.detach()) / 2


def seen(model, parts, inputs, wanted="logits"):
    """What a copy of the model gives that has these parts."""
    model = copy.deepcopy(model)
    for kind, values in parts.items():
        model.set_part(kind, torch.as_tensor(values))
    with torch.no_grad():
        rows = aligned(model, inputs)
        return rows if wanted == "aligned" else 10 * rows @ model.classifier.weight.T + model.classifier.bias


def lloyd(rows, centres, steps=10):
    """The mean squared distance to the nearest centre, by scikit-learn."""
    fitted = KMeans(len(centres), init=centres, n_init=1, max_iter=steps, tol=0, algorithm="lloyd").fit(rows)
    distances = ((rows[:, None] - fitted.cluster_centers_[None]) ** 2).sum(2)
    return distances.min(1).mean()


def constant(name):
    """Parts of a network that always names one class."""
    classifier = torch.zeros(CLASSES * 5)
    classifier[CLASSES * 4 + name] = 9.0
    return {"classifier": classifier}


def target_of(tmp_path, method, **more):
    config = load_config(None, toy(tmp_path, method, **more))
    client = new_client(config, TARGET, tmp_path)
    batch = client.batch(1, 8)
    return config, client.model, batch, client.model.features(batch.inputs)
