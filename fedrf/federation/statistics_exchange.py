"""A client's part in the closed form for W and C: a source sends its statistics, the target loads the solution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedrf.models.class_map import set_class_map
from fedrf.protocol.class_statistics import ClassStatistics, pack
from fedrf.protocol.message import Message
from fedrf.protocol.schedule import statistics_senders
from fedrf.tca.class_sums import statistics_of_source
from fedrf.tca.source_statistics import DEFAULT_RIDGE, solve_ridge
from fedrf.tca.statistics import DomainStatistics

if TYPE_CHECKING:
    from fedrf.federation.module import FederatedModule


def exchange_statistics(module: FederatedModule, number: int) -> None:
    """Send additive statistics at a source; at the target, set W and C to what follows from all of them."""
    schedule = module.schedule
    is_sender = schedule.name in statistics_senders(module.config, schedule.sources)
    messages: list[Message] = [_message(module, number)] if is_sender else []
    solution = module.exchange("statistics", number, messages).class_map
    if solution is None:
        return
    class_map = torch.from_numpy(solution.restored())
    if module.config.align.statistics == "means":
        mean, class_map = _whitened(module, class_map)
    else:
        mean = _mean(module)
    set_class_map(module, class_map.to(module.device), mean.to(module.device))


def _message(module: FederatedModule, number: int) -> ClassStatistics:
    """Return the statistics of all samples of a source to train with."""
    align, samples, info = module.config.align, module.samples, module.channel.info
    assert samples.labels is not None
    labels = samples.labels[torch.from_numpy(samples.training)].to(module.device)

    def pieces() -> Iterator[tuple[Tensor, Tensor]]:
        rest = labels
        for features in module.all_features():
            yield features, rest[: len(features)]
            rest = rest[len(features) :]

    statistics = statistics_of_source(pieces(), labels, module.num_classes, align.statistics != "means")
    return ClassStatistics(info.name, number, info.attempt, *pack(statistics, align.statistics, align.rank))


def _mean(module: FederatedModule) -> Tensor:
    """Return the mean of the client's random features."""
    total = torch.stack([features.double().sum(0) for features in module.all_features()]).sum(0)
    return total / len(module.samples.training)


def _whitened(module: FederatedModule, class_covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of the target, and the map to class scores by its own covariance."""
    own = DomainStatistics.of_pieces(features.cpu() for features in module.all_features())
    covariance = own.gram.double() / own.count - torch.outer(own.mean, own.mean)
    ridge = module.config.align.ridge
    solution = solve_ridge(covariance.numpy(), class_covariance.numpy(), DEFAULT_RIDGE if ridge == "auto" else ridge)
    return own.mean, torch.from_numpy(solution)
