"""Extractors G: a frozen trunk, and an adapter on top of it that can learn."""

from __future__ import annotations

from copy import deepcopy

from torch import Tensor, nn

from fedrf.models.extractors.layers import ResidualBlock
from fedrf.models.extractors.preparation import Preparation


class Extractor(nn.Module):
    """G: preparation of images, a frozen `trunk`, and a learnable `adapter` on its outputs.

    Parameters
    ----------
    trunk, adapter
        The layers.
    out_features
        Number of features of a sample.
    prepare
        From an image to the array that the trunk takes. None: samples are used as they are.
    """

    def __init__(
        self, trunk: nn.Module, adapter: nn.Module, out_features: int, prepare: Preparation | None = None
    ) -> None:
        super().__init__()
        self.trunk, self.adapter, self.out_features, self.prepare = trunk, adapter, out_features, prepare

    def forward(self, x: Tensor) -> Tensor:
        """Map samples to features."""
        features: Tensor = self.adapter(self.trunk(x))
        return features

    def frozen_layers(self) -> nn.Module:
        """Return the layers whose outputs can be cached if the adapter is not trained either."""
        if isinstance(self.adapter, ResidualBlock) and self.adapter.is_identity:
            return self.trunk
        return nn.Sequential(self.trunk, deepcopy(self.adapter))  # a copy: the target may train its own later


class CachedExtractor(nn.Module):
    """The upper layers of an extractor whose lower layers have been computed for all samples.

    Attributes
    ----------
    adapter
        The learnable layers.
    adapter_is_applied
        Whether inputs are outputs of the adapter, and not of the trunk.
    """

    def __init__(self, adapter: nn.Module, out_features: int, adapter_is_applied: bool = False) -> None:
        super().__init__()
        self.adapter, self.out_features, self.adapter_is_applied = adapter, out_features, adapter_is_applied

    def forward(self, x: Tensor) -> Tensor:
        """Map cached outputs to features."""
        return x if self.adapter_is_applied else self.adapter(x)
