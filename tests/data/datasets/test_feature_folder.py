import numpy as np
import pytest
from safetensors.numpy import save_file

from fedrf.config.registry import DATASETS
from fedrf.data.domains import locate_all, resolve_data
from tests.data.layouts import arrays, data

FEATURES = DATASETS.find("features")
TABLE = np.arange(12.0).reshape(4, 3)


def test_each_file_is_a_domain(tmp_path):
    arrays(tmp_path / "clinic.npz", X=TABLE, y=np.array([2, 10, 2, 10]))
    arrays(tmp_path / "ward.mat", fts=TABLE, labels=np.array([[10.0], [2], [2], [33]]))
    save_file(
        {"features": TABLE.astype(np.float16), "labels": np.array([33, 2, 2, 2], np.int32)},
        tmp_path / "home.safetensors",
    )
    (tmp_path / "notes.txt").touch()
    config = data("features", tmp_path, target="home")
    assert FEATURES.domains(config) == ("clinic", "home", "ward")
    assert FEATURES.classes(config) == ("2", "10", "33"), "numbers are sorted as numbers"
    assert FEATURES.load(config, "clinic").labels.tolist() == [0, 1, 0, 1]
    assert FEATURES.load(config, "ward").labels.tolist() == [1, 0, 0, 2]
    home = FEATURES.load(config, "home")
    assert home.labels.tolist() == [2, 0, 0, 0]
    assert home.array().dtype == np.float32
    np.testing.assert_array_equal(home.array(), TABLE)


@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_labels_can_be_texts(tmp_path, suffix):
    labels = np.array(["dog", "mouse", "cat", "dog"])
    arrays(tmp_path / f"clinic{suffix}", X=TABLE, y=labels)
    arrays(tmp_path / f"home{suffix}", X=TABLE)
    config = data("features", tmp_path, target="home")
    assert FEATURES.classes(config) == ("cat", "dog", "mouse")
    assert FEATURES.load(config, "clinic").labels.tolist() == [1, 2, 0, 1]


def test_matlab_cells_of_texts_are_labels(tmp_path):
    arrays(tmp_path / "clinic.mat", X=TABLE, y=np.array(["dog", "mouse", "cat", "dog"], dtype=object))
    assert FEATURES.classes(data("features", tmp_path)) == ("cat", "dog", "mouse")


def test_labels_of_the_target_are_not_read_for_classes(tmp_path):
    arrays(tmp_path / "clinic.npz", X=TABLE, y=np.array([1, 2, 1, 2]))
    arrays(tmp_path / "home.npz", X=TABLE, y=np.array([1, 2, 3, 2]))
    config = resolve_data(data("features", tmp_path, target="home"))
    assert config.classes == ("1", "2")
    with pytest.raises(ValueError, match=r"home\.npz: label 3 is not one of the classes 1, 2; see data\.classes"):
        FEATURES.load(config, "home")
    named = data("features", tmp_path, target="home", classes=("3", "1", "2"))
    assert FEATURES.load(named, "home").labels.tolist() == [1, 2, 0, 2]


def test_labels_are_optional_for_the_target_and_required_for_sources(tmp_path):
    arrays(tmp_path / "clinic.npz", X=TABLE, y=np.array([1, 2, 1, 2]))
    arrays(tmp_path / "home.npz", X=TABLE)
    assert FEATURES.load(data("features", tmp_path, target="home"), "home").labels is None
    with pytest.raises(ValueError, match=r"home\.npz: labels found: none; sources need at least two classes"):
        FEATURES.classes(data("features", tmp_path, target="clinic"))
    arrays(tmp_path / "ward.npz", X=TABLE, y=np.array([1, 2, 1, 2]))
    with pytest.raises(ValueError, match=r"home\.npz: a source needs labels; none found under labels, label, Y"):
        locate_all(data("features", tmp_path, target="clinic"))


def test_one_class_is_not_enough(tmp_path):
    arrays(tmp_path / "clinic.npz", X=TABLE, y=np.ones(4))
    with pytest.raises(ValueError, match=r"clinic\.npz: labels found: 1; sources need at least two classes"):
        FEATURES.classes(data("features", tmp_path))


def test_two_files_for_one_domain_are_an_error(tmp_path):
    arrays(tmp_path / "clinic.npz", X=TABLE)
    arrays(tmp_path / "clinic.mat", X=TABLE)
    with pytest.raises(ValueError, match=r"clinic\.npz and clinic\.mat: two files for domain clinic; keep one"):
        FEATURES.domains(data("features", tmp_path))


def test_an_error_names_a_damaged_file(tmp_path):
    (tmp_path / "clinic.safetensors").write_bytes(b"cut short")
    with pytest.raises(ValueError, match=r"clinic\.safetensors: cannot be read"):
        FEATURES.load(data("features", tmp_path), "clinic")


def test_an_error_names_domains_of_different_width(tmp_path):
    arrays(tmp_path / "clinic.npz", X=TABLE, y=np.array([1, 2, 1, 2]))
    arrays(tmp_path / "home.npz", X=TABLE[:, :2])
    with pytest.raises(ValueError, match=r"the same number of columns; found 3 in .*clinic\.npz and 2 in .*home\.npz"):
        locate_all(data("features", tmp_path, target="home"))
