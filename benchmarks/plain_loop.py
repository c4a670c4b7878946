"""The arithmetic of a federation in one plain loop: the floor that rounds are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.schema import Config
from fedrf.data.samples import Samples
from fedrf.federation.channel import Channel
from fedrf.federation.client import Client
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.storage import storage_of
from fedrf.models.parts import get_part, parameters_of, set_part
from fedrf.protocol.envelope import Reply
from fedrf.tca.mmd import proximal_step

WARM_UP = 10  # rounds that are not measured
PIECE = 1000  # samples


class PlainLoop:
    """Clients of fedrf-plus, one after the other on all cores, without Ray, Lightning and messages.

    Parameters
    ----------
    config
        The configuration, with Σℓ of all samples and a proximal step.
    sources, target
        The clients.
    load
        Returns the samples of a client.
    """

    def __init__(
        self, config: Config, sources: Sequence[str], target: str, load: Callable[[Config, str], Samples]
    ) -> None:
        self.config, self.sources, self.target = config, tuple(sources), target
        torch.set_num_threads(2)
        self.clients = {name: self._make_client(name, load(config, name)) for name in (*sources, target)}
        self.optimizers = {name: self._optimizer(name) for name in sources}
        means = {name: self._mean_embedding(client) for name, client in self.clients.items()}
        self.differences = {name: means[name] - means[target] for name in sources}
        self.discrepancies = torch.stack(list(self.differences.values()), dim=1)

    def _make_client(self, name: str, samples: Samples) -> Client:
        info = ClientInfo(name, self.sources, self.target, Path())
        evaluator = Evaluator(samples.labels)
        channel = Channel(info, lambda _: (1.0, Reply()), self.config.train.rounds)
        samples = samples.without_labels() if name == self.target else samples
        return Client(self.config, channel, samples, evaluator, storage_of(channel))

    def _optimizer(self, name: str) -> torch.optim.Optimizer:
        parts = [*self._parameters(name, "aligner"), *self._parameters(name, "classifier")]
        return torch.optim.Adam(parts, lr=self.config.train.lr, fused=True)

    def _parameters(self, name: str, part: str) -> list[torch.nn.Parameter]:
        return list(parameters_of(self.clients[name].module, part))

    @torch.no_grad()
    def _mean_embedding(self, client: Client) -> torch.Tensor:
        rows = client.module.samples.rows
        pieces = [client.module.features(rows[range(i, min(i + PIECE, len(rows)))]) for i in range(0, len(rows), PIECE)]
        return torch.cat(pieces).mean(0)

    def milliseconds(self) -> float:
        """Run all rounds; return the mean time of one."""
        for number in range(1, self.config.train.rounds + 1):
            if number == WARM_UP + 1:
                began = perf_counter()
            self._round(number)
        return 1000 * (perf_counter() - began) / (self.config.train.rounds - WARM_UP)

    def _round(self, number: int) -> None:
        federation, size = self.config.federation, self.config.train.batch_size
        for name in self.sources:
            self._source_step(name, self.clients[name].module.samples.batch(number, size))
        with torch.no_grad():
            target = self.clients[self.target].module
            target.features(target.samples.batch(number, size).inputs)
            if number % federation.aligner_interval == 0:
                self._average("aligner")
            if number % federation.classifier_interval == 0:
                self._average("classifier")

    def _source_step(self, name: str, batch: Any) -> None:
        module, optimizer = self.clients[name].module, self.optimizers[name]
        with torch.no_grad():
            features = module.features(batch.inputs)
        aligned = self.differences[name] @ module.aligner
        loss = torch.nn.functional.cross_entropy(module.logits(features), batch.labels, label_smoothing=0.1)
        optimizer.zero_grad()
        (loss + aligned.square().sum()).backward()
        optimizer.step()

    def _average(self, part: str) -> None:
        """Set a part of all clients to the mean of the sources, with the proximal step for the aligner."""
        mean = torch.stack([get_part(self.clients[name].module, part) for name in self.sources]).mean(0)
        if part == "aligner":
            mean = proximal_step(mean, self.discrepancies, self.config.align.gamma)
        for client in self.clients.values():
            set_part(client.module, part, mean)
