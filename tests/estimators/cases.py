"""Quick estimators, their labels, and markers that run a test for every estimator of the registry."""

import numpy as np
import pytest

from fedrf.estimators import ESTIMATORS, ComponentAligner
from fedrf.estimators.labelled import LabelledAligner

SMALL = {
    "rf-tca": {"dim": 3, "num_features": 20, "gamma": 0.01},
    "r-tca": {"dim": 3, "gamma": 0.01},
    "tca": {"dim": 3, "gamma": 0.01},
    "jda": {"dim": 3, "gamma": 0.01},
    "coral": {},
    "gfk": {"dim": 3},
    "sa": {"dim": 3},
    "dann": {"dim": 3, "steps": 10, "batch_size": 30},
}
WIDTHS = dict.fromkeys(SMALL, 3) | {"coral": 6, "gfk": 6}


def takes(name, *parameters):
    """Return whether the estimator has these parameters."""
    return set(parameters) <= set(ESTIMATORS[name]().get_params())


def small(name, **settings):
    """Return a quick estimator; settings that it does not have are ignored."""
    return ESTIMATORS[name](**SMALL[name] | {key: value for key, value in settings.items() if takes(name, key)})


def labels_of(rows):
    return (rows[:, 1] > np.median(rows[:, 1])).astype(int)


def fitted(name, rows, domain, **settings):
    return small(name, **settings).fit(rows, labels_of(rows), sample_domain=domain)


def align(estimator, rows, domain):
    return estimator.fit_transform(rows, labels_of(rows), sample_domain=domain)


every_estimator = pytest.mark.parametrize("name", ESTIMATORS)
every_component_aligner = pytest.mark.parametrize(
    "name", [name for name, estimator in ESTIMATORS.items() if issubclass(estimator, ComponentAligner)]
)
every_labelled_aligner = pytest.mark.parametrize(
    "name", [name for name, estimator in ESTIMATORS.items() if issubclass(estimator, LabelledAligner)]
)
