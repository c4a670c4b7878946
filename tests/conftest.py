import os
from functools import wraps
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedrf.config.loader import load_config
from fedrf.data.datasets.digits import Digits
from fedrf.data.domains import load_domain
from fedrf.data.feature_files import FeatureSet
from fedrf.experiment import report

CURVES = report._curves
TINY = {
    "method": "fedrf-plus",
    "data.samples": 120,
    "model.num_features": 30,
    "model.dim": 8,
    "train.rounds": 6,
    "train.batch_size": 16,
    "adapt.steps": 4,
    "adapt.batch_size": 32,
    "track.evaluate_every": 2,
    "resources.accelerator": "cpu",  # Ray is told of GPUs that do not exist
}
SYNC = {**TINY, "federation.mode": "sync", "federation.checkpoint_seconds": 0}


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Cache outputs of backbones in a folder of these tests, also in processes that they start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDRF_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def reports_without_curves():
    """Write report.html without its curves, because drawing them takes longer than a small run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "_curves", lambda rows, last_round, target: "")
        yield


@pytest.fixture
def drawn_curves(monkeypatch):
    """Draw the curves of report.html in this test."""
    monkeypatch.setattr(report, "_curves", CURVES)


@pytest.fixture(scope="session", autouse=True)
def digits_drawn_once():
    """Draw each domain of the digits once, and not in every run; `Digits.load.__wrapped__` draws anew."""
    draw, drawn = Digits.load, {}

    @wraps(draw)
    def load(self, config, domain):
        if domain not in drawn:
            drawn[domain] = draw(self, config, domain)
        return drawn[domain]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Digits, "load", load)
        yield


@pytest.fixture(scope="session")
def data_root() -> Path:
    root = os.environ.get("FEDRF_DATA")
    if not root:
        pytest.skip("needs real data: set FEDRF_DATA")
    return Path(root)


def make_domains(num_source=70, num_target=50, columns=6, shift=1.0, seed=0, dtype=np.float64):
    """Return two Gaussian clouds, the target shifted along the first column, with domains in random order."""
    rng = np.random.RandomState(seed)
    rows = rng.randn(num_source + num_target, columns)
    domain = rng.permutation(np.repeat([1, -1], [num_source, num_target]))
    rows[domain < 0, 0] += shift
    return rows.astype(dtype), domain


@pytest.fixture
def domains():
    return make_domains()


@pytest.fixture(scope="session")
def ray_session():
    """One Ray instance with logical GPUs for all tests; its client actors are reused."""
    import ray

    from fedrf.runtime.ray import RaySession

    ray.init(address="local", num_cpus=8, num_gpus=5, include_dashboard=False, log_to_driver=False)
    with RaySession() as session:
        yield session
    ray.shutdown()


def final_weights(result):
    """Return the bytes of every client's weights at the end of a run."""
    return {path.parent.name: path.read_bytes() for path in result.folder.glob("checkpoints/*/final.safetensors")}


def office_caltech(root):
    """Return the four Office-Caltech domains as SURF histograms: rows scaled to sum 1, columns standardised."""
    keys = {"data.name": "office-caltech10-surf", "data.root": str(root), "data.target": "amazon"}
    domains = {}
    for name in ("amazon", "caltech", "dslr", "webcam"):
        samples = load_domain(load_config(None, keys).data, name).standardised()
        domains[name[0].upper()] = FeatureSet(samples.array(), samples.labels)
    return domains


def shifted_digits():
    """Return the handwritten digits of scikit-learn in three equal parts, two of which are lit from one side."""
    images, labels = load_digits(return_X_y=True)
    images = images / 16
    fading = np.linspace(0.6, 0.0, 8)
    looks = {"plain": 0.0, "left": np.tile(fading, 8), "top": np.repeat(fading, 8)}
    part = np.random.RandomState(0).permutation(len(images)) % len(looks)
    return {
        name: FeatureSet(images[part == index] + light, labels[part == index])
        for index, (name, light) in enumerate(looks.items())
    }
