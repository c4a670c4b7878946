"""Participants and batches of a round, written down a second time from the documentation.

Tests compare a federation with these functions, which use nothing of the code under test: docs/protocol.md says how
sets and batches follow from the seed.
"""

import numpy as np


def participants(sources, config, number):
    """Return the sets of sources whose Σℓ, W and C are used in round `number`."""
    federation, rounds = config.federation, config.train.rounds
    random = np.random.RandomState([config.seed, number, 0x5EED])

    def subset(names):
        size = random.randint(len(names) + 1)
        return {names[index] for index in random.permutation(len(names))[:size]}

    selected = set(sources) if federation.participants == "all" else subset(list(sources))
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
