"""Sync mode against algorithm 5 of the paper, written as a plain loop with two barriers a round."""

import copy

import pytest
import torch
from safetensors.torch import load_file

from fedrf.config.loader import load_config
from fedrf.data.domains import clients_of, load_domain
from fedrf.federation.client import in_file
from tests.federation.recording import SYNC, new_client, run_recorded
from tests.federation.reference import batch_rows, local_loss, new_optimizer, participants, shuffled_rows

LITERAL = {**SYNC, "method": "fedrf-tca", "model.sharing": "local", "model.sigma": 1.0}


def algorithm_5(config, folder):
    """Return the model of each client after all rounds."""
    sources, target = clients_of(config)
    names = (*sources, target)
    in_file_order = {name: load_domain(config.data, name) for name in names}
    clients = {name: new_client(config, name, folder, samples=in_file_order[name]) for name in names}
    order = {name: shuffled_rows(config, name, len(in_file_order[name])) for name in names}
    models = {name: copy.deepcopy(clients[name].module) for name in names}
    optimizers = {name: new_optimizer(model, name == target, config.train.lr) for name, model in models.items()}
    federation = config.federation
    for number in range(1, config.train.rounds + 1):
        embedders, aligner_senders, classifier_senders = participants(sources, config, number)
        features, labels = {}, {}
        for position, name in enumerate(names):
            samples = clients[name].module.samples
            rows = order[name][batch_rows(config, position, len(samples.rows), number)]
            features[name] = models[name].features(samples.rows[rows])
            labels[name] = None if name == target else samples.labels[rows]
        own = {name: rows.mean(0) for name, rows in features.items()}
        sent = {name: value.detach().clone() for name, value in own.items()}
        for name in names:
            loss = local_loss(name, target, models[name], features[name], labels[name], own, sent, embedders, sources)
            if loss is not None:
                optimizers[name].zero_grad()
                loss.backward()
                optimizers[name].step()
        if number % federation.aligner_interval == 0 or number == config.train.rounds:
            average(models, [name for name in sources if name in aligner_senders], target, "aligner")
        if config.model.sharing == "averaged" and number % config.model.extractor_interval == 0:
            average(models, [name for name in sources if name in aligner_senders], target, "extractor")
        if number % federation.classifier_interval == 0:
            average(models, [name for name in sources if name in classifier_senders], target, "classifier")
    return models


@torch.no_grad()
def average(models, senders, target, part):
    """Average over the senders, for W and G over the target too, and assign the average to all of them."""
    counted = senders if part == "classifier" else [*senders, target]
    if not counted:
        return

    def tensors(name):
        model = models[name]
        network = model.classifier if part == "classifier" else model.extractor.adapter
        return [model.aligner] if part == "aligner" else list(network.parameters())

    for values in zip(*(tensors(name) for name in [*senders, target]), strict=True):
        mean = torch.stack(values[: len(counted)]).mean(0)
        for value in values:
            value.copy_(mean)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"federation.participants": "random", "federation.classifier_interval": 3},
        {
            "federation.participants": "random",
            "federation.aligners_from": "subset",
            "federation.classifiers_from": "subset",
        },
        {
            "federation.embeddings_from": "ordered",
            "federation.aligners_from": "random",
            "federation.classifiers_from": "same",
            "train.rounds": 9,
        },
        {"federation.drop": 0.5, "federation.classifier_interval": 2},
        {"federation.participants": "random", "federation.aligner_interval": 4},
        {"federation.participants": "random", "model.sharing": "averaged"},
        {"model.sharing": "averaged", "model.extractor_interval": 2},
    ],
    ids=["I", "III", "table III (III)", "C", "drop", "T_W", "extractors averaged", "T_G"],
)
def test_sync_mode_is_algorithm_5(tmp_path, more):
    overrides = {**LITERAL, "federation.classifier_interval": 1, **more}
    expected = algorithm_5(load_config(None, overrides), tmp_path)
    result, _ = run_recorded(overrides, tmp_path / "run")
    for name, model in expected.items():
        weights = load_file(result.folder / "checkpoints" / name / "final.safetensors")
        for key, value in model.state_dict().items():
            if not key.startswith("own_embedding."):
                torch.testing.assert_close(weights[in_file(key)], value, rtol=1e-3, atol=1e-4, msg=f"{name}: {key}")
