import gzip
import shutil

import numpy as np
import pytest

from fedrf.config.registry import DATASETS
from fedrf.data.datasets.digit_five import COUNTS
from fedrf.data.datasets.digit_readers import resize
from tests.data.layouts import (
    DIGITS,
    arrays,
    data,
    load,
    random_images,
    write_digit_five,
    write_image_list,
    write_mnist,
    write_svhn,
    write_usps,
)

DIGIT_FIVE = DATASETS.find("digit-five")


def load_digits(root, domain, **keys):
    return load("digit-five", root, domain, **keys)


def test_tables_agree_with_the_papers():
    assert {domain: sum(counts) for domain, counts in COUNTS.items()} == {
        "mnist": 70_000,
        "mnist-m": 70_000,
        "svhn": 99_289,
        "synthetic": 488_953,
        "usps": 9_298,
    }
    sizes = {
        split: DIGIT_FIVE.expected(data("digit-five", "/", split=split), "mnist-m")
        for split in ("train", "test", "all")
    }
    assert sizes == {
        "train": (60_000, 59_001, 55_000),
        "test": (10_000, 9_001),
        "all": (70_000, 68_002, 65_000),
    }


def test_mnist_can_be_compressed(tmp_path):
    write_mnist(tmp_path)
    original = load_digits(tmp_path, "mnist", split="all")
    assert original.labels.tolist() == [*DIGITS, *DIGITS]
    images = np.concatenate([random_images(seed, 28)[..., 0] for seed in (0, 1)])
    assert np.array_equal(original.array(), resize(images[:, None]))
    for path in (tmp_path / "MNIST/raw").iterdir():
        (path.parent / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    before = sorted(tmp_path.rglob("*"))
    compressed = load_digits(tmp_path, "mnist", split="all")
    assert np.array_equal(compressed.array(), original.array())
    assert np.array_equal(compressed.labels, original.labels)
    assert sorted(tmp_path.rglob("*")) == before, "files were written next to the data"


def test_usps(tmp_path):
    write_usps(tmp_path)
    samples = load_digits(tmp_path, "usps", split="test")
    assert samples.labels.tolist() == DIGITS.tolist()
    assert np.array_equal(samples.array(), resize(random_images(1, 16)[..., 0][:, None]))


@pytest.mark.parametrize(
    ("folder", "name"), [("SVHN", "{}_32x32.mat"), ("svhn", "{}_32x32.mat"), ("", "svhn_{}_32x32.mat")]
)
def test_svhn(tmp_path, folder, name):
    write_svhn(tmp_path / folder, name)
    samples = load_digits(tmp_path, "svhn", split="test")
    assert np.array_equal(samples.array(), random_images(1, 32).transpose(0, 3, 1, 2))
    assert samples.labels.tolist() == DIGITS.tolist(), "label 10 is the digit 0"
    assert np.array_equal(np.asarray(samples.content.image(3)), random_images(1, 32)[3])


def test_an_error_names_a_missing_array_of_svhn(tmp_path):
    path = arrays(tmp_path / "train_32x32.mat", images=random_images(0, 32).transpose(1, 2, 3, 0), y=DIGITS)
    with pytest.raises(ValueError, match=rf"{path}: cannot be read \(no 'X' in it\)"):
        load_digits(tmp_path, "svhn")


def write_mnistm_with_label(home, size=28):
    one_hot = np.eye(10)[DIGITS]
    content = {"train": random_images(0, size), "test": random_images(1, size)}
    arrays(home / "mnistm_with_label.mat", **content, label_train=one_hot, label_test=one_hot)


def write_syn_number(home, size=32):
    labels = DIGITS[:, None].astype(np.uint8)
    content = {"train_data": random_images(0, size), "test_data": random_images(1, size)}
    arrays(home / "syn_number.mat", **content, train_label=labels, test_label=labels)


def write_npz(home, stem, size, images="X", labels="y"):
    for seed, split in enumerate(("train", "test")):
        arrays(home / f"{stem}_{split}.npz", **{images: random_images(seed, size), labels: DIGITS})


@pytest.mark.parametrize(
    ("domain", "size", "write"),
    [
        ("mnist-m", 32, lambda home: write_npz(home / "MNIST-M", "mnist_m", 32)),
        ("mnist-m", 28, lambda home: write_npz(home / "mnistm", "mnistm", 28, "images", "labels")),
        ("mnist-m", 28, lambda home: write_npz(home, "mnist_m", 28, "data", "label")),
        ("mnist-m", 28, lambda home: write_image_list(home / "mnist_m", "mnist_m")),
        ("mnist-m", 28, lambda home: write_mnistm_with_label(home / "MNIST-M")),
        ("mnist-m", 28, write_mnistm_with_label),
        ("synthetic", 32, lambda home: write_svhn(home / "SYNTH", "synth_{}_32x32.mat")),
        ("synthetic", 32, lambda home: write_svhn(home / "synthetic_digits", "synth_{}_32x32_small.mat")),
        ("synthetic", 32, lambda home: write_npz(home / "SynthDigits", "synth", 32, "x", "y")),
        ("synthetic", 32, lambda home: write_image_list(home / "syn_digits", "syn_digits", 32)),
        ("synthetic", 32, lambda home: write_syn_number(home / "SYN")),
        ("synthetic", 32, write_syn_number),
    ],
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_all_formats_give_the_same_images(tmp_path, domain, size, write, split):
    write(tmp_path / "digit_five")
    samples = load_digits(tmp_path, domain, split=split)
    expected = resize(np.moveaxis(random_images(int(split == "test"), size), -1, 1))
    assert np.array_equal(samples.array(), expected)
    assert samples.labels.tolist() == DIGITS.tolist()
    assert samples.labels.dtype == np.int64
    assert samples.skipped == 0


def test_complete_versions_are_preferred_to_small_ones(tmp_path):
    write_svhn(tmp_path, "synth_{}_32x32_small.mat")
    arrays(tmp_path / "synth_train_32x32.mat", X=random_images(7, 32).transpose(1, 2, 3, 0), y=DIGITS)
    assert np.array_equal(load_digits(tmp_path, "synthetic").array(), random_images(7, 32).transpose(0, 3, 1, 2))


def test_an_error_lists_the_paths_of_missing_files(tmp_path):
    write_digit_five(tmp_path)
    home = tmp_path / "Digit-Five"
    (home / "MNIST/raw/t10k-labels-idx1-ubyte").unlink()
    (home / "USPS/usps.t.bz2").unlink()
    shutil.rmtree(home / "SVHN")
    expected = {
        "mnist": f"t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, or .*ubyte.gz in {home}/MNIST and {home}",
        "usps": f"looked for usps.t.bz2 in {home}/USPS and {home}",
        "svhn": f"looked for train_32x32.mat, or svhn_train_32x32.mat in {home}/SVHN and {home}",
    }
    for domain, message in expected.items():
        with pytest.raises(ValueError, match=message):
            DIGIT_FIVE.locate(data("digit-five", tmp_path, split="all"), domain)
    assert len(load_digits(tmp_path, "mnist")) == 20, "the other split is not needed"


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("domain", "split", "count"),
    [("mnist", "train", 60_000), ("mnist", "test", 10_000), ("usps", "all", 9_298)],
)
def test_real_digits(data_root, domain, split, count):
    samples = DIGIT_FIVE.load(data("digit-five", data_root, split=split), domain)
    assert samples.array().shape == (count, 3, 32, 32)
    assert set(samples.labels) == set(range(10))


@pytest.mark.realdata
def test_the_real_mnist_m_is_incomplete(data_root):
    with pytest.raises(ValueError, match=r"10,000 samples .* expected 60,000 or 59,001 or 55,000"):
        DIGIT_FIVE.load(data("digit-five", data_root), "mnist-m")
    samples = DIGIT_FIVE.load(data("digit-five", data_root, split="all", allow_partial=True), "mnist-m")
    assert samples.array().shape == (15_000, 3, 32, 32)
    assert set(samples.labels) == set(range(10))
