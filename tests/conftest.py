import os
from pathlib import Path

import numpy as np
import pytest


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
