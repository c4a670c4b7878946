"""Participants, batches and steps of a round, written down a second time from the documentation.

Tests compare a federation with these functions, which use nothing of the code under test: docs/protocol.md says how
sets, the order of samples and batches follow from the seed, docs/methods.md which steps a client takes.
"""

from zlib import crc32

import numpy as np
import torch
from torch.nn.functional import cross_entropy


def participants(sources, config, number):
    """Return the sets of sources whose Σℓ, W and C are used in round `number`."""
    federation, rounds = config.federation, config.train.rounds
    random = np.random.RandomState([config.seed, number, 0x5EED])

    def subset(names):
        size = random.randint(len(names) + 1)
        return {names[index] for index in random.permutation(len(names))[:size]}

    if federation.participants == "all":
        selected = set(sources)
    elif federation.participants == "random":
        selected = subset(list(sources))
    else:
        selected = {sources[index] for index in random.permutation(len(sources))[: federation.participants]}
    before, sets = selected, []
    for value in (federation.embeddings_from, federation.aligners_from, federation.classifiers_from):
        if value == "participants":
            before = selected
        elif value == "subset":
            before = subset([name for name in sources if name in before])
        elif value == "all":
            before = set(sources)
        elif value == "ordered":
            before = {sources[(number - 1) % len(sources)]}
        elif value == "random":
            before = {sources[random.randint(len(sources))]}
        elif value == "none":
            before = set()
        sets.append(before)  # for `same`, unchanged
    if federation.drop:
        arrives = np.random.RandomState([config.seed, number, 0x1057]).rand(3, len(sources)) >= federation.drop
        interval = federation.classifier_interval
        last = {1: rounds, 2: rounds - rounds % interval}  # the last W and C are never lost
        sets = [
            chosen
            if last.get(kind) == number
            else {name for name, came in zip(sources, arrives[kind], strict=True) if came and name in chosen}
            for kind, chosen in enumerate(sets)
        ]
    return sets


def batch_rows(config, position, count, number):
    """Return the positions of the samples of one client's batch: a new permutation in every epoch."""
    size = min(config.train.batch_size, count)
    epoch, index = divmod(number - 1, max(1, count // size))
    order = np.random.RandomState([config.seed, position, epoch, 0xDA7A]).permutation(count)
    return order[index * size : (index + 1) * size]


def shuffled_rows(config, domain, count):
    """Return the positions of a client's samples in its domain, in the order that the client uses."""
    return np.random.RandomState([config.seed, crc32(domain.encode()), 0x5F1E]).permutation(count)


def new_optimizer(model, is_target, lr):
    """Return Adam for W, G and C at a source, and plain steps of 100 · lr for W and G at the target."""
    trained = [model.aligner, *model.extractor.adapter.parameters()]
    if is_target:
        return torch.optim.SGD(trained, lr=100 * lr)
    return torch.optim.Adam([*trained, *model.classifier.parameters()], lr=lr)


def local_loss(name, target, model, features, labels, own, sent, embedders, sources):
    """Return L_C + L_MMD at a source that takes part, L_C at another, and the mean of L_MMD at the target."""

    def mmd(peer):
        return ((own[name] - sent[peer]) @ model.aligner).square().sum()

    if name == target:
        pairs = [mmd(source) for source in sources if source in embedders]
        return torch.stack(pairs).mean() if pairs else None
    loss = cross_entropy(model.logits(features), labels)
    return loss + mmd(target) if name in embedders else loss
