import numpy as np
import pytest
from safetensors.numpy import save_file

from fedrf.config.registry import DATASETS
from fedrf.data.domains import locate_all, settle
from tests.data.layouts import arrays, data

FEATURES = DATASETS.find("features")
ROWS = np.arange(12.0).reshape(4, 3)


def test_every_kind_of_file_is_a_domain(tmp_path):
    arrays(tmp_path / "clinic.npz", X=ROWS, y=np.array([2, 10, 2, 10]))
    arrays(tmp_path / "ward.mat", fts=ROWS, labels=np.array([[10.0], [2], [2], [33]]))
    save_file(
        {"features": ROWS.astype(np.float16), "labels": np.array([33, 2, 2, 2], np.int32)},
        tmp_path / "home.safetensors",
    )
    (tmp_path / "notes.txt").touch()
    config = data("features", tmp_path, target="home")
    assert FEATURES.domains(config) == ("clinic", "home", "ward")
    assert FEATURES.classes(config) == ("2", "10", "33"), "numbers in their own order"
    assert FEATURES.load(config, "clinic").labels.tolist() == [0, 1, 0, 1]
    assert FEATURES.load(config, "ward").labels.tolist() == [1, 0, 0, 2]
    home = FEATURES.load(config, "home")
    assert home.labels.tolist() == [2, 0, 0, 0]
    assert home.array().dtype == np.float32
    np.testing.assert_array_equal(home.array(), ROWS)


@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_labels_may_be_texts(tmp_path, suffix):
    labels = np.array(["dog", "mouse", "cat", "dog"])
    arrays(tmp_path / f"clinic{suffix}", X=ROWS, y=labels)
    arrays(tmp_path / f"home{suffix}", X=ROWS)
    config = data("features", tmp_path, target="home")
    assert FEATURES.classes(config) == ("cat", "dog", "mouse")
    assert FEATURES.load(config, "clinic").labels.tolist() == [1, 2, 0, 1]


def test_matlab_cells_of_texts_are_labels(tmp_path):
    arrays(tmp_path / "clinic.mat", X=ROWS, y=np.array(["dog", "mouse", "cat", "dog"], dtype=object))
    assert FEATURES.classes(data("features", tmp_path)) == ("cat", "dog", "mouse")


def test_labels_of_the_target_are_not_read_for_classes(tmp_path):
    arrays(tmp_path / "clinic.npz", X=ROWS, y=np.array([1, 2, 1, 2]))
    arrays(tmp_path / "home.npz", X=ROWS, y=np.array([1, 2, 3, 2]))
    config = settle(data("features", tmp_path, target="home"))
    assert config.classes == ("1", "2")
    with pytest.raises(ValueError, match=r"home\.npz: label 3 is not one of the classes 1, 2; see data\.classes"):
        FEATURES.load(config, "home")
    named = data("features", tmp_path, target="home", classes=("3", "1", "2"))
    assert FEATURES.load(named, "home").labels.tolist() == [1, 2, 0, 2]


def test_a_target_may_come_without_labels_but_no_source(tmp_path):
    arrays(tmp_path / "clinic.npz", X=ROWS, y=np.array([1, 2, 1, 2]))
    arrays(tmp_path / "home.npz", X=ROWS)
    assert FEATURES.load(data("features", tmp_path, target="home"), "home").labels is None
    with pytest.raises(ValueError, match=r"home\.npz: labels found: none; sources need at least two classes"):
        FEATURES.classes(data("features", tmp_path, target="clinic"))
    arrays(tmp_path / "ward.npz", X=ROWS, y=np.array([1, 2, 1, 2]))
    with pytest.raises(ValueError, match=r"home\.npz: a source, and no labels found under labels, label, Y"):
        locate_all(data("features", tmp_path, target="clinic"))


def test_one_class_is_not_enough(tmp_path):
    arrays(tmp_path / "clinic.npz", X=ROWS, y=np.ones(4))
    with pytest.raises(ValueError, match=r"clinic\.npz: labels found: 1; sources need at least two classes"):
        FEATURES.classes(data("features", tmp_path))


def test_two_files_for_one_domain_are_an_error(tmp_path):
    arrays(tmp_path / "clinic.npz", X=ROWS)
    arrays(tmp_path / "clinic.mat", X=ROWS)
    with pytest.raises(ValueError, match=r"clinic\.npz and clinic\.mat: two files for domain clinic; keep one"):
        FEATURES.domains(data("features", tmp_path))


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "clinic.safetensors").write_bytes(b"cut short")
    with pytest.raises(ValueError, match=r"clinic\.safetensors: cannot be read"):
        FEATURES.load(data("features", tmp_path), "clinic")


def test_domains_of_different_width_are_named(tmp_path):
    arrays(tmp_path / "clinic.npz", X=ROWS, y=np.array([1, 2, 1, 2]))
    arrays(tmp_path / "home.npz", X=ROWS[:, :2])
    with pytest.raises(ValueError, match=r"the same number of columns; found 3 in .*clinic\.npz and 2 in .*home\.npz"):
        locate_all(data("features", tmp_path, target="home"))
