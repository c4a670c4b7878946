import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedrf.config.schema import DataConfig
from fedrf.data.datasets import digits, drawing


def load(name):
    draw = digits.Digits.load.__wrapped__  # other tests share what was drawn once
    samples = draw(digits.Digits(), DataConfig(), name)
    return samples.array(), samples.labels


@pytest.fixture(scope="module")
def domains():
    return {name: load(name) for name in digits.DOMAINS}


@pytest.mark.parametrize("name", digits.DOMAINS)
def test_images_are_greyscale_with_values_from_0_to_1(domains, name):
    images, labels = domains[name]
    assert images.shape == (len(labels), 1, 16, 16)
    assert images.dtype == np.float32
    assert labels.dtype == np.int64
    assert 1000 <= len(labels) <= 2000
    assert images.min() >= 0
    assert images.max() <= 1
    assert np.ptp(images, axis=(1, 2, 3)).min() > 0.1, "an image is blank"


@pytest.mark.parametrize("name", digits.DOMAINS)
def test_the_outline_has_the_size_of_a_domain_and_its_labels_where_they_matter(domains, name):
    labels = domains[name][1]
    assert len(digits.Digits().outline(DataConfig(), name)) == len(labels)
    for keys in ({"partition": "dirichlet"}, {"imbalance": 2.0}, {"missing_classes": 1}):
        assert np.array_equal(digits.Digits().outline(DataConfig(**keys), name).labels, labels)


@pytest.mark.parametrize("name", digits.DOMAINS)
def test_classes_are_balanced_and_all_among_the_first_samples(domains, name):
    labels = domains[name][1]
    assert set(labels[:100]) == set(range(drawing.NUM_CLASSES))
    shares = np.bincount(labels, minlength=drawing.NUM_CLASSES) / len(labels)
    assert shares.min() > 0.07
    assert shares.max() < 0.13


@pytest.mark.parametrize("name", digits.DOMAINS)
def test_a_second_call_returns_the_same_bits_for_any_global_random_state(domains, name):
    np.random.seed(5)
    images, labels = load(name)
    assert images.tobytes() == domains[name][0].tobytes()
    assert labels.tobytes() == domains[name][1].tobytes()


def test_all_images_of_all_domains_differ(domains):
    # scikit-learn's digits have no duplicates.
    rows = [image.tobytes() for images, _ in domains.values() for image in images]
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize("name", ["handwritten", "textured"])
def test_no_handwritten_digit_is_used_in_two_domains(domains, monkeypatch, name):
    """Blanking the originals of the other domain changes nothing; blanking its own changes every image."""
    images, labels, textured = digits._handwriting()
    assert len({image.tobytes() for image in images}) == len(images) == len(load_digits().target)
    own = textured if name == "textured" else ~textured
    for blank, equal in ((~own, True), (own, False)):
        kept = np.where(blank[:, None, None], 0, images).astype(np.uint8)
        monkeypatch.setattr(digits, "_handwriting", lambda kept=kept: (kept, labels, textured))
        same = (load(name)[0] == domains[name][0]).all(axis=(1, 2, 3))
        assert same.all() if equal else not same.any()


def test_no_font_is_used_in_two_domains():
    assert not set(drawing.SERIF_FONTS) & set(drawing.SANS_FONTS)
    glyphs = [
        glyph.tobytes()
        for fonts in (drawing.SERIF_FONTS, drawing.SANS_FONTS)
        for row in drawing.glyphs(fonts)
        for glyph in row
    ]
    assert len(set(glyphs)) == len(glyphs), "two fonts draw a digit equally, or do not have it"


def test_labels_match_the_images(domains):
    """Class means of one half classify the other half of the same domain far better than chance."""
    for name in ("handwritten", "rendered"):
        images, labels = domains[name]
        rows, half = images.reshape(len(images), -1), len(images) // 2
        means = np.stack([rows[:half][labels[:half] == digit].mean(0) for digit in range(10)])
        distances = ((rows[half:, None] - means) ** 2).sum(-1)
        assert (distances.argmin(1) == labels[half:]).mean() > 0.6


def test_domains_have_different_backgrounds(domains):
    corners = {name: images[:, 0, [0, 0, -1, -1], [0, -1, 0, -1]].mean() for name, (images, _) in domains.items()}
    assert corners["rendered"] < 0.1 < corners["textured"] < corners["street"]
