"""The network of a client: extractor G → unit norm → random features → aligner W_RF → unit norm → classifier C.

`DomainModel` is a LightningModule that can be used alone: `Trainer.fit` on batches of samples and labels trains it, but
for frozen layers, by cross-entropy, and `Trainer.predict` returns class probabilities. `fedrf.federation.module` trains
it in rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from fedrf.config.schema import HIDDEN
from fedrf.models.extractors.extractor import CachedExtractor, Extractor
from fedrf.models.normalization import DomainNormalization
from fedrf.tca.random_features import RandomFourierFeatures


class Batch(NamedTuple):
    """Samples of one round; the target has no labels.

    Attributes
    ----------
    round
        The number of the round.
    rows
        Positions of the samples among those of the client.
    inputs
        The samples, or cached outputs of the frozen part of the extractor.
    labels
        Classes.
    target_inputs
        Samples of the target, for references that pool data.
    """

    round: int
    rows: Tensor
    inputs: Tensor
    labels: Tensor | None
    target_inputs: Tensor | None = None


def make_classifier(kind: str, dim: int, num_classes: int) -> nn.Module:
    """Return a linear classifier, or the paper's with two hidden layers (`mlp`)."""
    if kind == "linear":
        return nn.Linear(dim, num_classes)
    return nn.Sequential(
        nn.Linear(dim, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, num_classes)
    )


class NoRandomFeatures(nn.Identity):
    """Takes the place of random features in networks without: W maps the unit-norm features of the extractor."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.out_features = in_features


class DomainModel(LightningModule):
    """One client's network.

    Parameters
    ----------
    extractor
        G. A `CachedExtractor` takes outputs of the frozen layers instead of samples.
    random_features
        Σ, equal at all clients, or a placeholder in networks without.
    dim
        m, the number of aligned components.
    num_classes
        Number of classes.
    classifier
        ``linear`` or ``mlp``.
    scale
        Factor of the unit-norm aligned features before the classifier.
    normalizes
        Whether aligned features are standardised with the client's own statistics.
    lr
        Learning rate of `Trainer.fit` on labelled batches.

    Attributes
    ----------
    aligner
        W_RF, 2N × m.
    auxiliary
        Network that a method adds, such as discriminators.
    unit_norm
        Whether aligned features are scaled to unit norm.
    autocast
        The type in which the extractor computes what may be less precise; None: all in single precision. What follows
        is in single precision: random features have unit norm, and messages are sums of them.
    """

    def __init__(
        self,
        extractor: Extractor | CachedExtractor,
        random_features: RandomFourierFeatures | NoRandomFeatures,
        dim: int,
        num_classes: int,
        classifier: str = "linear",
        scale: float = 10.0,
        normalizes: bool = False,
        lr: float = 3e-3,
    ) -> None:
        super().__init__()
        self.extractor, self.random_features = extractor, random_features
        size = random_features.out_features
        self.aligner = nn.Parameter(torch.randn(size, dim) / size**0.5)
        self.classifier = make_classifier(classifier, dim, num_classes)
        self.normalization = DomainNormalization(dim) if normalizes else None
        self.auxiliary: nn.Module = nn.Identity()
        self.scale, self.num_classes, self.lr = scale, num_classes, lr
        self.unit_norm = True
        self.autocast: torch.dtype | None = None

    def add_auxiliary(self, network: nn.Module) -> None:
        """Add the network of a method; if it has a `share`, the normalisation mixes statistics by it."""
        if not isinstance(network, nn.Module):
            raise ValueError(f"auxiliary_network must return a torch.nn.Module; got {type(network).__name__}")
        self.auxiliary = network
        if self.normalization is not None:
            self.normalization.share = getattr(network, "share", None)

    def features(self, inputs: Tensor) -> Tensor:
        """Return Σ: the random features of samples."""
        features: Tensor = self.random_features(normalize(self._extract(inputs)))
        return features

    def _extract(self, inputs: Tensor) -> Tensor:
        if self.autocast is None:
            extracted: Tensor = self.extractor(inputs)
            return extracted
        with torch.autocast(inputs.device.type, self.autocast):
            extracted = self.extractor(inputs)
        return extracted.float()

    def align(self, features: Tensor) -> Tensor:
        """Map random features to aligned features, of unit norm unless W comes from a class map."""
        aligned = features @ self.aligner
        if not self.unit_norm:
            return aligned
        return normalize(aligned if self.normalization is None else self.normalization(aligned))

    def logits(self, features: Tensor) -> Tensor:
        """Classify random features."""
        logits: Tensor = self.classifier(self.scale * self.align(features))
        return logits

    def forward(self, inputs: Tensor, output: str = "logits") -> Tensor:
        """Return ``logits`` or ``aligned`` features of samples."""
        features = self.features(inputs)
        return self.logits(features) if output == "logits" else self.align(features)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:
        """Return the cross-entropy of a batch of samples and labels."""
        inputs, labels = batch
        return cross_entropy(self(inputs), labels)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the class probabilities of a batch of samples, with or without labels."""
        inputs = batch[0] if isinstance(batch, tuple | list) else batch
        probabilities: Tensor = self(inputs).softmax(1)
        return probabilities

    def configure_optimizers(self) -> Any:
        """Return Adam for all parameters that are not frozen."""
        return torch.optim.Adam((value for value in self.parameters() if value.requires_grad), lr=self.lr)

    @contextmanager
    def population_statistics(self, pieces: Callable[[], Iterable[Tensor]]) -> Iterator[None]:
        """Normalise by statistics of all samples, which `pieces` yields, instead of those of a batch."""
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
