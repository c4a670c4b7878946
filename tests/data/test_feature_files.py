import numpy as np
import pytest
import scipy.io
import scipy.sparse
from safetensors.numpy import save_file

from fedrf.data.feature_files import FEATURE_KEYS, LABEL_KEYS, load_features

TABLE, LABELS = np.arange(12.0).reshape(4, 3), np.array([1, 2, 1, 2])


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
def test_common_keys_are_recognised(tmp_path, suffix, feature_key, label_key):
    domain = load_features(write(tmp_path / f"a{suffix}", **{feature_key: TABLE, label_key: LABELS}))
    np.testing.assert_array_equal(domain.features, TABLE)
    np.testing.assert_array_equal(domain.labels, LABELS)


def test_labels_are_optional(tmp_path):
    assert load_features(write(tmp_path / "a.npz", X=TABLE)).labels is None


def test_capital_suffixes(tmp_path):
    path = write(tmp_path / "a.npz", X=TABLE).rename(tmp_path / "A.NPZ")
    np.testing.assert_array_equal(load_features(path).features, TABLE)


def test_labels_become_integers_or_texts(tmp_path):
    whole = load_features(write(tmp_path / "a.mat", X=TABLE, y=np.array([[1.0, 2, 1, 2]]))).labels
    assert whole.dtype == np.int64
    assert whole.tolist() == [1, 2, 1, 2]
    texts = load_features(write(tmp_path / "b.mat", X=TABLE, y=np.array(["a", "long", "a", "b"]))).labels
    assert texts.tolist() == ["a", "long", "a", "b"]


def test_samples_in_columns_are_transposed_only_if_the_number_of_labels_shows_it(tmp_path):
    transposed = load_features(write(tmp_path / "a.mat", X=TABLE.T, y=LABELS))
    np.testing.assert_array_equal(transposed.features, TABLE)
    square = load_features(write(tmp_path / "b.mat", X=TABLE[:3], y=LABELS[:3]))
    np.testing.assert_array_equal(square.features, TABLE[:3])
    assert load_features(write(tmp_path / "c.mat", X=TABLE.T)).features.shape == (3, 4)


def test_sparse_matlab_matrices(tmp_path):
    path = write(tmp_path / "a.mat", fts=scipy.sparse.csc_matrix(TABLE), labels=LABELS)
    np.testing.assert_array_equal(load_features(path).features, TABLE)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pixels": TABLE}, "no features found under fts, feas, .*; the file has pixels"),
        ({"X": TABLE[0]}, r"samples in rows; found float64 \(3,\)"),
        ({"X": TABLE[:0]}, r"found float64 \(0, 3\)"),
        ({"X": np.array([["a", "b"]])}, "must be a table of numbers"),
        ({"X": TABLE, "y": LABELS[:2]}, "2 labels for 4 samples"),
        ({"X": np.where(TABLE == 0, np.inf, TABLE)}, "features must be finite"),
        ({"X": TABLE, "y": np.array([1, 2, np.nan, 1])}, "labels must be whole numbers or text.*found nan"),
        ({"X": TABLE, "y": np.array([1, 2, np.inf, 1])}, "labels must be whole numbers or text.*found inf"),
        ({"X": TABLE, "y": np.array([1, 2, 2.5, 1])}, "labels must be whole numbers or text.*found 2.5"),
        ({"X": TABLE[:3], "y": LABELS}, "4 labels for 3 samples"),
    ],
)
def test_errors_about_content_name_the_file(tmp_path, arrays, message):
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
def test_errors_about_damaged_files_name_the_file(tmp_path, name, content, message):
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


def test_matlab_cells_of_mixed_types_are_rejected_as_labels(tmp_path):
    path = write(tmp_path / "a.mat", X=TABLE, y=np.array(["a", "b", 1, 2], dtype=object))
    with pytest.raises(ValueError, match="labels must be whole numbers or text, one for each sample; found object"):
        load_features(path)


def test_missing_file(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        load_features(tmp_path / "a.npz")
