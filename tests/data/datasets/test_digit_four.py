import numpy as np
import pytest

from fedrf.config.schema import DataConfig
from fedrf.data.datasets.digit_five import DigitFive
from fedrf.data.datasets.digit_four import RENDERED, RENDERED_COUNTS, DigitFour
from tests.data.layouts import write_digit_five


def config(**keys):
    return DataConfig(name="digit-four", target="usps", **keys)


@pytest.fixture(scope="module")
def rendered():
    samples = DigitFour().load(config(split="all"), RENDERED)
    return samples.array(), samples.labels


def test_rendered_digits_are_colour_images_of_all_classes(rendered):
    images, labels = rendered
    assert images.shape == (sum(RENDERED_COUNTS), 3, 32, 32)
    assert images.dtype == np.uint8
    assert np.bincount(labels).tolist() == [sum(RENDERED_COUNTS) // 10] * 10
    assert (images.max(axis=(2, 3)) != images.min(axis=(2, 3))).any(axis=1).all(), "an image is blank"
    assert len({image.tobytes() for image in images}) == len(images)


def test_train_and_test_together_are_all_samples(monkeypatch):
    monkeypatch.setattr("fedrf.data.datasets.digit_four.RENDERED_COUNTS", (60, 20))
    train, test, both = (DigitFour().load(config(split=split), RENDERED) for split in ("train", "test", "all"))
    assert (len(train.labels), len(test.labels)) == (60, 20)
    assert np.array_equal(np.concatenate([train.array(), test.array()]), both.array())
    assert np.array_equal(np.concatenate([train.labels, test.labels]), both.labels)


def test_rendered_digits_can_be_classified(rendered):
    """Nearest neighbours of small greyscale images are far better than chance, so strokes and labels match."""
    from sklearn.neighbors import KNeighborsClassifier

    images, labels = rendered
    grey = images.astype(np.float32).mean(axis=1)
    middle = np.median(grey, axis=(1, 2), keepdims=True)
    ink = np.abs(grey - middle).reshape(-1, 16, 2, 16, 2).mean(axis=(2, 4)).reshape(len(labels), -1)
    model = KNeighborsClassifier(5, metric="cosine").fit(ink[:6000], labels[:6000])
    assert model.score(ink[6000:], labels[6000:]) > 0.4


def test_the_other_domains_are_those_of_digit_five(tmp_path):
    write_digit_five(tmp_path)
    keys = {"root": str(tmp_path), "target": "usps", "allow_partial": True}
    four, five = (DataConfig(name=name, **keys) for name in ("digit-four", "digit-five"))
    assert DigitFour().domains(four) == ("mnist", "mnist-m", "usps", RENDERED)
    assert np.array_equal(DigitFour().load(four, "usps").array(), DigitFive().load(five, "usps").array())
    assert DigitFour().locate(four, RENDERED) is None
    assert DigitFour().expected(four, RENDERED) == (RENDERED_COUNTS[0],)
