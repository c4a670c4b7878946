"""A toy federation of two sources of unequal size and a target, a record of what it sends, and reference loops."""

import copy

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file
from sklearn.cluster import KMeans
from torch.func import functional_call
from torch.nn.functional import normalize

from fedrf.config.loader import load_config
from fedrf.experiment.results import RunFolder
from fedrf.federation.client import in_file
from fedrf.models.parts import parameters_of, set_part
from fedrf.protocol.schedule import participants_of
from tests.federation.recording import exchanges, new_client, run_recorded

COUNTS = {"clinic": 12, "ward": 30, "home": 20}
SOURCES, TARGET = ("clinic", "ward"), "home"
CLASSES, COLUMNS = 3, 5
SMOOTHING = 0.1  # of labels; not the default, so that the reference loops check it
NETWORK = ("aligner", "classifier", "extractor")


def toy(folder, method, **more):
    """Write the data; return the overrides of a run that averages after rounds 3 and 6 of 7."""
    (folder / "data").mkdir(exist_ok=True)
    for seed, (name, count) in enumerate(COUNTS.items()):
        random, labels = np.random.RandomState(seed), np.arange(count) % CLASSES
        centres = 2 * np.eye(CLASSES, COLUMNS)[labels]
        rows = centres + seed / 2 + random.randn(count, COLUMNS)
        # Not .npz: Python 3.11 cannot parse its headers in several threads at once.
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
        "train.label_smoothing": SMOOTHING,
        "federation.mode": "sync",
        "federation.classifier_interval": 3,
        "federation.checkpoint_seconds": 1e9,
        "track.evaluate_every": 100,
        **{key.replace("__", "."): value for key, value in more.items()},
    }


class RecordedRun:
    """A finished run: its result, its messages and replies, its figures."""

    def __init__(self, overrides, folder):
        self.result, calls = run_recorded(overrides, folder / "run")
        self.config, self.calls = self.result.config, exchanges(calls)
        self.rows = RunFolder(self.result.folder).rows()

    def sent(self, kind):
        """Return the values of all messages of one kind, by round and sender."""
        return {
            (envelope.round, envelope.sender): torch.tensor(message.values)
            for envelope, _ in self.calls
            for message in envelope.messages
            if message.kind == kind
        }

    def kinds(self):
        return {message.kind for envelope, _ in self.calls for message in envelope.messages}

    def replies(self, receiver, phase="commit"):
        """Return the replies to one client, by round."""
        return {
            envelope.round: reply
            for envelope, reply in self.calls
            if envelope.sender == receiver and envelope.phase == phase
        }

    def figures(self, name):
        """Return one of the figures, by round and client."""
        return {(row["round"], row["client"]): row[name] for row in self.rows if name in row and "final" not in row}

    def weights(self, client):
        return load_file(self.result.folder / "checkpoints" / client / "final.safetensors")


def projected(model, inputs):
    """Return Wᵀ G(x) of the network without random features, written out."""
    block = model.extractor.adapter
    hidden = (inputs @ block.inner.weight.T + block.inner.bias).relu()
    extracted = inputs + hidden @ block.outer.weight.T + block.outer.bias
    return normalize(extracted) @ model.aligner


def aligned(model, inputs):
    """Return the aligned features of the network without random features and normalisation, written out."""
    return normalize(projected(model, inputs))


def logits_of(model, rows):
    """Return the logits of aligned features, written out."""
    return 10 * rows @ model.classifier.weight.T + model.classifier.bias


def classification(model, rows, labels, smoothing=SMOOTHING):
    """Return the cross-entropy of aligned features with smoothed labels, written out."""
    log_probabilities = logits_of(model, rows).log_softmax(1)
    expected = torch.full_like(log_probabilities, smoothing / CLASSES)
    expected[torch.arange(len(labels)), labels] += 1 - smoothing
    return -(expected * log_probabilities).sum(1).mean()


def conditioned_by_hand(model, rows):
    """Return the products of aligned features with each predicted class probability, which is constant."""
    probabilities = logits_of(model, rows).softmax(1).detach()
    return torch.cat([probabilities[:, c, None] * rows for c in range(CLASSES)], dim=1)


def plain_loop(config, folder, loss, weight=lambda name: 1.0, target_trains=(), network=aligned):
    """Train all clients in one loop with averages every few rounds; return their models.

    Sources take steps of Adam. The target takes plain steps, 10 times as long for its classifier and 100 times as long
    for its other parts. Auxiliary networks are always trained by Adam.

    `loss(name, model, rows, batch, received)` gets the messages that reach the client by their senders; it may return
    None.
    """
    names = (*SOURCES, TARGET)
    clients = {name: new_client(config, name, folder) for name in names}
    models = {name: client.module for name, client in clients.items()}
    optimizers = {name: make_optimizers(model, name, config.train.lr, target_trains) for name, model in models.items()}
    for number in range(1, config.train.rounds + 1):
        batches = {name: clients[name].module.samples.batch(number, config.train.batch_size) for name in names}
        rows = {name: network(models[name], batches[name].inputs) for name in names}
        participants = participants_of(config, SOURCES, number)
        sent = {name: rows[name].detach() for name in names if name in {*participants.mean_embedding, TARGET}}
        for name in names:
            received = {peer: sent[peer] for peer in sent if (peer == TARGET) != (name == TARGET) and name in sent}
            value = loss(name, models[name], rows[name], batches[name], received)
            if value is not None:
                for optimizer in optimizers[name]:
                    optimizer.zero_grad()
                value.backward()
                for optimizer in optimizers[name]:
                    optimizer.step()
        average_if_due(config, number, models, participants, weight, target_trains)
    return models


