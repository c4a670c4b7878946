import os
from pathlib import Path

import numpy as np
import pytest

TINY = {
    "data.samples": 120,
    "model.num_features": 30,
    "model.dim": 8,
    "train.rounds": 6,
    "train.batch_size": 16,
    "adapt.steps": 4,
    "adapt.batch_size": 32,
    "track.evaluate_every": 2,
}


@pytest.fixture(scope="session")
def data_root() -> Path:
    root = os.environ.get("FEDRF_DATA")
    if not root:
        pytest.skip("needs real data: set FEDRF_DATA")
    return Path(root)


def make_domains(num_source=70, num_target=50, columns=6, shift=1.0, seed=0, dtype=np.float64):
    """Two Gaussian clouds, the target moved along the first column; domains shuffled among the rows."""
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
    """One Ray with logical GPUs for all tests, and client actors that are used again."""
    import ray

    from fedrf.runtime import RaySession

    ray.init(address="local", num_cpus=8, num_gpus=5, include_dashboard=False, log_to_driver=False)
    with RaySession() as session:
        yield session
    ray.shutdown()


def final_weights(result):
    """The bytes of every client's weights at the end of a run."""
    return {path.parent.name: path.read_bytes() for path in result.folder.glob("checkpoints/*/final.safetensors")}
