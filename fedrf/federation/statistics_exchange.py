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
from fedrf.tca.precision import in_double

if TYPE_CHECKING:
    from fedrf.federation.module import FederatedModule


def exchange_statistics(module: FederatedModule, number: int) -> None:
    """Send Σℓ and additive statistics; at the target, set W and C to what follows from all of them."""
    schedule, align = module.schedule, module.config.align
    if not schedule.is_target:
        is_lost = schedule.name not in statistics_senders(module.config, schedule.sources)
        module.exchange("statistics", number, [] if is_lost else _messages(module, number, _labels(module)))
        return
    mean = torch.stack([in_double(features).sum(0) for features in module.all_features()]).sum(0)
    mean = mean / len(module.samples.training)
    messages: list[Message] = [module.channel.message(MeanEmbedding, mean, number)]
    if align.closed_form == "rf-tca":
        # As if all samples were of one class: their covariance is all that the target can tell.
        no_labels = torch.zeros(len(module.samples.training), dtype=torch.int64, device=module.device)
        messages = _messages(module, number, no_labels)
    solution = module.exchange("statistics", number, messages).class_map
    if solution is not None:
        set_class_map(module, torch.from_numpy(solution.restored()), mean)


def _labels(module: FederatedModule) -> Tensor:
    """Return the labels of a source's samples to train with."""
    samples = module.samples
    assert samples.labels is not None
    return samples.labels[torch.from_numpy(samples.training)].to(module.device)


def _messages(module: FederatedModule, number: int, labels: Tensor) -> list[Message]:
    """Return Σℓ and the statistics of all samples to train with."""
    align, channel = module.config.align, module.channel

    def pieces() -> Iterator[tuple[Tensor, Tensor]]:
        rest = labels
        for features in module.all_features():
            yield features, rest[: len(features)]
            rest = rest[len(features) :]

    sums = sums_of_source(pieces(), labels, module.num_classes)
    shares = sums.shares.cpu().numpy()
    packed = pack(sums.centred(), shares, align.statistics, align.rank, str(module.device))
    statistics = ClassStatistics(channel.info.name, number, channel.info.attempt, *packed)
    return [channel.message(MeanEmbedding, sums.mean, number), statistics]
