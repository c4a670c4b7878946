import subprocess
import sys
from typing import get_args

import numpy as np
import pytest

from fedrf.config.schema import DataConfig
from fedrf.data.dataset import data_root, entries, find_child, plain, some
from fedrf.config.registry import DATASETS
from fedrf.data.samples import Arrays
from tests.data.layouts import LAYOUTS, data

ROWS_OF_FEATURES = [name for name in LAYOUTS if "surf" in name or "decaf" in name or name == "features"]


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    """A folder with a small version of each data set, written when it is first asked for."""
    written = {}

    def root(name):
        if name not in written:
            written[name] = tmp_path_factory.mktemp(name)
            LAYOUTS[name](written[name])
        return written[name]

    return root


def test_every_name_of_the_configuration_is_a_data_set_and_has_a_small_version():
    assert list(DATASETS) == list(get_args(DataConfig.model_fields["name"].annotation))
    assert set(LAYOUTS) == set(DATASETS) - {"digits"}


def test_each_tells_what_it_is_and_where_it_comes_from():
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert dataset.about
        assert dataset.origin
        assert "\n" not in dataset.about + dataset.origin
    assert len({dataset.about for dataset in DATASETS.values()}) == len(DATASETS)


def test_a_driver_that_knows_all_data_sets_imports_nothing_slow():
    code = (
        "import sys, fedrf.data.domains; slow = {'torch', 'torchvision', 'scipy.io', 'sklearn', 'safetensors'}; "
        "print(sorted(slow & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_small_version_loads(roots, name):
    dataset, config = DATASETS.find(name), data(name, roots(name), allow_partial=True)
    domains, classes = dataset.domains(config), dataset.classes(config)
    assert len(domains) >= 2
    assert len(set(classes)) == len(classes)
    prints = set()
    for domain in domains:
        place = dataset.locate(config, domain)
        assert place is None if (name, domain) == ("digit-four", "rendered") else place.exists()
        samples = dataset.load(config, domain)
        assert len(samples) == len(samples.labels) == len(samples.content) > 1
        assert samples.labels.dtype == np.int64
        assert 0 <= samples.labels.min() < samples.labels.max() < len(classes)
        if name in ROWS_OF_FEATURES:
            assert samples.array().dtype == np.float32
        else:
            assert samples.content.image(0).getbands() == ("R", "G", "B")
        prints.add(samples.content.fingerprint)
        again = dataset.load(config, domain)
        assert again.content.fingerprint == samples.content.fingerprint
        assert np.array_equal(again.labels, samples.labels)
    assert len(prints) == len(domains)


@pytest.mark.parametrize("name", sorted(set(LAYOUTS) - {"folder", "features"}))
def test_a_small_version_is_refused_unless_that_is_meant(roots, name):
    dataset, config = DATASETS.find(name), data(name, roots(name))
    domain = dataset.domains(config)[0]
    with pytest.raises(ValueError, match=r"expected [\d,]+.*data\.allow_partial=true") as caught:
        dataset.load(config, domain)
    message = str(caught.value)
    assert message.startswith(str(roots(name)))
    assert f"{dataset.expected(config, domain)[0]:,}" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_root_may_be_the_folder_of_the_data_set_itself(roots, name):
    dataset = DATASETS.find(name)
    config = data(name, roots(name), allow_partial=True)
    own = data(name, dataset.home(config), allow_partial=True)
    for domain in dataset.domains(own):
        assert dataset.locate(own, domain) == dataset.locate(config, domain)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_missing_domain_is_told_with_the_place_and_where_to_get_it(tmp_path, name):
    dataset, config = DATASETS.find(name), data(name, tmp_path)
    domain = next(iter(dataset.domains(config)), "clinic")
    for look in (dataset.locate, dataset.load):
        with pytest.raises(ValueError, match="not found; looked for") as caught:
            look(config, domain)
        message = str(caught.value)
        assert message.startswith(f"{name}: ")
        assert f"{tmp_path}/" in message
        assert domain in message
        assert message.endswith(f"To be had from {dataset.origin}")
        assert "\n" not in message
        assert not dataset.folders or f"the folder {tmp_path / dataset.folders[0]}" in message


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_root_is_needed_and_must_exist(tmp_path, monkeypatch, name):
    monkeypatch.delenv("FEDRF_DATA", raising=False)
    message = rf"data\.name={name} needs a data root: set data\.root or \$FEDRF_DATA"
    with pytest.raises(ValueError, match=message):
        DATASETS.find(name).locate(DataConfig(name=name, target=""), "amazon" if "office" in name else "train")
    with pytest.raises(ValueError, match=r"data\.root=.*/nowhere: no such folder"):
        DATASETS.find(name).home(data(name, tmp_path / "nowhere"))


@pytest.mark.parametrize("name", LAYOUTS)
def test_parts_are_for_data_sets_that_have_them(roots, name):
    dataset = DATASETS.find(name)
    whole = data(name, roots(name), allow_partial=True, split="all")
    test = data(name, roots(name), allow_partial=True, split="test")
    domain = dataset.domains(whole)[0]
    if dataset.splits:
        train = data(name, roots(name), allow_partial=True)
        counts = [len(dataset.load(config, domain)) for config in (train, test, whole)]
        assert counts[0] + counts[1] == counts[2]
        for one in dataset.domains(whole):
            first = [dataset.expected(config, one)[0] for config in (train, test, whole)]
            assert first[0] + first[1] == first[2]
    else:
        assert len(dataset.load(whole, domain)) == len(dataset.load(data(name, whole.root, allow_partial=True), domain))
        with pytest.raises(ValueError, match=rf"data\.split=test: {name} does not come in such parts"):
            dataset.load(test, domain)


def test_images_in_memory_are_colour(roots):
    samples = DATASETS.find("digit-five").load(data("digit-five", roots("digit-five"), allow_partial=True), "usps")
    assert isinstance(samples.content, Arrays)
    assert samples.content.shape == (3, 32, 32)


def test_names_are_found_whatever_their_case_and_punctuation(tmp_path):
    for name in ("Real World", ".hidden", "__MACOSX", "b", "B"):
        (tmp_path / name).mkdir()
    assert [entry.name for entry in entries(tmp_path)] == ["B", "Real World", "b"]
    for name in ("realworld", "real_world", "REAL-WORLD"):
        assert find_child(tmp_path, ("nothing", name)) == tmp_path / "Real World"
    assert find_child(tmp_path, ("b",)) == tmp_path / "B"
    assert find_child(tmp_path, ("hidden",)) is None
    assert find_child(tmp_path / "nowhere", ("b",)) is None
    assert plain("Office_31 -") == "office31"


def test_a_file_in_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "office31").mkdir()
    (tmp_path / "office31" / "amazon").touch()
    with pytest.raises(ValueError, match=r"office31/amazon: cannot be read \(Not a directory\)"):
        DATASETS.find("office31").load(data("office31", tmp_path), "amazon")


def test_the_root_given_goes_before_that_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDRF_DATA", "/elsewhere")
    assert data_root(tmp_path) == tmp_path
    assert str(data_root()) == "/elsewhere"


def test_long_lists_are_cut():
    assert some("ab") == "a, b"
    assert some("abcdefg", 2) == "a, b and 5 more"
