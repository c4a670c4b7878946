"""Optimisers of a client in the rounds."""

from __future__ import annotations

import torch

from fedrf.config.registry import METHODS
from fedrf.config.schema import Config
from fedrf.models.network import DomainModel
from fedrf.models.parts import parameters_of
from fedrf.protocol.schedule import Schedule

# Factor of `train.lr` for plain steps: Adam normalises gradients, plain steps do not.
PLAIN_STEP = 100


def round_optimizers(model: DomainModel, config: Config, schedule: Schedule) -> list[torch.optim.Optimizer]:
    """Return an optimiser for the parts that the client trains, and one for the auxiliary network if there is one."""
    lr = config.train.lr
    # The aligner is always among the parts, because an optimiser needs a parameter even if nothing is trained.
    wanted = ("aligner", *schedule.trained)
    parts = {part: parameters_of(model, part) for part in ("aligner", "extractor", "classifier") if part in wanted}
    target_steps = METHODS.find(config.method).target_steps if schedule.is_target else None
    if target_steps is not None or config.train.optimizer == "sgd":
        factors = dict.fromkeys(parts, PLAIN_STEP) if target_steps is None else target_steps
        groups = [{"params": values, "lr": factors[part] * lr} for part, values in parts.items() if values]
        optimizers: list[torch.optim.Optimizer] = [torch.optim.SGD(groups, fused=True)]
    else:
        parameters = [parameter for values in parts.values() for parameter in values]
        optimizers = [torch.optim.Adam(parameters, lr=lr, fused=True)]
    if auxiliary := parameters_of(model, "auxiliary"):
        optimizers.append(torch.optim.Adam(auxiliary, lr=lr, fused=True))
    return optimizers
