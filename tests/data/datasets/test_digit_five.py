import bz2
import gzip
import shutil

import numpy as np
import pytest
from PIL import Image

from fedrf.data.datasets.digit_five import COUNTS, _resized
from fedrf.config.registry import DATASETS
from tests.data.layouts import (
    DIGITS,
    arrays,
    data,
    idx,
    lines,
    load,
    pictures,
    write_digit_five,
    write_mnist,
    write_svhn,
    write_usps,
)

DIGIT_FIVE = DATASETS.find("digit-five")


def five(root, domain, **keys):
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
        part: DIGIT_FIVE.expected(data("digit-five", "/", split=part), "mnist-m") for part in ("train", "test", "all")
    }
    assert sizes == {
        "train": (60_000, 59_001, 55_000),
        "test": (10_000, 9_001),
        "all": (70_000, 68_002, 65_000),
    }


@pytest.mark.parametrize(("size", "channels"), [(28, 1), (28, 3), (16, 1), (40, 3), (32, 1)])
def test_resizing_is_that_of_pillow(size, channels):
    images = np.moveaxis(pictures(0, size), -1, 1)[:, :channels]
    resized = _resized(images)
    assert resized.shape == (20, 3, 32, 32)
    assert resized.dtype == np.uint8
    for channel in range(3):
        for row in range(20):
            # Real numbers, because Pillow rounds whole ones twice.
            picture = Image.fromarray(images[row, channel % channels].astype(np.float32))
            exact = np.asarray(picture.resize((32, 32), Image.Resampling.BILINEAR))
            assert np.abs(resized[row, channel] - exact).max() <= 0.5001


def test_many_images_are_resized_like_few(monkeypatch):
    images = np.moveaxis(pictures(0, 28), -1, 1)
    whole = _resized(images)
    monkeypatch.setattr("fedrf.data.datasets.digit_five.BLOCK", 7)
    assert np.array_equal(_resized(images), whole)


