import subprocess
import sys

import numpy as np
import pytest

from fedrf.config.registry import DATASETS
from fedrf.config.schema import DataConfig
from fedrf.data.content import Arrays
from fedrf.data.dataset import abbreviate, data_root, find_child, list_entries, normalize_name
from tests.data.layouts import LAYOUTS, data

PUBLISHED = [name for name in LAYOUTS if not DATASETS.find(name).user_defined]


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    """A function that writes a small version of a data set on its first call, and returns its root."""
    written = {}

    def root(name):
        if name not in written:
            written[name] = tmp_path_factory.mktemp(name)
            LAYOUTS[name](written[name])
        return written[name]

    return root


@pytest.fixture(autouse=True)
def few_generated_images(monkeypatch):
    monkeypatch.setattr("fedrf.data.datasets.digit_four.RENDERED_COUNTS", (40, 20))


def test_all_data_sets_but_the_embedded_one_have_a_small_version():
    assert set(LAYOUTS) == set(DATASETS.names()) - {"digits"}


@pytest.mark.parametrize("name", DATASETS.names())
def test_all_data_sets_can_be_configured_and_are_described(name):
    dataset = DATASETS.find(DataConfig(name=name, target="").name)
    assert dataset.name == name
    assert dataset.about
    assert dataset.origin
    assert "\n" not in dataset.about + dataset.origin


def test_descriptions_differ():
    descriptions = {dataset.about for _, dataset in DATASETS.items()}
    assert len(descriptions) == len(DATASETS.names())


def test_other_names_are_rejected():
    with pytest.raises(ValueError, match=r"allowed: digits, digit-five, .*, features, or package\.module:Name"):
        DataConfig(name="moons", target="")


