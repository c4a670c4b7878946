"""The batches that a client's trainer iterates over: one for each round, then one for each step of adaptation."""

from __future__ import annotations

from collections.abc import Iterator

from fedrf.federation.channel import StoppedError
from fedrf.federation.module import FederatedModule
from fedrf.models.network import Batch


def uncache_adapter(module: FederatedModule) -> None:
    """After the rounds, take samples from below the adapter, which the target's adaptation may train."""
    if module.channel.progress.round <= module.config.train.rounds or not module.extractor.adapter_is_applied:
        return
    try:
        module.samples.rows, module.extractor.adapter_is_applied = module.samples.trunk_outputs(), False
    except StoppedError:
        module.channel.progress.stopped = True


class RoundBatches:
    """What the trainer iterates over: a batch for each round and, at a target that adapts after them, for each step.

    It has a length, so that Lightning does not fetch ahead: the number of the next round may depend on the last reply.
    """

    def __init__(self, module: FederatedModule) -> None:
        self.module, self.config = module, module.config
        self.steps = self.config.adapt.steps if module.stage and module.stage.is_last else 0

    def __len__(self) -> int:
        return 10**9  # an upper bound: `__iter__` ends, and a batch may have to be repeated

    def __iter__(self) -> Iterator[Batch]:
        module, rounds, progress = self.module, self.config.train.rounds, self.module.channel.progress
        while not progress.stopped and progress.round < rounds + self.steps:
            number = module.schedule.next_round(progress.round)
            if number > rounds + self.steps:  # a source skips the rounds that are left
                progress.round = rounds
                return
            progress.round = number
            is_adaptation = progress.round > rounds
            if is_adaptation and module.commit():  # first: the others wait for it
                uncache_adapter(module)
            size = (self.config.adapt if is_adaptation else self.config.train).batch_size
            yield module.samples.batch(progress.round, size)
