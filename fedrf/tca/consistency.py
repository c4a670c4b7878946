"""Sources whose statistics cannot be right, or contradict those of most others.

The coordinator tells from the statistics that it has (`fedrf.tca.source_statistics`), without a further message.

A source cannot be right if its Σℓ does not fit its covariance: random features have norm 1, so tr A + |Σℓ|² = 1
whatever the samples are. This bounds B too, because A contains the covariance between classes.

Two sources agree if the column of a class in one B points in the direction of the same class in the other: the sum of
the products of columns must be positive, and at least half of the largest sum that another matching of the classes has.
A source that changes signs, permutes labels or sends noise does not agree with the others. It is left out unless enough
others agree with it for a majority.

Two sources that disagree are both used, because nobody can tell which of them is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from fedrf.tca.source_statistics import FactoredStatistics, Matrix

TRACE_TOLERANCE = 0.01  # rounding to numbers of one byte causes about 0.0001
LEAST_AGREEMENT = 0.5
MAX_INFLUENCE_RATIO = 2.0
NO_MAJORITY = "its classes contradict those of most sources"
IMPOSSIBLE = "its covariance does not fit the norm of its Σℓ"


def suspects(statistics: Mapping[str, FactoredStatistics], mean_embeddings: Mapping[str, Matrix]) -> dict[str, str]:
    """Return the sources that are left out, with the reason.

    Parameters
    ----------
    statistics
        The statistics of each source.
    mean_embeddings
        Σℓ of each source.
    """
    impossible = [name for name, source in statistics.items() if not _is_possible(source, mean_embeddings[name])]
    rest = [name for name in statistics if name not in impossible]
    contradicted = dissenters([statistics[name].class_covariance for name in rest])
    return dict.fromkeys(impossible, IMPOSSIBLE) | {rest[position]: NO_MAJORITY for position in contradicted}


def _is_possible(source: FactoredStatistics, mean_embedding: Matrix) -> bool:
    trace = np.square(source.factor).sum() + source.rest * len(source.factor)
    return bool(abs(trace + np.square(mean_embedding, dtype=np.float64).sum() - 1) <= TRACE_TOLERANCE)


def agreements(class_covariances: Sequence[Matrix]) -> Matrix:
    """Return for all pairs of sources how well their classes match: at most 1.

    It is the sum of the products b_ic · b_jc over the classes c that both have, divided by the largest sum over all
    matchings of these classes; −1 if no matching has a positive sum, and not a number if there are fewer than two
    classes to match. A source has a class if its column is not 0.
    """
    from scipy.optimize import linear_sum_assignment

    count, classes = len(class_covariances), class_covariances[0].shape[1]
    columns = np.hstack(class_covariances)
    products = (columns.T @ columns).reshape(count, classes, count, classes)
    present = np.stack([matrix.any(axis=0) for matrix in class_covariances])
    result = np.eye(count)
    for first, second in combinations(range(count), 2):
        common = np.flatnonzero(present[first] & present[second])
        matched = products[first][:, second][np.ix_(common, common)]
        best = matched[linear_sum_assignment(matched, maximize=True)].sum()
        ratio = np.trace(matched) / best if best > 0 else -1.0
        result[first, second] = result[second, first] = ratio if len(common) > 1 else np.nan
    return result


def dissenters(class_covariances: Sequence[Matrix]) -> list[int]:
    """Return the positions of sources with which too few others agree for a majority, counted with the source itself.

    Who shares fewer than two classes with a source cannot tell. At least two others must be able to. If nobody has a
    majority, nobody is returned.
    """
    if len(class_covariances) < 3:
        return []
    matches = agreements(class_covariances)
    voters = np.isfinite(matches).sum(axis=1)
    supporters = (matches >= LEAST_AGREEMENT).sum(axis=1)
    outside = np.flatnonzero((voters >= 3) & (2 * supporters <= voters))
    return [int(position) for position in outside] if len(outside) < len(matches) else []


def bounded_weights(weights: Sequence[float], class_covariances: Sequence[Matrix]) -> list[float]:
    """Return weights in which no source dominates, if there are at least three.

    Neither w_i nor w_i · |B_i| is more than twice its median over the sources. Other weights stay as they are.
    """
    if len(weights) < 3:
        return list(weights)
    given, norms = np.array(weights), np.array([np.linalg.norm(matrix) for matrix in class_covariances])
    limit, share = (MAX_INFLUENCE_RATIO * np.median(values) for values in (given, given * norms))
    bounds = np.minimum(limit, np.divide(share, norms, out=np.full_like(norms, np.inf), where=norms > 0))
    return [float(weight) for weight in np.minimum(given, bounds)]
