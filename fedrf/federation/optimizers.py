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
    train = config.train
    # The aligner is always among the parts, because an optimiser needs a parameter even if nothing is trained.
    wanted = ("aligner", *schedule.trained)
    parts = {part: parameters_of(model, part) for part in ("aligner", "extractor", "classifier") if part in wanted}
    target_steps = METHODS.find(config.method).target_steps if schedule.is_target else None
    is_plain = target_steps is not None or train.optimizer == "sgd"
    factors = target_steps or dict.fromkeys(parts, PLAIN_STEP if is_plain else 1)
    rates = {part: train.lr * factors[part] for part in parts}
    if "extractor" in rates:
        rates["extractor"] *= train.extractor_lr_factor
    groups = [{"params": values, "lr": rates[part]} for part, values in parts.items() if values]
    kind = torch.optim.SGD if is_plain else torch.optim.Adam
    optimizers: list[torch.optim.Optimizer] = [kind(groups, lr=train.lr, fused=True)]
    if auxiliary := parameters_of(model, "auxiliary"):
        optimizers.append(torch.optim.Adam(auxiliary, lr=train.lr, fused=True))
    return optimizers