def test_a_driver_with_all_data_sets_imports_no_slow_packages():
    code = """
import sys
import fedrf.data.domains
from fedrf.config.registry import DATASETS
list(DATASETS.items())
print(sorted({"torch", "torchvision", "scipy.io", "sklearn", "safetensors", "matplotlib"} & set(sys.modules)))
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_small_version_loads(roots, name):
    dataset, config = DATASETS.find(name), data(name, roots(name), allow_partial=True)
    domains, classes = dataset.domains(config), dataset.classes(config)
    assert len(domains) >= 2
    assert len(set(classes)) == len(classes)
    fingerprints = set()
    for domain in domains:
        path = dataset.locate(config, domain)
        assert path is None if (name, domain) == ("digit-four", "rendered") else path.exists()
        samples, outline = dataset.load(config, domain), dataset.outline(config, domain)
        assert len(samples) == len(samples.labels) == len(samples.content) > 1
        assert outline is None or np.array_equal(outline.labels, samples.labels)
        assert samples.labels.dtype == np.int64
        assert 0 <= samples.labels.min() < samples.labels.max() < len(classes)
        if dataset.content == "features":
            assert samples.array().dtype == np.float32
            assert samples.array().ndim == 2
        else:
            assert samples.content.image(0).getbands() == ("R", "G", "B")
        fingerprints.add(samples.content.fingerprint)
        again = dataset.load(config, domain)
        assert again.content.fingerprint == samples.content.fingerprint
        assert np.array_equal(again.labels, samples.labels)
    assert len(fingerprints) == len(domains)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_small_version_is_rejected_unless_partial_data_is_allowed(roots, name):
    dataset, config = DATASETS.find(name), data(name, roots(name))
    domain = dataset.domains(config)[0]
    with pytest.raises(ValueError, match=r"expected [\d,]+.*data\.allow_partial=true") as caught:
        dataset.load(config, domain)
    message = str(caught.value)
    assert message.startswith(str(roots(name)))
    assert f"{dataset.expected(config, domain)[0]:,}" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_root_can_be_the_folder_of_the_data_set(roots, name):
    dataset = DATASETS.find(name)
    config = data(name, roots(name), allow_partial=True)
    own = data(name, dataset.home(config), allow_partial=True)
    for domain in dataset.domains(own):
        assert dataset.locate(own, domain) == dataset.locate(config, domain)


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_error_about_a_missing_domain_has_its_path_and_origin(tmp_path, name):
    dataset, config = DATASETS.find(name), data(name, tmp_path)
    domain = next(iter(dataset.domains(config)), "clinic")
    for method in (dataset.locate, dataset.load):
        with pytest.raises(ValueError, match="not found; looked for") as caught:
            method(config, domain)
        message = str(caught.value)
        assert message.startswith(f"{name}: ")
        assert f"{tmp_path}/" in message
        assert domain in message
        assert message.endswith(f"Available from {dataset.origin}")
        assert "\n" not in message
        assert not dataset.folders or f"the folder {tmp_path / dataset.folders[0]}" in message


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_root_is_required_and_must_exist(tmp_path, monkeypatch, name):
    monkeypatch.delenv("FEDRF_DATA", raising=False)
    message = rf"data\.name={name} needs a data root: set data\.root or \$FEDRF_DATA"
    with pytest.raises(ValueError, match=message):
        DATASETS.find(name).locate(DataConfig(name=name, target=""), "amazon" if "office" in name else "train")
    with pytest.raises(ValueError, match=r"data\.root=.*/nowhere: no such folder"):
        DATASETS.find(name).home(data(name, tmp_path / "nowhere"))


@pytest.mark.parametrize("name", LAYOUTS)
def test_official_splits_add_up_and_are_an_error_for_other_data_sets(roots, name):
    dataset = DATASETS.find(name)
    train, test, both = (data(name, roots(name), allow_partial=True, split=split) for split in ("train", "test", "all"))
    domain = dataset.domains(both)[0]
    if dataset.splits:
        counts = [len(dataset.load(config, domain)) for config in (train, test, both)]
        assert counts[0] + counts[1] == counts[2]
        for domain in dataset.domains(both):
            sizes = [dataset.expected(config, domain)[0] for config in (train, test, both)]
            assert sizes[0] + sizes[1] == sizes[2]
    else:
        assert len(dataset.load(both, domain)) == len(dataset.load(train, domain))
        with pytest.raises(ValueError, match=rf"data\.split=test: {name} has no official splits"):
            dataset.load(test, domain)


def test_images_in_memory_are_in_colour(roots):
    samples = DATASETS.find("digit-five").load(data("digit-five", roots("digit-five"), allow_partial=True), "usps")
    assert isinstance(samples.content, Arrays)
    assert samples.content.shape == (3, 32, 32)


def test_case_and_punctuation_of_names_are_ignored(tmp_path):
    for name in ("Real World", ".hidden", "__MACOSX", "b", "B"):
        (tmp_path / name).mkdir()
    assert [entry.name for entry in list_entries(tmp_path)] == ["B", "Real World", "b"]
    for name in ("realworld", "real_world", "REAL-WORLD"):
        assert find_child(tmp_path, ("nothing", name)) == tmp_path / "Real World"
    assert find_child(tmp_path, ("b",)) == tmp_path / "B"
    assert find_child(tmp_path, ("hidden",)) is None
    assert find_child(tmp_path / "nowhere", ("b",)) is None
    assert normalize_name("Office_31 -") == "office31"


def test_an_error_names_a_file_that_should_be_a_folder(tmp_path):
    (tmp_path / "office31").mkdir()
    (tmp_path / "office31" / "amazon").touch()
    with pytest.raises(ValueError, match=r"office31/amazon: cannot be read \(Not a directory\)"):
        DATASETS.find("office31").load(data("office31", tmp_path), "amazon")


def test_a_given_root_is_preferred_to_that_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDRF_DATA", "/elsewhere")
    assert data_root(tmp_path) == tmp_path
    assert str(data_root()) == "/elsewhere"


def test_long_lists_are_abbreviated():
    assert abbreviate("ab") == "a, b"
    assert abbreviate("abcdefg", 2) == "a, b and 5 more"
