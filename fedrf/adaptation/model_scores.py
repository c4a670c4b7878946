"""Scores without target labels that need the network and the samples, not only predictions.

They take longer than the other scores. They are computed after the last round, and in each evaluation only if
`track.select` names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedrf.adaptation.evaluation import PREDICTION_BATCH, Figures
from fedrf.adaptation.scores import evenly
from fedrf.data.partition import Integers
from fedrf.models.network import DomainModel
from fedrf.models.trunk_rows import TrunkRows

MIXING = 0.55  # share of the first sample of a pair, as in Hu et al.


def class_agreement(model: DomainModel, rows: TrunkRows, positions: Integers, predicted: Tensor) -> float:
    """Return the adjusted mutual information between predictions and k-means clusters of the aligned features.

    There are as many clusters as classes. Aligned features are centred and have unit norm.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_mutual_info_score

    pieces = rows.pieces(positions, PREDICTION_BATCH)
    aligned = torch.cat([model(piece.to(model.device), "aligned").cpu() for piece in pieces])
    features = normalize(aligned - aligned.mean(0)).numpy()
    if not np.isfinite(features).all():
        return float("nan")
    clusters = KMeans(min(model.num_classes, len(features)), n_init=1, random_state=0).fit_predict(features)
    return float(adjusted_mutual_info_score(predicted.numpy(), clusters))


def mixed_consistency(model: DomainModel, rows: TrunkRows, positions: Integers, predicted: Tensor) -> float:
    """Return how often a mixture of two samples gets the label of the one with the larger share.

    It is the mean of the shares of consistent mixtures among pairs with the same predicted class and among pairs with
    different ones. Mixtures are made of what the adapter takes: outputs of the fixed part of the extractor.
    """
    other = np.random.RandomState(0).permutation(len(positions))
    pairs = (rows.pieces(order, PREDICTION_BATCH) for order in (positions, positions[other]))
    mixed = (MIXING * first + (1 - MIXING) * second for first, second in zip(*pairs, strict=True))
    labels = torch.cat([model(inputs.to(model.device)).argmax(1).cpu() for inputs in mixed])
    is_consistent, is_same = labels == predicted, predicted == predicted[torch.from_numpy(other)]
    shares = [is_consistent[chosen].double().mean() for chosen in (is_same, ~is_same) if chosen.any()]
    return float(torch.stack(shares).mean())


MODEL_SCORES: dict[str, Callable[[DomainModel, TrunkRows, Integers, Tensor], float]] = {
    "classami": class_agreement,
    "mixval": mixed_consistency,
}


@torch.no_grad()
def model_scores(model: DomainModel, rows: TrunkRows, probabilities: Tensor, names: Iterable[str]) -> Figures:
    """Return some of the scores, of at most 2,048 evenly spaced samples."""
    positions = evenly(len(rows))
    predicted = probabilities.argmax(1).cpu()[torch.from_numpy(positions)]
    with model.population_statistics(lambda: rows.split(PREDICTION_BATCH)):
        return {name: MODEL_SCORES[name](model, rows, positions, predicted) for name in names}
