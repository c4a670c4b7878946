"""Files of Digit-Five: pixels, labels, and errors that name the file."""

import bz2

import numpy as np
import pytest
from PIL import Image

from fedrf.config.registry import DATASETS
from fedrf.data.datasets.digit_readers import resize
from tests.data.layouts import (
    DIGITS,
    arrays,
    data,
    idx,
    load,
    random_images,
    write_digit_five,
    write_image_list,
)


def load_digits(root, domain, **keys):
    return load("digit-five", root, domain, **keys)


@pytest.mark.parametrize(("size", "channels"), [(28, 1), (28, 3), (16, 1), (40, 3), (32, 1)])
def test_resizing_is_equal_to_that_of_pillow(size, channels):
    images = np.moveaxis(random_images(0, size), -1, 1)[:, :channels]
    resized = resize(images)
    assert resized.shape == (20, 3, 32, 32)
    assert resized.dtype == np.uint8
    for channel in range(3):
        for row in range(20):
            # Real numbers, because Pillow rounds integers twice.
            picture = Image.fromarray(images[row, channel % channels].astype(np.float32))
            exact = np.asarray(picture.resize((32, 32), Image.Resampling.BILINEAR))
            assert np.abs(resized[row, channel] - exact).max() <= 0.5001


def test_resizing_in_blocks_changes_nothing(monkeypatch):
    images = np.moveaxis(random_images(0, 28), -1, 1)
    whole = resize(images)
    monkeypatch.setattr("fedrf.data.datasets.digit_readers.BLOCK", 7)
    assert np.array_equal(resize(images), whole)


def test_real_numbers_from_0_to_1_are_accepted_as_pixels(tmp_path):
    arrays(tmp_path / "mnist_m_train.npz", X=random_images(0, 32) / 255, y=DIGITS)
    assert np.array_equal(load_digits(tmp_path, "mnist-m").array(), random_images(0, 32).transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"X": random_images(0, 32) / 1.0}, "pixels must be uint8, or real numbers from 0 to 1; found float64"),
        ({"X": random_images(0, 32) / -255}, "pixels must be uint8"),
        ({"X": random_images(0, 32) * np.nan}, "pixels must be uint8"),
        ({"X": random_images(0, 32).astype(int)}, "pixels must be uint8, .*; found int64"),
        (
            {"X": random_images(0, 32)[:, :20]},
            r"images must have a shape such as \(n, size, size, 3\); found \(20, 20, 32, 3\)",
        ),
        ({"X": random_images(0, 32)[:0]}, r"found \(0, 32, 32, 3\)"),
        ({"y": DIGITS + 1}, "label 10; labels are 0 to 9"),
        ({"y": DIGITS - 1}, "label -1; labels are 0 to 9"),
        ({"y": DIGITS / 2}, "labels must be whole numbers or text, one for each sample; found 0.5"),
        ({"y": np.array(["a"] * 20)}, "label a; labels are 0 to 9"),
        ({"y": DIGITS[:5]}, "5 labels for 20 images"),
        ({"y": np.ones((20, 10))}, "labels in 10 columns must have one 1 in each row, and 0 elsewhere"),
        ({"X": None, "Z": DIGITS}, "no images found under train, train_data, X, x, images, data; the file has Z, y"),
        ({"y": None}, "no labels found under label_train, train_label, labels, .*; the file has X"),
    ],
)
def test_errors_about_content_name_the_file(tmp_path, content, message):
    complete = {"X": random_images(0, 32), "y": DIGITS, **content}
    present = {key: value for key, value in complete.items() if value is not None}
    path = arrays(tmp_path / "mnist_m_train.npz", **present)
    with pytest.raises(ValueError, match=message) as caught:
        load_digits(tmp_path, "mnist-m")
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("domain", "name", "content"),
    [
        ("mnist", "MNIST/raw/train-images-idx3-ubyte", idx(random_images(0, 28)[..., 0])[:-1]),
        ("mnist", "MNIST/raw/train-labels-idx1-ubyte", b""),
        ("usps", "USPS/usps.bz2", bz2.compress(b"1 1:0.5 2:0.5\n")),
        ("usps", "USPS/usps.bz2", b"not packed"),
        ("svhn", "SVHN/train_32x32.mat", b"cut short"),
        ("synthetic", "SYNTH/synth_train_32x32.mat", b"cut short"),
        ("mnist-m", "MNIST-M/mnist_m_train.npz", b"cut short"),
    ],
)
def test_errors_about_damaged_files_name_the_file(tmp_path, domain, name, content):
    write_digit_five(tmp_path)
    path = tmp_path / "Digit-Five" / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match="cannot be read") as caught:
        load_digits(tmp_path, domain)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_corrupt_images_are_an_error_or_skipped(tmp_path):
    write_image_list(tmp_path, "mnist_m")
    corrupt = tmp_path / "mnist_m_train/00000003.png"
    corrupt.write_bytes(corrupt.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"00000003\.png: cannot be decoded .* data\.skip_corrupt=true"):
        load_digits(tmp_path, "mnist-m")
    samples = load_digits(tmp_path, "mnist-m", skip_corrupt=True)
    assert samples.skipped == 1
    assert samples.labels.tolist() == np.delete(DIGITS, 3).tolist()
    assert len(samples.array()) == 19


def test_listed_images_must_exist_unless_partial_data_is_allowed(tmp_path):
    write_image_list(tmp_path, "mnist_m")
    (tmp_path / "mnist_m_train/00000003.png").unlink()
    with pytest.raises(ValueError, match=r"mnist_m_train_labels\.txt: 1 of 20 images are not in .*: 00000003\.png\. "):
        DATASETS.find("digit-five").load(data("digit-five", tmp_path), "mnist-m")
    assert len(load_digits(tmp_path, "mnist-m")) == 19
