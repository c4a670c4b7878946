"""The LightningModule of a client: extractor G → unit norm → random features → aligner W_RF → unit norm → classifier C.

Optimisation is manual, because one batch is one round: random features first, then the exchange with the peers, which
may replace W and C, and only then the loss and the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils import parameters_to_vector

from fedrf.config import HIDDEN
from fedrf.features import RandomFourierFeatures


class Batch(NamedTuple):
    """Samples of one round, already through the fixed trunk of the extractor; the target has no labels."""

    round: int
    rows: Tensor
    inputs: Tensor
    labels: Tensor | None


class Round(Protocol):
    """What a client does with a batch; `fedrf.client` has the one implementation."""

    def __call__(self, model: DomainModel, batch: Batch) -> None:
        """Play one round."""


def make_classifier(kind: str, dim: int, num_classes: int) -> nn.Module:
    """Return a linear classifier, or the paper's two hidden layers."""
    if kind == "linear":
        return nn.Linear(dim, num_classes)
    return nn.Sequential(
        nn.Linear(dim, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, num_classes)
    )


class DomainModel(LightningModule):
    """One client's network, and the parts of it that can be sent.

    Attributes
    ----------
    adapter
        The part of G that can learn; what lies below it is `fedrf.trunk`'s.
    adapter_is_applied
        Whether the inputs have gone through the adapter already, because it does not learn.
    random_features
        Σ, equal at all clients.
    aligner
        W_RF, 2N × m, without bias.
    classifier
        C, on unit-norm aligned features times `scale`.
    """

    def __init__(
        self,
        adapter: nn.Module,
        random_features: RandomFourierFeatures,
        dim: int,
        num_classes: int,
        classifier: str = "linear",
        scale: float = 10.0,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.adapter, self.adapter_is_applied = adapter, False
        self.random_features = random_features
        size = random_features.out_features
        self.aligner = nn.Parameter(torch.randn(size, dim) / size**0.5)
        self.classifier = make_classifier(classifier, dim, num_classes)
        self.scale, self.num_classes = scale, num_classes
        self.play_round: Round | None = None
        self.make_optimizers: Callable[[DomainModel], list[torch.optim.Optimizer]] | None = None

    def features(self, trunk: Tensor) -> Tensor:
        """Σ: random features of samples that went through the trunk."""
        extracted = trunk if self.adapter_is_applied else self.adapter(trunk)
        features: Tensor = self.random_features(normalize(extracted))
        return features

    def align(self, features: Tensor) -> Tensor:
        """Map random features to unit-norm aligned features."""
        return normalize(features @ self.aligner)

    def logits(self, features: Tensor) -> Tensor:
        """Classify random features."""
        logits: Tensor = self.classifier(self.scale * self.align(features))
        return logits

    def forward(self, trunk: Tensor) -> Tensor:
        """Classify samples that went through the trunk."""
        return self.logits(self.features(trunk))

    def parts(self) -> dict[str, list[nn.Parameter]]:
        """Return what can be sent, by the kind of message that carries it."""
        return {
            "aligner": [self.aligner],
            "classifier": list(self.classifier.parameters()),
            "extractor": list(self.adapter.parameters()),
        }

    @torch.no_grad()
    def get_part(self, kind: str) -> Tensor:
        """Copy one part: W as a matrix, others as one vector."""
        if kind == "aligner":
            return self.aligner.detach().to("cpu", torch.float32, copy=True)
        return parameters_to_vector(self.parts()[kind]).to("cpu", torch.float32)

    @torch.no_grad()
    def set_part(self, kind: str, values: Tensor) -> None:
        """Load one part; the optimiser's memory stays."""
        parameters = self.parts()[kind]
        pieces = values.reshape(-1).split([parameter.numel() for parameter in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.copy_(piece.view_as(parameter))

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        """Play one round."""
        assert self.play_round is not None
        self.play_round(self, batch)

    def step(self, loss: Tensor, which: int = 0) -> None:
        """Take one step of one of the optimisers against the loss."""
        optimizers = self.optimizers()
        optimizer = optimizers[which] if isinstance(optimizers, list) else optimizers
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Return the optimisers that the client chose."""
        return self.make_optimizers(self) if self.make_optimizers else []

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Move the tensors of a batch."""
        labels = batch.labels.to(device) if batch.labels is not None else None
        return batch._replace(inputs=batch.inputs.to(device), labels=labels)