def test_mnist_packed_or_not(tmp_path):
    write_mnist(tmp_path)
    plain = five(tmp_path, "mnist", split="all")
    assert plain.labels.tolist() == [*DIGITS, *DIGITS]
    whole = np.concatenate([pictures(part, 28)[..., 0] for part in (0, 1)])
    assert np.array_equal(plain.array(), _resized(whole[:, None]))
    for path in (tmp_path / "MNIST/raw").iterdir():
        (path.parent / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    before = sorted(tmp_path.rglob("*"))
    packed = five(tmp_path, "mnist", split="all")
    assert np.array_equal(packed.array(), plain.array())
    assert np.array_equal(packed.labels, plain.labels)
    assert sorted(tmp_path.rglob("*")) == before, "nothing is written beside the data"


def test_usps(tmp_path):
    write_usps(tmp_path)
    samples = five(tmp_path, "usps", split="test")
    assert samples.labels.tolist() == DIGITS.tolist()
    assert np.array_equal(samples.array(), _resized(pictures(1, 16)[..., 0][:, None]))


@pytest.mark.parametrize(
    ("folder", "name"), [("SVHN", "{}_32x32.mat"), ("svhn", "{}_32x32.mat"), ("", "svhn_{}_32x32.mat")]
)
def test_svhn(tmp_path, folder, name):
    write_svhn(tmp_path / folder, name)
    samples = five(tmp_path, "svhn", split="test")
    assert np.array_equal(samples.array(), pictures(1, 32).transpose(0, 3, 1, 2))
    assert samples.labels.tolist() == DIGITS.tolist(), "label 10 is the digit 0"
    assert np.array_equal(np.asarray(samples.content.image(3)), pictures(1, 32)[3])


def test_svhn_with_a_wrong_key(tmp_path):
    path = arrays(tmp_path / "train_32x32.mat", images=pictures(0, 32).transpose(1, 2, 3, 0), y=DIGITS)
    with pytest.raises(ValueError, match=rf"{path}: cannot be read \(no 'X' in it\)"):
        five(tmp_path, "svhn")


def png_folder(home, stem, size=28):
    for part, word in enumerate(("train", "test")):
        folder = home / f"{stem}_{word}"
        folder.mkdir(parents=True)
        for number, picture in enumerate(pictures(part, size)):
            Image.fromarray(picture).save(folder / f"{number:08}.png")
        lines(home / f"{stem}_{word}_labels.txt", *(f"{number:08}.png {digit}" for number, digit in enumerate(DIGITS)))


def mnistm_with_label(home, size=28):
    eye = np.eye(10)[DIGITS]
    content = {"train": pictures(0, size), "test": pictures(1, size), "label_train": eye, "label_test": eye}
    arrays(home / "mnistm_with_label.mat", **content)


def syn_number(home, size=32):
    labels = DIGITS[:, None].astype(np.uint8)
    content = {"train_data": pictures(0, size), "test_data": pictures(1, size)}
    arrays(home / "syn_number.mat", **content, train_label=labels, test_label=labels)


def npz(home, stem, size, images="X", labels="y"):
    for part, word in enumerate(("train", "test")):
        arrays(home / f"{stem}_{word}.npz", **{images: pictures(part, size), labels: DIGITS})


@pytest.mark.parametrize(
    ("domain", "size", "write"),
    [
        ("mnist-m", 32, lambda home: npz(home / "MNIST-M", "mnist_m", 32)),
        ("mnist-m", 28, lambda home: npz(home / "mnistm", "mnistm", 28, "images", "labels")),
        ("mnist-m", 28, lambda home: npz(home, "mnist_m", 28, "data", "label")),
        ("mnist-m", 28, lambda home: png_folder(home / "mnist_m", "mnist_m")),
        ("mnist-m", 28, lambda home: mnistm_with_label(home / "MNIST-M")),
        ("mnist-m", 28, mnistm_with_label),
        ("synthetic", 32, lambda home: write_svhn(home / "SYNTH", "synth_{}_32x32.mat")),
        ("synthetic", 32, lambda home: write_svhn(home / "synthetic_digits", "synth_{}_32x32_small.mat")),
        ("synthetic", 32, lambda home: npz(home / "SynthDigits", "synth", 32, "x", "y")),
        ("synthetic", 32, lambda home: png_folder(home / "syn_digits", "syn_digits", 32)),
        ("synthetic", 32, lambda home: syn_number(home / "SYN")),
        ("synthetic", 32, syn_number),
    ],
)
@pytest.mark.parametrize("part", ["train", "test"])
def test_every_format_gives_the_same_images(tmp_path, domain, size, write, part):
    write(tmp_path / "digit_five")
    samples = five(tmp_path, domain, split=part)
    wanted = _resized(np.moveaxis(pictures(int(part == "test"), size), -1, 1))
    assert np.array_equal(samples.array(), wanted)
    assert samples.labels.tolist() == DIGITS.tolist()
    assert samples.labels.dtype == np.int64
    assert samples.skipped == 0


def test_whole_sets_go_before_small_ones(tmp_path):
    write_svhn(tmp_path, "synth_{}_32x32_small.mat")
    arrays(tmp_path / "synth_train_32x32.mat", X=pictures(7, 32).transpose(1, 2, 3, 0), y=DIGITS)
    assert np.array_equal(five(tmp_path, "synthetic").array(), pictures(7, 32).transpose(0, 3, 1, 2))


def test_real_numbers_from_0_to_1_are_pixels(tmp_path):
    arrays(tmp_path / "mnist_m_train.npz", X=pictures(0, 32) / 255, y=DIGITS)
    assert np.array_equal(five(tmp_path, "mnist-m").array(), pictures(0, 32).transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"X": pictures(0, 32) / 1.0}, "pixels must be uint8, or real numbers from 0 to 1; found float64"),
        ({"X": pictures(0, 32) / -255}, "pixels must be uint8"),
        ({"X": pictures(0, 32) * np.nan}, "pixels must be uint8"),
        ({"X": pictures(0, 32).astype(int)}, "pixels must be uint8, .*; found int64"),
        ({"X": pictures(0, 32)[:, :20]}, r"images must be \(n, size, size, 3\) or the like; found \(20, 20, 32, 3\)"),
        ({"X": pictures(0, 32)[:0]}, r"found \(0, 32, 32, 3\)"),
        ({"y": DIGITS + 1}, "label 10; labels are 0 to 9"),
        ({"y": DIGITS - 1}, "label -1; labels are 0 to 9"),
        ({"y": DIGITS / 2}, "labels must be whole numbers or text, one a sample; found 0.5"),
        ({"y": np.array(["a"] * 20)}, "label a; labels are 0 to 9"),
        ({"y": DIGITS[:5]}, "5 labels for 20 images"),
        ({"y": np.ones((20, 10))}, "labels in 10 columns must be 0, but for one 1 in each row"),
        ({"X": None, "Z": DIGITS}, "no images found under train, train_data, X, x, images, data; the file has Z, y"),
        ({"y": None}, "no labels found under label_train, train_label, labels, .*; the file has X"),
    ],
)
def test_wrong_content_is_named(tmp_path, content, message):
    given = {"X": pictures(0, 32), "y": DIGITS, **content}
    path = arrays(tmp_path / "mnist_m_train.npz", **{key: value for key, value in given.items() if value is not None})
    with pytest.raises(ValueError, match=message) as caught:
        five(tmp_path, "mnist-m")
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("domain", "name", "content"),
    [
        ("mnist", "MNIST/raw/train-images-idx3-ubyte", idx(pictures(0, 28)[..., 0])[:-1]),
        ("mnist", "MNIST/raw/train-labels-idx1-ubyte", b""),
        ("usps", "USPS/usps.bz2", bz2.compress(b"1 1:0.5 2:0.5\n")),
        ("usps", "USPS/usps.bz2", b"not packed"),
        ("svhn", "SVHN/train_32x32.mat", b"cut short"),
        ("synthetic", "SYNTH/synth_train_32x32.mat", b"cut short"),
        ("mnist-m", "MNIST-M/mnist_m_train.npz", b"cut short"),
    ],
)
def test_damaged_files_are_named(tmp_path, domain, name, content):
    write_digit_five(tmp_path)
    path = tmp_path / "Digit-Five" / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read") as caught:
        five(tmp_path, domain)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_missing_files_are_named_with_their_places(tmp_path):
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
    assert len(five(tmp_path, "mnist")) == 20, "the part that is there will do"


