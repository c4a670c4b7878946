"""Estimators in the pipelines of skada, which pass the domains, and with its scorers, which need no target labels."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate

skada = pytest.importorskip("skada")
from skada import make_da_pipeline  # noqa: E402
from skada.datasets import make_shifted_datasets  # noqa: E402
from skada.metrics import PredictionEntropyScorer  # noqa: E402
from skada.model_selection import SourceTargetShuffleSplit  # noqa: E402

from tests.estimators.cases import every_estimator, small  # noqa: E402


@every_estimator
def test_pipeline_and_scorer(name):
    X, y, domain = make_shifted_datasets(20, 20, shift="covariate_shift", random_state=0)
    settings = {"dim": 16, "steps": 200} if name == "dann" else {"dim": 2}
    pipeline = make_da_pipeline(small(name, **settings), LogisticRegression())
    pipeline.fit(X, y.copy(), sample_domain=domain)  # skada masks the target labels in place
    target = domain < 0
    assert np.mean(pipeline.predict(X[target]) == y[target]) > 0.7
    scores = cross_validate(
        pipeline,
        X,
        y,
        params={"sample_domain": domain},
        cv=SourceTargetShuffleSplit(n_splits=2, test_size=0.3, random_state=0),
        scoring=PredictionEntropyScorer(),
        error_score="raise",
    )["test_score"]
    assert np.isfinite(scores).all()
