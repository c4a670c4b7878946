"""Mistakes in definitions from outside: each is one line that names the definition, and none is silent."""

import sys

import pytest

import fedrf
from fedrf.adaptation.selection import Score
from fedrf.config.loader import load_config
from fedrf.errors import RunFailedError
from tests.conftest import TINY

METHOD = """
import torch
from fedrf.methods.base import Method

class Mine(Method):
    target_trains = {trains}
    def {function}(self, model, batch, features, inbox, config):
        {body}
"""
DATASET = """
import numpy as np
from fedrf.data.content import Arrays
from fedrf.data.dataset import Dataset
from fedrf.data.samples import Samples

class Mine(Dataset):
    name = about = origin = "mine"
    content = "features"
    settings = {{"model.extractor": "identity"}}
    def domains(self, config): return {domains}
    def classes(self, config): return ("no", "yes")
    def locate(self, config, domain): return None
    def load(self, config, domain):
        rows, labels = np.random.RandomState(0).randn(40, 5), np.arange(40) % 2
        {body}
"""
SMALL = {**TINY, "train.rounds": 2, "adapt.when": "never", "federation.mode": "sync"}
_modules = iter(range(1000))


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes a module into the current directory and returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(text):
        name = f"mistake_{next(_modules)}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def error_of(overrides, tmp_path):
    with pytest.raises((ValueError, RunFailedError)) as error:
        fedrf.run(None, {**SMALL, **overrides}, out=tmp_path / "run", local=True)
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("trains", "function", "body", "complaint"),
    [
        ("()", "source_loss", "return None", "source_loss must return a dictionary of scalar tensors; got None"),
        ("()", "source_loss", "return {'loss': 1.0}", "source_loss must return a dictionary of scalar tensors"),
        ("()", "source_loss", "return {'loss': features}", "source_loss must return a dictionary of scalar tensors"),
        (
            "()",
            "source_loss",
            "return {'los': features.sum()}",
            "source_loss returned los; a source needs the",
        ),
        ("()", "source_loss", "return {'loss': torch.ones(())}", "source_loss returns a loss without a gradient"),
        ("()", "target_loss", "return {'loss': model.aligner.sum()}", "target_loss returns a loss, but target_trains"),
    ],
)
def test_mistakes_in_losses(write, tmp_path, trains, function, body, complaint):
    name = write(METHOD.format(trains=trains, function=function, body=body))
    assert f"method={name}:Mine: {complaint}" in error_of({"method": f"{name}:Mine"}, tmp_path)
    assert "Traceback" in (tmp_path / "run/run.log").read_text()


def test_an_average_of_another_shape(write, tmp_path):
    text = METHOD.format(trains="()", function="target_loss", body="return {}")
    name = write(text + "    def after_average(self, part, average, sources, target, config): return average[:1]\n")
    assert f"method={name}:Mine: after_average must return shape (60, 8); got (1, 8)" in error_of(
        {"method": f"{name}:Mine", "federation.aligner_interval": 1}, tmp_path
    )


@pytest.mark.parametrize(
    ("domains", "body", "complaint"),
    [
        ("('a', 'b')", "return rows, labels", "Mine.load returned tuple; expected fedrf.data.samples.Samples"),
        ("('a', 'b')", "raise KeyError('x')", "Mine.load failed (KeyError: 'x')"),
        ("('a', 'b')", "return Samples.all_of(Arrays(rows), labels[:30])", "returned 30 labels for 40 samples of"),
        ("('a', 'b')", "return Samples.all_of(Arrays(rows), labels + 5)", "returned labels from 5 to 6 for"),
        ("('a', 'b')", "return Samples.all_of(Arrays(rows), labels + 0.5)", "labels must be integers; got float64"),
        ("('a', 'b')", "return Samples.all_of(Arrays(rows / 0), labels)", "numbers that are not finite"),
        ("('a', 'b')", "return Samples.all_of(Arrays(rows.astype(int)), labels)", "allowed: float32 or uint8"),
        ("None", "pass", "Mine.domains returned None; expected a tuple of names"),
    ],
)
def test_mistakes_in_data_sets(write, tmp_path, domains, body, complaint):
    name = write(DATASET.format(domains=domains, body=body))
    with pytest.warns() if "/ 0" in body else pytest.MonkeyPatch.context():
        assert complaint in error_of({"data.name": f"{name}:Mine", "data.target": "b"}, tmp_path)


def test_arrays_of_doubles_are_converted(write, tmp_path):
    name = write(DATASET.format(domains="('a', 'b')", body="return Samples.all_of(Arrays(rows), labels)"))
    settings = {**SMALL, "data.name": f"{name}:Mine", "data.target": "b"}
    assert fedrf.run(None, settings, out=tmp_path / "run", local=True).finished


@pytest.mark.parametrize(
    ("key", "text", "complaint"),
    [
        ("federation.aggregation", "def mine(clients): return clients[0]", "the aggregation rule failed (TypeError"),
        (
            "federation.aggregation",
            "def mine(clients, weights): pass",
            "must return an array of numbers of shape",
        ),
        ("federation.aggregation", "mine = 'mean'", "neither a Rule nor a function"),
        ("track.select", "def mine(probabilities): return 'high'", "the score must return a number (ValueError"),
        ("track.select", "from fedrf.adaptation.selection import Score\nmine = Score()", "a score needs compute"),
        ("model.extractor", "mine = 3", "neither a class of extractors nor a function"),
        ("method", "import sys\nsys.exit(3)", "(SystemExit: 3)"),
    ],
)
def test_mistakes_that_are_found_before_a_run(write, key, text, complaint):
    name = write(text)
    with pytest.raises(ValueError, match=f"^{key}='?{name}:mine") as error:
        load_config(None, {key: f"{name}:mine"})
    assert complaint in str(error.value)


def test_an_extractor_with_another_number_of_features_than_it_says(write, tmp_path):
    name = write(
        "from torch import nn\nfrom fedrf.models.extractors.extractor import Extractor\n"
        "def mine(shape, weights): return Extractor(nn.Flatten(), nn.Identity(), 17)\n"
    )
    assert f"model.extractor={name}:mine: a sample has features of shape (256,); out_features is 17" in error_of(
        {"model.extractor": f"{name}:mine"}, tmp_path
    )


def test_an_extractor_without_parameters_is_not_adapted(write, tmp_path):
    name = write(
        "from torch import nn\nfrom fedrf.models.extractors.extractor import Extractor\n"
        "def mine(shape, weights): return Extractor(nn.Flatten(), nn.Identity(), 256)\n"
    )
    settings = {**SMALL, "model.extractor": f"{name}:mine", "adapt.when": "last"}
    result = fedrf.run(None, settings, out=tmp_path / "run", local=True)
    assert result.finished
    assert any("no adaptation after the rounds" in note for note in result.summary["notes"])


def test_a_bad_value_in_settings_names_the_class(write):
    text = METHOD.format(trains="()", function="target_loss", body="return {}")
    name = write(text + "    settings = {'federation.mode': 'asink'}\n")
    with pytest.raises(ValueError, match=r"^federation.mode='asink': .* \(from Mine.settings\)$"):
        load_config(None, {"method": f"{name}:Mine"})
    assert load_config(None, {"method": f"{name}:Mine", "federation.mode": "sync"}).federation.mode == "sync"


def test_a_score_from_outside_may_be_equal_to_a_built_in_one():
    from fedrf.adaptation.selection import accept

    with pytest.raises(ValueError, match="a score needs compute"):
        accept(Score())
