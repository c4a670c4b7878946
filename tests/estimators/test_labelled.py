"""Which labels the estimators read."""

import numpy as np
from sklearn.utils import get_tags

from fedrf.estimators import ESTIMATORS
from fedrf.estimators.labelled import LabelledAligner
from tests.estimators.cases import (
    align,
    every_estimator,
    labels_of,
    small,
)


@every_estimator
def test_labels_of_target_rows_are_never_read(name, domains):
    rows, domain = domains
    labels, target = labels_of(rows).astype(float), domain < 0
    expected = small(name).fit_transform(rows, labels, sample_domain=domain)
    for garbage in (-1, np.nan, np.inf, np.random.RandomState(0).randn(target.sum())):
        masked = labels.copy()
        masked[target] = garbage
        np.testing.assert_array_equal(small(name).fit_transform(rows, masked, sample_domain=domain), expected)
    objects = labels.astype(object)
    objects[target] = None
    objects[~target] = np.array(["no", "yes"])[labels[~target].astype(int)]
    np.testing.assert_array_equal(small(name).fit_transform(rows, objects, sample_domain=domain), expected)


@every_estimator
def test_labels_of_source_rows_are_read_only_by_labelled_aligners(name, domains):
    rows, domain = domains
    other = np.random.RandomState(0).permutation(labels_of(rows))
    same = np.array_equal(
        align(small(name, gamma=1.0), rows, domain),
        small(name, gamma=1.0).fit_transform(rows, other, sample_domain=domain),
    )
    assert same != issubclass(ESTIMATORS[name], LabelledAligner)
    assert get_tags(small(name)).target_tags.required != same
