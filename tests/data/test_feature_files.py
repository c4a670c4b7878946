import numpy as np
import pytest
import scipy.io
import scipy.sparse

from fedrf.data.catalogue import CATALOGUE, find_dataset
from fedrf.data.feature_files import FEATURE_KEYS, LABEL_KEYS, load_features

ROWS, LABELS = np.arange(12.0).reshape(4, 3), np.array([1, 2, 1, 2])


def write(path, **arrays):
    if path.suffix == ".mat":
        scipy.io.savemat(path, arrays)
    else:
        np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("suffix", [".npz", ".mat"])
@pytest.mark.parametrize("feature_key", FEATURE_KEYS)
@pytest.mark.parametrize("label_key", LABEL_KEYS)
def test_usual_keys_are_recognised(tmp_path, suffix, feature_key, label_key):
    domain = load_features(write(tmp_path / f"a{suffix}", **{feature_key: ROWS, label_key: LABELS}))
    np.testing.assert_array_equal(domain.features, ROWS)
    np.testing.assert_array_equal(domain.labels, LABELS)


def test_labels_may_be_missing(tmp_path):
    assert load_features(write(tmp_path / "a.npz", X=ROWS)).labels is None


def test_sparse_matlab_matrices(tmp_path):
    path = write(tmp_path / "a.mat", fts=scipy.sparse.csc_matrix(ROWS), labels=LABELS)
    np.testing.assert_array_equal(load_features(path).features, ROWS)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pixels": ROWS}, "no features found under fts, feas, .*; the file has pixels"),
        ({"X": ROWS[0]}, r"samples in rows; found float64 \(3,\)"),
        ({"X": ROWS[:0]}, r"found float64 \(0, 3\)"),
        ({"X": np.array([["a", "b"]])}, "must be a table of numbers"),
        ({"X": ROWS, "y": LABELS[:3]}, "3 labels for 4 samples"),
        ({"X": np.where(ROWS == 0, np.inf, ROWS)}, "features must be finite"),
        ({"X": ROWS, "y": np.array([1, 2, np.nan, 1])}, "labels must be whole numbers or text"),
    ],
)
def test_unusable_content_is_named(tmp_path, arrays, message):
    path = write(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=message) as caught:
        load_features(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.npz", b"PK\x03\x04 cut short", "cannot be read"),
        ("a.npz", b"", "cannot be read"),
        ("a.mat", b"not matlab", "cannot be read"),
        ("a.mat", b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x00" * 400, "save it again with '-v7'"),
        ("a.csv", b"1,2", "must end in .npz or .mat"),
    ],
)
def test_unreadable_files_are_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        load_features(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pickled_objects_are_never_loaded(tmp_path):
    path = write(tmp_path / "a.npz", X=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="cannot be read"):
        load_features(path)


def test_matlab_cells_are_no_labels(tmp_path):
    path = write(tmp_path / "a.mat", X=ROWS, y=np.array(["a", "b", 1, 2], dtype=object))
    with pytest.raises(ValueError, match="labels must be whole numbers or text, one a sample; found object"):
        load_features(path)


def test_missing_file(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        load_features(tmp_path / "a.npz")


def test_catalogue_names_are_unique_and_unknown_ones_listed():
    names = [dataset.name for dataset in CATALOGUE]
    assert len(set(names)) == len(names)
    with pytest.raises(ValueError, match="dataset must be one of office31, "):
        find_dataset("office")


@pytest.mark.realdata
@pytest.mark.parametrize(("domain", "count"), [("amazon", 958), ("caltech", 1123), ("dslr", 157), ("webcam", 295)])
def test_office_caltech_surf(data_root, domain, count):
    loaded = load_features(data_root / find_dataset("office-caltech10-surf").domains[domain])
    assert loaded.features.shape == (count, 800)
    assert set(loaded.labels) == set(range(1, 11))


@pytest.mark.realdata
@pytest.mark.parametrize(("domain", "count"), [("dslr", 157), ("webcam", 295)])
def test_office_caltech_decaf(data_root, domain, count):
    loaded = load_features(data_root / f"office_caltech10/decaf6/{domain}.mat")
    assert loaded.features.shape == (count, 4096)
    assert set(loaded.labels) == set(range(1, 11))
