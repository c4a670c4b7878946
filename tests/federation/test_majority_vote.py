"""The majority vote of source models."""

import pytest
import torch

from fedrf.adaptation.evaluation import figures_of, majority_vote
from fedrf.config.loader import load_config
from fedrf.models.parts import get_part
from tests.federation.recording import FIXED_SIGMA, SYNC, exchanges, new_client, run_recorded


def test_every_model_has_one_vote(tmp_path):
    """Three linear classifiers that always predict one class: two against one."""
    module = new_client(load_config(None, FIXED_SIGMA), "handwritten", tmp_path).module
    models = []
    for predicted in (3, 3, 7):
        classifier = torch.zeros(90)
        classifier[80 + predicted] = 5.0
        models.append({"classifier": classifier})
    before, seen = get_part(module, "classifier"), []
    shares = majority_vote(module, module.samples.rows, models)
    figures = figures_of(shares, lambda predicted: seen.append(predicted) or 0.5, "information")
    assert seen[0].unique().tolist() == [3]
    assert figures["accuracy"] == 0.5
    torch.testing.assert_close(get_part(module, "classifier"), before, rtol=0, atol=0)


@pytest.mark.parametrize("sharing", ["frozen", "local"])
def test_networks_that_vote_are_complete(tmp_path, sharing):
    """Source-only: the target must end with what the sources trained, extractor included."""
    _, calls = run_recorded({**SYNC, "method": "source-only", "model.sharing": sharing}, tmp_path / "run")
    parts = {
        frozenset(model)
        for envelope, reply in exchanges(calls)
        if envelope.phase == "source_models"
        for model in reply.source_models.values()
    }
    assert parts == {frozenset({"classifier", "aligner"} | ({"extractor"} if sharing != "frozen" else set()))}
