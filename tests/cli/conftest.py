import numpy as np
import pytest

from tests.cli.small_folders import shrink_office31, write_images
from tests.conftest import shifted_digits


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A folder of files with features."""
    folder = tmp_path_factory.mktemp("features")
    for name, domain in shifted_digits().items():
        np.savez(folder / f"{name}.npz", X=domain.features, y=domain.labels)
        np.savez(folder / f"small-{name}.npz", X=domain.features[::5], y=domain.labels[::5])
    np.savez(folder / "unlabelled.npz", X=shifted_digits()["left"].features)
    np.savez(folder / "narrow.npz", X=np.ones((5, 3)))
    np.savez(folder / "few.npz", X=shifted_digits()["left"].features[:5])
    (folder / "folder.npz").mkdir()
    return folder


@pytest.fixture
def no_root(monkeypatch):
    """No data root is set in the environment."""
    monkeypatch.delenv("FEDRF_DATA", raising=False)


@pytest.fixture
def root(tmp_path):
    """A data root with small images."""
    return write_images(tmp_path)


@pytest.fixture
def small_office(root, monkeypatch):
    """The same, which are all of Office-31."""
    shrink_office31(monkeypatch)
    return root
