"""Features of samples from the fixed part of an extractor, for methods in closed form."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedrf.config.registry import EXTRACTORS
from fedrf.config.schema import Config
from fedrf.data.samples import Samples
from fedrf.models.arithmetic import arithmetic
from fedrf.models.devices import choose_device
from fedrf.models.extractors.builders import make_extractor
from fedrf.models.trunk_rows import trunk_rows

PIECE = 1024  # rows that are normalised together


def fixed_features(
    config: Config, samples: Samples, progress: Callable[[int, int], None] = lambda done, total: None
) -> Tensor:
    """Return the output of the fixed part of the extractor for each sample, normalised to norm 1.

    `progress` is called with the number of samples that a backbone has processed, and their total.
    """
    settings = config.model
    if EXTRACTORS.find(settings.extractor).is_learned:
        raise ValueError(
            f"model.extractor={settings.extractor} has no fixed part, and methods in closed form do not train it; use "
            "identity, gradients or a backbone"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        extractor = make_extractor(settings.extractor, samples.content.shape, settings.weights)
    device, threads = choose_device(config.resources), torch.get_num_threads()
    layers = extractor.frozen_layers()
    with arithmetic(config, device.torch, warnings.warn):
        rows = trunk_rows(layers, extractor.prepare, samples.without_labels(), settings, device, threads, progress)
        return torch.cat([normalize(piece).cpu() for piece in rows.split(PIECE)])
