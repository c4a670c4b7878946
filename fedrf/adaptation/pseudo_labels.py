"""Labels that the target guesses for its own samples, from up to three views of them.

`aligned`: the nearest class centre, by cosine, in the aligned space, where the sources' labels are heard. `own`: the
same among features of the fixed part of G, whitened, where the target's own classes lie apart if G knows them.
`neighbours`: the vote of the nearest samples there. The last two see what alignment has lost, or nothing at all where G
was made for something else. So each is trusted as far as its guesses agree with the aligned ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

REFINEMENTS = 10
SHARPNESS = 20.0  # logits for each unit of cosine
OWN_SHARPNESS = 40.0  # whitened rows have smaller cosines
SURE = 0.5  # trust in the own view from which on
QUIET = 0.6  # of its sharpness is left to the aligned view,
FIRST = 0.25  # and of all sharpness to the first refinement, from where it grows evenly
VOTES = 2.0  # power of the share of votes
DOUBT = 0.02  # added to shares of votes, so that five neighbours forbid nothing
NEIGHBOURS = 5
LARGEST = 4096  # side of the matrix whose eigenvectors are sought
CANDIDATES = 8192  # at most, for neighbours: time grows with n and not with n²
ROWS = 1024

Opinion = Callable[[Tensor], Tensor]


class OwnView(NamedTuple):
    """What the fixed part of G knows of the samples: rows of norm 1, and the nearest others of each."""

    rows: Tensor
    nearest: Tensor

    @classmethod
    def of(cls, rows: Tensor, num_classes: int) -> OwnView | None:
        """Return the view of some features; None where there are too few samples for one, or too much to decompose."""
        if len(rows) <= NEIGHBOURS or min(rows.shape) > LARGEST:
            return None
        whitened = normalize(whiten(rows, num_classes))
        return cls(whitened, neighbours(whitened))


@torch.no_grad()
def pseudo_labels(probabilities: Tensor, aligned: Tensor, own: OwnView | None = None) -> Tensor:
    """Return a label for each sample.

    Parameters
    ----------
    probabilities
        What the classifier predicts, (n, classes).
    aligned
        Rows in the aligned space.
    own
        Without it, the aligned view decides alone.
    """
    aligned = _centred(aligned)

    def aligned_view(guesses: Tensor) -> Tensor:
        return SHARPNESS * _to_centres(aligned, guesses)

    guesses = _refine(probabilities, aligned_view)
    if own is None:
        return guesses.argmax(1)

    def own_view(guesses: Tensor) -> Tensor:
        return OWN_SHARPNESS * _to_centres(own.rows, guesses)

    def neighbours_view(guesses: Tensor) -> Tensor:
        return VOTES * (_votes(guesses, own.nearest) + DOUBT).log()

    in_own = trust(guesses, _refine(probabilities, own_view))
    in_neighbours = trust(guesses, _votes(guesses, own.nearest))

    # Soft guesses let large classes draw all centres to them: only with a view that keeps classes apart.
    quiet, first = (QUIET, FIRST) if in_own >= SURE else (1.0, 1.0)

    def all_views(guesses: Tensor) -> Tensor:
        others = in_own * own_view(guesses) + in_neighbours * neighbours_view(guesses)
        return quiet * aligned_view(guesses) + others

    return _refine(probabilities, all_views, first).argmax(1)


def trust(guesses: Tensor, others: Tensor) -> float:
    """Return the agreement of two views from 0, at most half of the labels are the same, to 1, all are."""
    agreement = (guesses.argmax(1) == others.argmax(1)).float().mean()
    return max(0.0, 2 * float(agreement) - 1)


def neighbours(rows: Tensor) -> Tensor:
    """Return the most similar other rows of each, (n, NEIGHBOURS), from all or from evenly chosen candidates."""
    count = min(len(rows), CANDIDATES)
    candidates = torch.arange(count, device=rows.device) * len(rows) // count
    chosen, found = rows[candidates], []
    for start in range(0, len(rows), ROWS):
        block = rows[start : start + ROWS]
        itself = torch.arange(start, start + len(block), device=rows.device)[:, None] == candidates
        similar = (block @ chosen.T).masked_fill_(itself, -torch.inf)
        found.append(candidates[similar.topk(NEIGHBOURS, dim=1).indices])
    return torch.cat(found)


def whiten(rows: Tensor, num_classes: int) -> Tensor:
    """Return rows in which no direction drowns the others: principal components over √(variance + λ), centred.

    Few large components tell how pictures were taken; classes differ in many smaller ones. k classes span at most
    k - 1 directions, so that λ is the k-th variance: what is much smaller is noise, and stays small.
    """
    centred, count = rows - rows.mean(0), len(rows)
    is_wide = count < rows.shape[1]
    gram = (centred @ centred.T if is_wide else centred.T @ centred) / count
    # On the CPU, because not every accelerator can.
    values, vectors = torch.linalg.eigh(gram.cpu())
    variances, vectors = values.clamp(min=0).to(rows), vectors.to(rows)
    # Few samples have fewer directions of their own, and the rest of them is noise.
    floor = variances[-min(num_classes, max(1, count // 4), len(variances))]
    scales = (variances + floor + torch.finfo(rows.dtype).tiny).rsqrt()
    whitened: Tensor = vectors * (count * variances).sqrt() * scales if is_wide else centred @ (vectors * scales)
    return whitened


def _centred(rows: Tensor) -> Tensor:
    """Return rows of norm 1, without what all have in common: it would make all centres alike."""
    return normalize(rows - rows.mean(0))


def _votes(guesses: Tensor, nearest: Tensor) -> Tensor:
    """Return the mean guess of each row's neighbours; one neighbour after the other, to save memory."""
    votes = torch.zeros_like(guesses)
    for one in nearest.T:
        votes += guesses[one]
    return votes / nearest.shape[1]


def _to_centres(rows: Tensor, guesses: Tensor) -> Tensor:
    """Return the cosine of each row with the centre of each class, as now guessed."""
    return rows @ normalize(guesses.T @ rows).T


def _refine(guesses: Tensor, opinion: Opinion, first: float = 1.0) -> Tensor:
    """Guess again from what the last guesses say; softly at `first`, because what is decided early is seldom undone."""
    for sharpness in torch.linspace(first, 1, REFINEMENTS).tolist():
        guesses = (sharpness * opinion(guesses)).softmax(1)
    return guesses