def make_optimizers(model, name, lr, target_trains):
    auxiliary = parameters_of(model, "auxiliary")
    optimizers = [torch.optim.Adam(auxiliary, lr)] if auxiliary else []
    if name != TARGET:
        return [*optimizers, torch.optim.Adam([value for part in NETWORK for value in parameters_of(model, part)], lr)]
    groups = [
        {"params": parameters_of(model, part), "lr": (10 if part == "classifier" else 100) * lr}
        for part in target_trains
        if part != "auxiliary"
    ]
    return optimizers + ([torch.optim.SGD(groups)] if groups else [])


def average_if_due(config, number, models, participants, weight, target_trains):
    interval, rounds = config.federation.classifier_interval, config.train.rounds
    is_due = number == rounds if interval == "last" else number % interval == 0
    if not is_due:
        return
    for part in dict.fromkeys((*NETWORK, *target_trains)):
        chosen = participants.classifier if part == "classifier" else participants.aligner
        # In auxiliary networks the target counts as much as both sources together.
        counts = (lambda name: 2.0 if name == TARGET else 1.0) if part == "auxiliary" else weight
        average(models, [name for name in SOURCES if name in chosen], part, part in target_trains, counts)


@torch.no_grad()
def average(models, senders, part, target_counts, weight):
    """Average one part of the senders, and of the target if it counts; load the average at senders and target."""
    counted = [*senders, TARGET] if target_counts else senders
    if not counted:
        return
    for values in zip(*(parameters_of(models[name], part) for name in [*senders, TARGET]), strict=True):
        by_name = dict(zip([*senders, TARGET], values, strict=True))
        mean = sum(weight(name) * by_name[name].double() for name in counted) / sum(weight(name) for name in counted)
        for value in values:
            value.copy_(mean)


def assert_same_networks(run, models, tolerance=1e-5):
    """Assert that every client ended with the weights of the reference loop."""
    for name, model in models.items():
        weights = run.weights(name)
        for key, value in model.named_parameters():
            torch.testing.assert_close(
                weights[in_file(key)],
                value.detach(),
                rtol=0,
                atol=tolerance,
                msg=lambda text, key=key, name=name: f"{name} {key}: {text}",
            )


def reversed_loss(network, rows, others, is_source, strength):
    """Return a loss whose gradient is that of a discriminator's loss, and −strength times as large for the features.

    It is written without a reversal layer. With `others`, rows of the other domain, it is the mean over both domains.
    """

    def cross_entropy(parameters, inputs, is_source):
        z = functional_call(network, parameters, (inputs,))[:, 0]
        return (1 + (-z if is_source else z).exp()).log().mean()

    own = dict(network.named_parameters())
    fixed = {name: parameter.detach() for name, parameter in own.items()}
    for_network = cross_entropy(own, rows.detach(), is_source)
    for_features = cross_entropy(fixed, rows, is_source)
    if others is None:
        return for_network - strength * (for_features - for_features.detach())
    for_network = (for_network + cross_entropy(own, others, not is_source)) / 2
    return for_network - strength * (for_features - for_features.detach()) / 2


def outputs_of_copy(model, parts, inputs, output="logits"):
    """Return the outputs of a copy of the model that has these parts."""
    model = copy.deepcopy(model)
    for part, values in parts.items():
        set_part(model, part, torch.as_tensor(values))
    with torch.no_grad():
        rows = aligned(model, inputs)
        return rows if output == "aligned" else logits_of(model, rows)


def k_means_spread(rows, centres, steps=10):
    """Return the mean squared distance to the nearest centre, by scikit-learn."""
    fitted = KMeans(len(centres), init=centres, n_init=1, max_iter=steps, tol=0, algorithm="lloyd").fit(rows)
    distances = ((rows[:, None] - fitted.cluster_centers_[None]) ** 2).sum(2)
    return distances.min(1).mean()


def constant_prediction(label):
    """Return the classifier of a network that predicts one class for all samples."""
    classifier = torch.zeros(CLASSES * 5)
    classifier[CLASSES * 4 + label] = 9.0
    return {"classifier": classifier}


def target_of(tmp_path, method, **more):
    """Return configuration, module, first batch and its features of a toy federation's target."""
    config = load_config(None, toy(tmp_path, method, **more))
    module = new_client(config, TARGET, tmp_path).module
    batch = module.samples.batch(1, 8)
    return config, module, batch, module.features(batch.inputs)
