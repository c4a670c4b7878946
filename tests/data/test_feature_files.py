import numpy as np
import pytest
import scipy.io
import scipy.sparse
from safetensors.numpy import save_file

from fedrf.data.feature_files import FEATURE_KEYS, LABEL_KEYS, load_features

ROWS, LABELS = np.arange(12.0).reshape(4, 3), np.array([1, 2, 1, 2])


def write(path, **arrays):
    if path.suffix == ".mat":
        scipy.io.savemat(path, arrays)
    elif path.suffix == ".safetensors":
        save_file(arrays, path)
    else:
        np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("suffix", [".npz", ".mat", ".safetensors"])
@pytest.mark.parametrize("feature_key", FEATURE_KEYS)
@pytest.mark.parametrize("label_key", LABEL_KEYS)
def test_usual_keys_are_recognised(tmp_path, suffix, feature_key, label_key):
    domain = load_features(write(tmp_path / f"a{suffix}", **{feature_key: ROWS, label_key: LABELS}))
    np.testing.assert_array_equal(domain.features, ROWS)
    np.testing.assert_array_equal(domain.labels, LABELS)


def test_labels_may_be_missing(tmp_path):
    assert load_features(write(tmp_path / "a.npz", X=ROWS)).labels is None


def test_capital_suffixes(tmp_path):
    path = write(tmp_path / "a.npz", X=ROWS).rename(tmp_path / "A.NPZ")
    np.testing.assert_array_equal(load_features(path).features, ROWS)


def test_labels_become_whole_numbers_or_plain_texts(tmp_path):
    whole = load_features(write(tmp_path / "a.mat", X=ROWS, y=np.array([[1.0, 2, 1, 2]]))).labels
    assert whole.dtype == np.int64
    assert whole.tolist() == [1, 2, 1, 2]
    texts = load_features(write(tmp_path / "b.mat", X=ROWS, y=np.array(["a", "long", "a", "b"]))).labels
    assert texts.tolist() == ["a", "long", "a", "b"]


def test_features_in_columns_are_turned_only_if_there_is_no_doubt(tmp_path):
    turned = load_features(write(tmp_path / "a.mat", X=ROWS.T, y=LABELS))
    np.testing.assert_array_equal(turned.features, ROWS)
    square = load_features(write(tmp_path / "b.mat", X=ROWS[:3], y=LABELS[:3]))
    np.testing.assert_array_equal(square.features, ROWS[:3])
    assert load_features(write(tmp_path / "c.mat", X=ROWS.T)).features.shape == (3, 4)


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
        ({"X": ROWS, "y": LABELS[:2]}, "2 labels for 4 samples"),
        ({"X": np.where(ROWS == 0, np.inf, ROWS)}, "features must be finite"),
        ({"X": ROWS, "y": np.array([1, 2, np.nan, 1])}, "labels must be whole numbers or text.*found nan"),
        ({"X": ROWS, "y": np.array([1, 2, np.inf, 1])}, "labels must be whole numbers or text.*found inf"),
        ({"X": ROWS, "y": np.array([1, 2, 2.5, 1])}, "labels must be whole numbers or text.*found 2.5"),
        ({"X": ROWS[:3], "y": LABELS}, "4 labels for 3 samples"),
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
        ("a.safetensors", b"not tensors", "cannot be read"),
        ("a.mat", b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x00" * 400, "save it again with '-v7'"),
        ("a.csv", b"1,2", "must end in .npz, .mat or .safetensors"),
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
