"""Warnings about settings."""

import pytest

from fedrf.config.loader import load_config
from fedrf.config.registry import METHODS
from fedrf.experiment.resolve import warnings_about

# By what their files say is sent every round.
OF_BATCHES = {"fedrf-tca", "autodial", "f-dan", "f-dann", "fada", "fedka", "fda", "kd3a"}


@pytest.mark.parametrize("method", METHODS.built_in)
def test_methods_that_send_something_about_batches_give_one_warning(method):
    warnings = warnings_about(load_config(None, {"method": method}))
    assert len(warnings) == (method in OF_BATCHES)
    assert all("real sites need federation.private_batches=true" in text for text in warnings)
    assert warnings_about(load_config(None, {"method": method, "federation.private_batches": True})) == []


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"method": "fedrf-plus", "align.message": "running"}, "align.message=running: "),
        ({"method": "fda"}, "method=fda: "),
        ({"method": "fedrf-tca", "align.message": "exact"}, None),
        ({"method": "fedrf-tca", "federation.embeddings_from": "none"}, None),
        ({"method": "fedrf-oneshot", "align.message": "batch"}, None),  # it has no rounds
        ({"method": "fedavg", "align.message": "batch"}, None),  # it sends no Σℓ
    ],
)
def test_the_warning_names_the_setting(settings, named):
    warnings = warnings_about(load_config(None, settings))
    assert [text.startswith(named or "") for text in warnings] == [True] * (named is not None)
