"""The warm start of W_RF by federated closed-form RF-TCA: in one message, or in a few smaller ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fedrf.config.schema import Config
from fedrf.federation.channel import Channel
from fedrf.protocol.aggregation import Array
from fedrf.protocol.messages import Product, Statistics
from fedrf.tca.federated import SubspaceIteration, pooled_problem, scatter_product
from fedrf.tca.statistics import DomainStatistics

TOLERANCE, MAX_STEPS = 3e-4, 50


class WarmStartReply(NamedTuple):
    """W if `done`, otherwise the basis to multiply with next."""

    values: Array
    done: bool


@torch.no_grad()
def warm_started_aligner(form: str, channel: Channel, features: Callable[[], Iterable[Tensor]]) -> Tensor:
    """Do a client's part and return W; `features` yields the random features of its samples in pieces, every time."""
    if form == "statistics":
        total = DomainStatistics.of_pieces(features())
        values = torch.cat([total.total[None].to(total.gram), total.gram]).float().cpu().numpy()
        return torch.tensor(channel.warm_start(0, Statistics, values, total.count).values)
    counts, sums = zip(*((len(piece), piece.sum(0)) for piece in features()), strict=True)
    own, step = torch.stack(sums).sum(0), 0
    device, values = own.device, own.cpu().numpy()
    while True:
        answer = channel.warm_start(step, Product, values, sum(counts))
        if answer.done:
            return torch.tensor(answer.values)
        basis = torch.tensor(answer.values, device=device)
        values, step = scatter_product(features(), basis).cpu().numpy(), step + 1


class WarmStart:
    """The coordinator's part."""

    def __init__(self, config: Config, target: str) -> None:
        self.gamma, self.dim, self.seed, self.target = config.align.gamma, config.model.dim, config.seed, target
        self.iteration: SubspaceIteration | None = None
        self.informative_gamma: tuple[float, float] | None = None

    def solve(self, messages: Mapping[str, Statistics]) -> WarmStartReply:
        """Return W from the statistics of all clients."""
        statistics = {name: self._statistics(message) for name, message in messages.items()}
        target = statistics.pop(self.target)
        problem = pooled_problem(list(statistics.values()), target, torch.float32)
        self.informative_gamma = problem.informative_gamma_range(self.dim)
        return WarmStartReply(problem.solve(self.gamma, self.dim).aligner.float().numpy(), True)

    def begin(self, sums: Mapping[str, Product]) -> WarmStartReply:
        """Return the first basis, from counts and sums."""
        means = {name: (message.count, torch.tensor(message.values) / message.count) for name, message in sums.items()}
        target = means.pop(self.target)
        self.iteration = SubspaceIteration(list(means.values()), target, self.dim, self.seed, torch.float32)
        return WarmStartReply(self.iteration.basis.numpy(), False)

    def advance(self, products: Mapping[str, Product], step: int) -> WarmStartReply:
        """Return the next basis, or W if the iteration has converged."""
        iteration = self.iteration
        assert iteration is not None
        iteration.update(torch.stack([torch.tensor(message.values) for message in products.values()]).sum(0))
        if iteration.residual(self.gamma) > TOLERANCE and step < MAX_STEPS and iteration.basis.shape[1]:
            return WarmStartReply(iteration.basis.numpy(), False)
        self.informative_gamma = iteration.informative_gamma_range()
        return WarmStartReply(iteration.solution(self.gamma).aligner.float().numpy(), True)

    @staticmethod
    def _statistics(message: Statistics) -> DomainStatistics:
        values = torch.tensor(message.values)
        return DomainStatistics(message.count, values[0].double(), values[1:])
