"""The LightningModule of a client: extractor G → unit norm → random features → aligner W_RF → unit norm → classifier C.

Random features may be left out, aligned ones standardised, and a method may add a companion of its own.

Optimisation is manual, because one batch is one round: random features first, then the exchange with the peers, which
may replace W and C, and only then the loss and the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import normalize
from torch.nn.utils import parameters_to_vector

from fedrf.config.schema import HIDDEN
from fedrf.models.normalization import DomainNormalization
from fedrf.tca.random_features import RandomFourierFeatures


class Batch(NamedTuple):
    """Samples of one round, already through the fixed trunk of the extractor; the target has no labels.

    `foreign` are inputs from the target, where data are pooled.
    """

    round: int
    rows: Tensor
    inputs: Tensor
    labels: Tensor | None
    foreign: Tensor | None = None


class Round(Protocol):
    """What a client does with a batch; `fedrf.federation.client` has the one implementation."""

    def __call__(self, model: DomainModel, batch: Batch) -> None:
        """Play one round."""


def make_classifier(kind: str, dim: int, num_classes: int) -> nn.Module:
    """Return a linear classifier, or the paper's two hidden layers."""
    if kind == "linear":
        return nn.Linear(dim, num_classes)
    return nn.Sequential(
        nn.Linear(dim, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, num_classes)
    )


class NoRandomFeatures(nn.Identity):
    """Stands where random features would: features are those of the extractor, with unit norm."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.out_features = in_features


class DomainModel(LightningModule):
    """One client's network, and the parts of it that can be sent.

    Attributes
    ----------
    adapter
        The part of G that can learn; what lies below it is `fedrf.models.trunk`'s.
    adapter_is_applied
        Whether the inputs have gone through the adapter already, because it does not learn.
    random_features
        Σ, equal at all clients; or nothing, and features are those of G.
    aligner
        W_RF, 2N × m, without bias.
    normalization
        Of aligned features, or None.
    companion
        What a method adds: discriminators, say.
    classifier
        C, on unit-norm aligned features times `scale`.
    """

    def __init__(
        self,
        adapter: nn.Module,
        random_features: RandomFourierFeatures | NoRandomFeatures,
        dim: int,
        num_classes: int,
        classifier: str = "linear",
        scale: float = 10.0,
        normalization: str = "none",
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.adapter, self.adapter_is_applied = adapter, False
        self.random_features = random_features
        size = random_features.out_features
        self.aligner = nn.Parameter(torch.randn(size, dim) / size**0.5)
        self.classifier = make_classifier(classifier, dim, num_classes)
        self.normalization = DomainNormalization(dim) if normalization == "batch" else None
        self.companion: nn.Module = nn.Identity()
        self.scale, self.num_classes = scale, num_classes
        self.play_round: Round | None = None
        self.round_optimizers: tuple[int, ...] = (0,)
        self.make_optimizers: Callable[[DomainModel], list[torch.optim.Optimizer]] | None = None

    def adopt(self, companion: nn.Module) -> None:
        """Take in what a method adds; one that knows a `share` tells it to the normalisation."""
        self.companion = companion
        if self.normalization is not None:
            self.normalization.share = getattr(companion, "share", None)

    def features(self, trunk: Tensor) -> Tensor:
        """Σ: random features of samples that went through the trunk."""
        extracted = trunk if self.adapter_is_applied else self.adapter(trunk)
        features: Tensor = self.random_features(normalize(extracted))
        return features

    def align(self, features: Tensor) -> Tensor:
        """Map random features to unit-norm aligned features."""
        aligned = features @ self.aligner
        return normalize(aligned if self.normalization is None else self.normalization(aligned))

    def logits(self, features: Tensor) -> Tensor:
        """Classify random features."""
        logits: Tensor = self.classifier(self.scale * self.align(features))
        return logits

    def forward(self, trunk: Tensor, wanted: str = "logits") -> Tensor:
        """Classify samples that went through the trunk; or, where `wanted` is ``aligned``, only align them."""
        features = self.features(trunk)
        return self.logits(features) if wanted == "logits" else self.align(features)

    def parts(self) -> dict[str, list[nn.Parameter]]:
        """Return what can be sent, by the kind of message that carries it."""
        return {kind: list(named.values()) for kind, named in self._named_parts().items()}

    def _named_parts(self) -> dict[str, dict[str, nn.Parameter]]:
        places = {"classifier": "classifier", "extractor": "adapter", "companion": "companion"}
        return {"aligner": {"aligner": self.aligner}} | {
            kind: {f"{place}.{name}": one for name, one in getattr(self, place).named_parameters()}
            for kind, place in places.items()
        }

    @torch.no_grad()
    def seen_with(self, parts: Mapping[str, Tensor], inputs: Tensor, wanted: str = "logits") -> Tensor:
        """Return what the network would give with other parts, leaving its own alone."""
        names = self._named_parts()
        swapped: dict[str, Tensor] = {}
        for kind, values in parts.items():
            pieces = values.to(inputs.device).reshape(-1).split([one.numel() for one in names[kind].values()])
            swapped |= {
                name: piece.view_as(one) for (name, one), piece in zip(names[kind].items(), pieces, strict=True)
            }
        given: Tensor = functional_call(self, swapped, (inputs, wanted))
        return given

    @contextmanager
    def settled(self, pieces: Callable[[], Iterable[Tensor]]) -> Iterator[None]:
        """Use statistics of all samples, which come through the trunk in pieces, where aligned ones are normalised."""
        if self.normalization is None or self.normalization.use_population:
            yield
            return
        with torch.no_grad():
            self.normalization.fit_population(self.features(rows.to(self.device)) @ self.aligner for rows in pieces())
        self.normalization.use_population = True
        try:
            yield
        finally:
            self.normalization.use_population = False

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

    def step(self, loss: Tensor, *which: int) -> None:
        """Take one step against the loss: of the optimisers for the rounds, or of those at these places."""
        found = self.optimizers()
        every = found if isinstance(found, list) else [found]
        optimizers = [every[place] for place in which or self.round_optimizers]
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in optimizers:
            optimizer.step()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """Return the optimisers that the client chose."""
        return self.make_optimizers(self) if self.make_optimizers else []

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Move the tensors of a batch."""
        labels = batch.labels.to(device) if batch.labels is not None else None
        foreign = batch.foreign.to(device) if batch.foreign is not None else None
        return batch._replace(inputs=batch.inputs.to(device), labels=labels, foreign=foreign)
