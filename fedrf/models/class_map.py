"""Aligner and classifier from a linear map of random features to class scores."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedrf.models.network import DomainModel


@torch.no_grad()
def set_class_map(model: DomainModel, class_map: Tensor, mean: Tensor) -> None:
    """Set W and C so that the logits of random features f are `scale` · (f − mean) M.

    M = USVᵀ is split into W = US and C = V. Aligned features are then class scores in other coordinates, with the same
    distances and angles. If there are fewer components than classes, the smallest singular values are left out. The
    network becomes linear in f: aligned features are no longer scaled to unit norm.

    Parameters
    ----------
    class_map
        M, 2N × classes.
    mean
        Mean of the random features of this client (2N): it is removed by the bias of C.
    """
    classifier = model.classifier
    if not isinstance(classifier, nn.Linear):
        raise ValueError("a map to class scores needs a linear classifier")
    left, values, right = torch.linalg.svd(class_map.double(), full_matrices=False)
    count = min(len(values), model.aligner.shape[1])
    aligner = left[:, :count] * values[:count]
    model.aligner.zero_()
    classifier.weight.zero_()
    model.aligner[:, :count].copy_(aligner)
    classifier.weight[:, :count].copy_(right[:count].T)
    classifier.bias.copy_(-model.scale * (mean.to(aligner) @ aligner) @ right[:count])
    model.unit_norm = False
