"""The parts of a network that are sent and averaged: aligner, classifier, extractor and auxiliary network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector

if TYPE_CHECKING:
    from fedrf.models.network import DomainModel

# Prefix of the parameters of each part; of the extractor only the adapter is sent.
PREFIXES = {"classifier": "classifier", "extractor": "extractor.adapter", "auxiliary": "auxiliary"}


def named_parts(model: DomainModel) -> dict[str, dict[str, nn.Parameter]]:
    """Return the parameters of each part, by their names in the model."""
    return {"aligner": {"aligner": model.aligner}} | {
        part: {f"{prefix}.{name}": parameter for name, parameter in model.get_submodule(prefix).named_parameters()}
        for part, prefix in PREFIXES.items()
    }


def parameters_of(model: DomainModel, part: str) -> list[nn.Parameter]:
    """Return the parameters of one part."""
    return list(named_parts(model)[part].values())


@torch.no_grad()
def get_part(model: DomainModel, part: str) -> Tensor:
    """Copy one part: W as a matrix, others as one vector."""
    if part == "aligner":
        return model.aligner.detach().to("cpu", torch.float32, copy=True)
    return parameters_to_vector(parameters_of(model, part)).to("cpu", torch.float32)


@torch.no_grad()
def set_part(model: DomainModel, part: str, values: Tensor) -> None:
    """Load one part; the state of optimisers stays."""
    parameters = parameters_of(model, part)
    pieces = values.reshape(-1).split([parameter.numel() for parameter in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.copy_(piece.view_as(parameter))


@torch.no_grad()
def outputs_with(model: DomainModel, parts: Mapping[str, Tensor], inputs: Tensor, output: str = "logits") -> Tensor:
    """Return the outputs of the network with other parts; its own parts do not change."""
    names = named_parts(model)
    replaced: dict[str, Tensor] = {}
    for part, values in parts.items():
        pieces = values.to(inputs.device).reshape(-1).split([value.numel() for value in names[part].values()])
        replaced |= {
            name: piece.view_as(parameter) for (name, parameter), piece in zip(names[part].items(), pieces, strict=True)
        }
    outputs: Tensor = functional_call(model, replaced, (inputs, output))
    return outputs
