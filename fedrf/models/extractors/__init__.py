"""Feature extractors G, one file each. `fedrf.config.registry.EXTRACTORS` finds them by name.

Nothing here imports torch: the configuration is checked against `BUILT_IN` before any network is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedrf.models.extractors.extractor import Extractor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ExtractorDefinition:
    """What is known of an extractor before it is built.

    Attributes
    ----------
    build
        Returns a new extractor for samples of a shape and for `model.weights`. The shape is that of one sample in
        memory, or None for image files of any size.
    takes_features
        Whether samples may be rows of features.
    is_learned
        Whether all its weights are random at first, so that it cannot be frozen.
    has_weights
        Whether `model.weights` applies to it.
    """

    build: Callable[[Shape | None, str], Extractor]
    takes_features: bool = False
    is_learned: bool = False
    has_weights: bool = False


def _built_by(function: str, *leading: str) -> Callable[[Shape | None, str], Extractor]:
    """Return a function that imports its builder, and torch with it, when it is called."""

    def build(shape: Shape | None, weights: str) -> Extractor:
        extractor: Extractor = getattr(import_module("fedrf.models.extractors.builders"), function)(
            *leading, shape, weights
        )
        return extractor

    return build


BUILT_IN = {
    "gradients": ExtractorDefinition(_built_by("build_gradients")),
    "cnn": ExtractorDefinition(_built_by("build_cnn"), is_learned=True),
    "mlp": ExtractorDefinition(_built_by("build_mlp"), takes_features=True, is_learned=True),
    "identity": ExtractorDefinition(_built_by("build_identity"), takes_features=True),
    **{
        name: ExtractorDefinition(_built_by("build_backbone", name), has_weights=True)
        for name in (
            "efficientnet-lite0",
            "efficientnet-lite0-plus",
            "efficientnet-lite0-small",
            "resnet18",
            "resnet50",
            "resnet101",
        )
    },
}


def accept(definition: object) -> ExtractorDefinition:
    """Return the definition of an extractor: itself, or made from a class or function that builds one."""
    if isinstance(definition, ExtractorDefinition):
        return definition
    if not callable(definition):
        raise ValueError(f"{definition!r} is neither a class of extractors nor a function that returns one")
    return ExtractorDefinition(
        definition,
        takes_features=bool(getattr(definition, "takes_features", False)),
        is_learned=bool(getattr(definition, "is_learned", False)),
        has_weights=bool(getattr(definition, "has_weights", False)),
    )
