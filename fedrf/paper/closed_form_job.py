"""Jobs that align two domains in closed form and classify the target.

The paper searches σ and γ and reports the best accuracy on the target, which uses its labels: `oracle`. `accuracy` is
that of σ = median distance and γ = auto, which use no label.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrf.paper.plan import Job, job
from fedrf.paper.setting import Domains

GAMMAS = tuple(10.0**power for power in range(-3, 4))  # of the paper, in units of n / (n_source · n_target)
SIGMAS = tuple(float(sigma) for sigma in range(5, 16))  # of the paper, in tenths of the median distance
RANDOM = ("rf-tca", "dann")  # have a seed
TUNED = ("rf-tca", "r-tca", "tca")  # have γ and σ
CLASSIFIER, CLASSIFIER_SECONDS = "FCNN", 3.0


def alignment(
    data: Domains,
    pair: tuple[str, str],
    estimator: str,
    parameters: Mapping[str, Any],
    *,
    seed: int = 0,
    search: bool = False,
    root: str | None = None,
) -> Job:
    """Return the job of one pair of domains; `search` also tries the paper's grid of σ and γ.

    Estimators without random numbers ignore the seed.
    """
    search = search and estimator in TUNED
    settings = {
        "data": data.to(pair[1], [pair[0]]),
        "root": root,
        "estimator": estimator,
        "parameters": {**parameters, "random_state": seed} if estimator in RANDOM else dict(parameters),
        "search": search,
    }
    points = 1 + search * len(GAMMAS) * len(SIGMAS)
    return job(f"{__name__}:run_alignment", settings, 2 + points * CLASSIFIER_SECONDS)


def gamma_path(
    data: Domains, pair: tuple[str, str], estimator: str, powers: Sequence[str], root: str | None = None
) -> Job:
    """Return the job that aligns one pair for several γ, given as powers of ten; the classifier is an SVM."""
    settings = {
        "data": data.to(pair[1], [pair[0]]),
        "root": root,
        "estimator": estimator,
        "parameters": {"dim": 100},
        "powers": list(powers),
    }
    return job(f"{__name__}:run_gamma_path", settings, 5 + len(powers))


def run_alignment(settings: Mapping[str, Any], folder: Path, session: object) -> dict[str, float]:
    """Return `accuracy`, the `oracle` over the grid, and the `seconds` of one alignment."""
    from fedrf.estimators import ESTIMATORS
    from fedrf.experiment.closed_form import accuracy, align_pair

    source, target = _pair(settings)
    parameters = dict(settings["parameters"])
    if settings["estimator"] in TUNED:
        parameters["gamma"] = "auto"
    pair = align_pair(source, target, ESTIMATORS[settings["estimator"]](**parameters))
    result = {"accuracy": accuracy(CLASSIFIER, pair.aligned_source, pair.aligned_target)}
    best = result["accuracy"]
    for sigma in SIGMAS if settings["search"] else ():
        width = pair.aligner.sigma_ * sigma / 10
        fitted = align_pair(source, target, ESTIMATORS[settings["estimator"]](**parameters | {"sigma": width}))
        for aligned in _path(fitted.aligner, source, target, GAMMAS):
            best = max(best, accuracy(CLASSIFIER, *aligned))
    return result | {"oracle": best, "seconds": pair.seconds}


def run_gamma_path(settings: Mapping[str, Any], folder: Path, session: object) -> dict[str, float]:
    """Return the accuracy for each power of ten, and the ends `low` and `high` of the informative interval, as powers.

    γ is in units of n / (n_source · n_target), as in the paper.
    """
    from fedrf.estimators import ESTIMATORS
    from fedrf.experiment.closed_form import accuracy, align_pair

    source, target = _pair(settings)
    fitted = align_pair(source, target, ESTIMATORS[settings["estimator"]](**settings["parameters"])).aligner
    powers = settings["powers"]
    aligned = _path(fitted, source, target, [10.0 ** float(power) for power in powers])
    result = {power: accuracy("SVM", *pair) for power, pair in zip(powers, aligned, strict=True)}
    low, high = np.log10(np.array(fitted.informative_gamma_range()) / _gamma_unit(source, target))
    return result | {"low": float(low), "high": float(high)}


def _path(aligner: Any, source: Any, target: Any, gammas: Sequence[float]) -> Iterator[tuple[Any, Any]]:
    """Yield both domains, aligned with each γ."""
    from fedrf.experiment.closed_form import stacked

    rows, domain = stacked(source, target)
    unit = _gamma_unit(source, target)
    for fitted in aligner.gamma_path([gamma * unit for gamma in gammas]):
        aligned = fitted.transform(rows, sample_domain=domain)
        yield source._replace(features=aligned[domain > 0]), target._replace(features=aligned[domain < 0])


def _gamma_unit(source: Any, target: Any) -> float:
    return 1 / len(source.features) + 1 / len(target.features)


def _pair(settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return features and labels of both domains."""
    from fedrf.data.feature_files import FeatureSet

    data = dict(settings["data"], **{"data.root": settings.get("root")})
    (source,), target = data["data.sources"], data["data.target"]
    text = json.dumps(data, sort_keys=True)
    return FeatureSet(*_features(text, source)), FeatureSet(*_features(text, target))


@lru_cache(maxsize=16)
def _features(text: str, domain: str) -> tuple[NDArray[Any], NDArray[Any]]:
    from fedrf.data.domains import load_samples
    from fedrf.experiment.resolve import resolve_config
    from fedrf.models.fixed_features import fixed_features

    config = resolve_config(None, json.loads(text))
    samples = load_samples(config, domain)
    if samples.labels is None:
        raise ValueError(f"{domain} has no labels to score with")
    return fixed_features(config, samples).numpy(), samples.labels
