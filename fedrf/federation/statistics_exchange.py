"""A client's part in the closed form for W and C: a source sends its statistics, the target loads the solution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedrf.models.class_map import set_class_map
from fedrf.protocol.class_statistics import ClassStatistics, pack
from fedrf.protocol.message import Message
from fedrf.protocol.messages import MeanEmbedding
from fedrf.protocol.schedule import statistics_senders
from fedrf.tca.class_sums import sums_of_source

if TYPE_CHECKING:
    from fedrf.federation.module import FederatedModule


def exchange_statistics(module: FederatedModule, number: int) -> None:
    """Send Σℓ and, at a source, additive statistics; at the target, set W and C to what follows from all of them."""
    schedule = module.schedule
    if not schedule.is_target:
        is_lost = schedule.name not in statistics_senders(module.config, schedule.sources)
        module.exchange("statistics", number, [] if is_lost else _messages_of_source(module, number))
        return
    mean = torch.stack([features.double().sum(0) for features in module.all_features()]).sum(0)
    mean = mean / len(module.samples.training)
    solution = module.exchange("statistics", number, [module.channel.message(MeanEmbedding, mean, number)]).class_map
    if solution is not None:
        set_class_map(module, torch.from_numpy(solution.restored()).to(module.device), mean)


def _messages_of_source(module: FederatedModule, number: int) -> list[Message]:
    """Return Σℓ and the statistics of all samples of a source to train with."""
    align, samples, channel = module.config.align, module.samples, module.channel
    assert samples.labels is not None
    labels = samples.labels[torch.from_numpy(samples.training)].to(module.device)

    def pieces() -> Iterator[tuple[Tensor, Tensor]]:
        rest = labels
        for features in module.all_features():
            yield features, rest[: len(features)]
            rest = rest[len(features) :]

    sums = sums_of_source(pieces(), labels, module.num_classes)
    packed = pack(sums.centred(), sums.shares.cpu().numpy(), align.statistics, align.rank)
    statistics = ClassStatistics(channel.info.name, number, channel.info.attempt, *packed)
    return [channel.message(MeanEmbedding, sums.mean, number), statistics]