def test_corrupt_images_are_named_or_left_out(tmp_path):
    png_folder(tmp_path, "mnist_m")
    broken = tmp_path / "mnist_m_train/00000003.png"
    broken.write_bytes(broken.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"00000003\.png: cannot be decoded .* data\.skip_corrupt=true"):
        five(tmp_path, "mnist-m")
    samples = five(tmp_path, "mnist-m", skip_corrupt=True)
    assert samples.skipped == 1
    assert samples.labels.tolist() == np.delete(DIGITS, 3).tolist()
    assert len(samples.array()) == 19


def test_images_that_a_list_names_must_be_there(tmp_path):
    png_folder(tmp_path, "mnist_m")
    (tmp_path / "mnist_m_train/00000003.png").unlink()
    with pytest.raises(ValueError, match=r"mnist_m_train_labels\.txt: 1 of 20 images are not in .*: 00000003\.png\. "):
        DIGIT_FIVE.load(data("digit-five", tmp_path), "mnist-m")
    assert len(five(tmp_path, "mnist-m")) == 19


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("domain", "part", "count"),
    [("mnist", "train", 60_000), ("mnist", "test", 10_000), ("usps", "all", 9_298)],
)
def test_the_real_digits(data_root, domain, part, count):
    samples = DIGIT_FIVE.load(data("digit-five", data_root, split=part), domain)
    assert samples.array().shape == (count, 3, 32, 32)
    assert set(samples.labels) == set(range(10))


@pytest.mark.realdata
def test_the_real_mnist_m_is_a_part(data_root):
    with pytest.raises(ValueError, match=r"10,000 samples .* expected 60,000 or 59,001 or 55,000"):
        DIGIT_FIVE.load(data("digit-five", data_root), "mnist-m")
    samples = DIGIT_FIVE.load(data("digit-five", data_root, split="all", allow_partial=True), "mnist-m")
    assert samples.array().shape == (15_000, 3, 32, 32)
    assert set(samples.labels) == set(range(10))
