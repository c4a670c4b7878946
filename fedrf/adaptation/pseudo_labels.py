"""Pseudo-labels of the target's samples, from up to three views of them.

===========  =========================================================================================================
view         class scores of a sample
===========  =========================================================================================================
aligned      cosine similarity to the class centres in the aligned space, which depends on the sources' labels
own          cosine similarity to the class centres among whitened features of the fixed part of G
neighbours   vote of the nearest samples among those whitened features
===========  =========================================================================================================

The last two contain information that alignment may have lost. They are useless if G was trained for a different kind of
data. So the weight of each is its agreement with the aligned view.

Nearest centres assume classes of similar size. Where classes are unequal, the logarithm of the current share of each
class is added to its scores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from fedrf.tca.precision import where_float64

REFINEMENTS = 10
SHARPNESS = 20.0  # logit of cosine 1
OWN_SHARPNESS = 40.0  # larger, because whitened rows have smaller cosines
MIN_TRUST = 0.5  # in the own view, for the next two constants to apply
ALIGNED_WEIGHT = 0.6  # of the aligned view's logits
FIRST_SHARPNESS = 0.25  # factor of all logits in the first refinement; it grows linearly to 1
VOTE_POWER = 2.0
VOTE_SMOOTHING = 0.02  # added to shares of votes, so that no class has probability 0
SHARE_WEIGHT = 2.0  # of the logarithm of a class's share, if classes are unequal
MIN_SHARE = 1e-3  # relative to equal shares
NEIGHBOURS = 5
MAX_EIGEN_SIZE = 4096  # rows of the matrix whose eigenvectors are computed
MAX_CANDIDATES = 8192  # for neighbours: keeps the time linear in the number of samples
NEIGHBOUR_BLOCK = 1024  # rows of the similarity matrix that are in memory at a time

View = Callable[[Tensor], Tensor]  # from class probabilities to new logits


class OwnView(NamedTuple):
    """Features of the target's samples from the fixed part of G.

    Attributes
    ----------
    rows
        Whitened features of norm 1.
    nearest
        Positions of each sample's nearest neighbours, (n, NEIGHBOURS).
    """

    rows: Tensor
    nearest: Tensor

    @classmethod
    def of(cls, rows: Tensor, num_classes: int) -> OwnView | None:
        """Return the view of some features; None if there are too few samples, or too many rows and columns."""
        if len(rows) <= NEIGHBOURS or min(rows.shape) > MAX_EIGEN_SIZE:
            return None
        whitened = normalize(whiten(rows, num_classes))
        return cls(whitened, neighbours(whitened))


@torch.no_grad()
def pseudo_labels(probabilities: Tensor, aligned: Tensor, own: OwnView | None = None, imbalance: float = 0.0) -> Tensor:
    """Return a label for each sample.

    Parameters
    ----------
    probabilities
        Predictions of the classifier, (n, classes).
    aligned
        Aligned features.
    own
        None: only the aligned view is used.
    imbalance
        How unequal the classes are, from 0 to 1 (`class_shares.imbalance`).
    """
    aligned = _centred(aligned)

    def prior(guesses: Tensor) -> Tensor:
        relative_shares = (guesses.shape[1] * guesses.mean(0)).clamp(min=MIN_SHARE)
        return SHARE_WEIGHT * imbalance * relative_shares.log()

    def aligned_view(guesses: Tensor) -> Tensor:
        return SHARPNESS * _cosines_to_centres(aligned, guesses) + prior(guesses)

    guesses = _refine(probabilities, aligned_view)
    if own is None:
        return guesses.argmax(1)

    def own_view(guesses: Tensor) -> Tensor:
        return OWN_SHARPNESS * _cosines_to_centres(own.rows, guesses) + prior(guesses)

    def neighbours_view(guesses: Tensor) -> Tensor:
        return VOTE_POWER * (_votes(guesses, own.nearest) + VOTE_SMOOTHING).log()

    own_weight = trust(guesses, _refine(probabilities, own_view))
    neighbours_weight = trust(guesses, _votes(guesses, own.nearest))

    # Soft guesses pull all centres towards large classes, unless the own view keeps the classes apart.
    aligned_weight, first = (ALIGNED_WEIGHT, FIRST_SHARPNESS) if own_weight >= MIN_TRUST else (1.0, 1.0)

    def all_views(guesses: Tensor) -> Tensor:
        others = own_weight * own_view(guesses) + neighbours_weight * neighbours_view(guesses)
        return aligned_weight * aligned_view(guesses) + others

    return _refine(probabilities, all_views, first).argmax(1)


def support(labels: Tensor, own: OwnView, num_classes: int) -> float:
    """Return the share of samples whose label most of their neighbours have too."""
    votes = _votes(one_hot(labels, num_classes).to(own.rows), own.nearest)
    return float((votes.argmax(1) == labels).float().mean())


def trust(guesses: Tensor, other_guesses: Tensor) -> float:
    """Return the agreement of two views: 1 if all labels are equal, falling to 0 if half of them or fewer are."""
    agreement = (guesses.argmax(1) == other_guesses.argmax(1)).float().mean()
    return max(0.0, 2 * float(agreement) - 1)


def neighbours(rows: Tensor) -> Tensor:
    """Return the positions of the most similar other rows, (n, NEIGHBOURS), among at most MAX_CANDIDATES of them."""
    count = min(len(rows), MAX_CANDIDATES)
    candidates = torch.arange(count, device=rows.device) * len(rows) // count  # evenly spaced, of shuffled rows
    candidate_rows, nearest = rows[candidates], []
    for start in range(0, len(rows), NEIGHBOUR_BLOCK):
        block = rows[start : start + NEIGHBOUR_BLOCK]
        is_itself = torch.arange(start, start + len(block), device=rows.device)[:, None] == candidates
        similarities = (block @ candidate_rows.T).masked_fill_(is_itself, -torch.inf)
        nearest.append(candidates[similarities.topk(NEIGHBOURS, dim=1).indices])
    return torch.cat(nearest)


def whiten(rows: Tensor, num_classes: int) -> Tensor:
    """Return the principal components of the centred rows, each divided by √(variance + λ).

    A few large components describe how images were taken; classes differ in many smaller ones. The means of k classes
    span at most k - 1 directions. So λ is the k-th largest variance: components with a much smaller one are noise and
    stay small.
    """
    centred, count = rows - rows.mean(0), len(rows)
    is_wide = count < rows.shape[1]
    gram = (centred @ centred.T if is_wide else centred.T @ centred) / count
    values, vectors = torch.linalg.eigh(where_float64(gram))  # devices without float64 have no eigh either
    variances, vectors = values.clamp(min=0).to(rows), vectors.to(rows)
    # With few samples, only the largest variances are estimated well.
    floor = variances[-min(num_classes, max(1, count // 4), len(variances))]
    scales = (variances + floor + torch.finfo(rows.dtype).tiny).rsqrt()
    whitened: Tensor = vectors * (count * variances).sqrt() * scales if is_wide else centred @ (vectors * scales)
    return whitened


def _centred(rows: Tensor) -> Tensor:
    """Return centred rows of norm 1; without centring, the class centres would be similar to each other."""
    return normalize(rows - rows.mean(0))


def _votes(guesses: Tensor, nearest: Tensor) -> Tensor:
    """Return the mean guess of each row's neighbours; loops over the neighbours to save memory."""
    votes = torch.zeros_like(guesses)
    for neighbour in nearest.T:
        votes += guesses[neighbour]
    return votes / nearest.shape[1]


def _cosines_to_centres(rows: Tensor, guesses: Tensor) -> Tensor:
    """Return the cosine similarity of each row to each class centre, computed from the current guesses."""
    return rows @ normalize(guesses.T @ rows).T


def _refine(guesses: Tensor, view: View, first: float = 1.0) -> Tensor:
    """Compute guesses from the previous ones several times.

    Sharpness starts at `first`: with soft guesses, early mistakes can still be corrected.
    """
    for sharpness in torch.linspace(first, 1, REFINEMENTS).tolist():
        guesses = (sharpness * view(guesses)).softmax(1)
    return guesses
