import numpy as np
import pytest

from fedrf.config.registry import DATASETS
from fedrf.data.datasets import office_caltech10
from tests.data.layouts import (
    arrays,
    data,
    image,
    images,
    load,
    write_complete_office31,
    write_features,
    write_office31,
)

NAMES = "backpack touring-bike calculator head-phones computer-keyboard laptop-101 computer-monitor computer-mouse"
CALTECH = [*NAMES.split(), "coffee-mug", "video-projector"]


def test_tables_agree_with_the_papers():
    totals = {domain: sum(counts) for domain, counts in office_caltech10.COUNTS.items()}
    assert totals == {"amazon": 958, "caltech": 1123, "dslr": 157, "webcam": 295}
    assert len(office_caltech10.CLASSES) == 10


@pytest.mark.parametrize(
    "names",
    [
        CALTECH,
        [f"{number:03}.{name}" for number, name in enumerate(CALTECH, start=3)],
        ["Backpack", "bike", "calculator", "headphone", "keyboard", "laptop", "monitor", "mouse", "mug", "projector"],
        office_caltech10.CLASSES,
    ],
)
def test_classes_have_several_names(tmp_path, names):
    for label, name in enumerate(names):
        images(tmp_path / "Office-Caltech10/Caltech/images" / name, per_class=label + 1)
    samples = load("office-caltech10", tmp_path, "caltech")
    assert np.bincount(samples.labels).tolist() == list(range(1, 11))


def test_three_domains_are_read_from_a_folder_of_office31(tmp_path):
    write_complete_office31(tmp_path)
    (tmp_path / "office_caltech10/surf").mkdir(parents=True)
    dataset, config = DATASETS.find("office-caltech10"), data("office-caltech10", tmp_path)
    assert dataset.domains(config) == ("amazon", "caltech", "dslr", "webcam")
    for domain in ("amazon", "dslr", "webcam"):
        samples = dataset.load(config, domain)
        assert tuple(np.bincount(samples.labels)) == office_caltech10.COUNTS[domain]
    with pytest.raises(
        ValueError, match=r"domain caltech not found; looked for .*office_caltech10/caltech\. Available .*256"
    ):
        dataset.load(config, "caltech")
    (tmp_path / "office31/webcam/images/mug/frame_0001.jpg").unlink()
    with pytest.raises(ValueError, match=r"webcam/images: 294 samples .* expected 295: mug 26 of 27\. "):
        dataset.load(config, "webcam")


def test_its_own_folder_is_preferred_and_other_classes_are_rejected(tmp_path):
    write_office31(tmp_path)
    images(tmp_path / "office_caltech10/amazon/bike", per_class=5)
    assert load("office-caltech10", tmp_path, "amazon").labels.tolist() == [1] * 5
    image(tmp_path / "office_caltech10/amazon/zebra/1.jpg")
    with pytest.raises(ValueError, match=r"amazon/zebra: not a class of office-caltech10"):
        load("office-caltech10", tmp_path, "amazon")


def write_surf(root, name="amazon_SURF_L10.mat", **content):
    rows = np.random.RandomState(0).poisson(2.0, size=(10, 800)).astype(np.uint8)
    return arrays(
        root / "office_caltech10/surf" / name, **{"fts": rows, "labels": np.arange(1, 11)[:, None], **content}
    )


@pytest.mark.parametrize("keys", [("fts", "labels"), ("feas", "label"), ("Xt", "Yt")])
def test_common_keys(tmp_path, keys):
    write_features(tmp_path / "office_caltech10/surf", ["Caltech10"], 10, 800, keys, "_SURF_L10.mat")
    assert load("office-caltech10-surf", tmp_path, "caltech").labels.tolist() == [*range(10), *range(10)]


def test_counts_of_visual_words_become_shares(tmp_path):
    counts = np.zeros((10, 800), dtype=np.uint8)
    counts[1:, 0], counts[1:, 5] = 255, 85
    write_surf(tmp_path, fts=counts)
    shares = load("office-caltech10-surf", tmp_path, "amazon").array()
    assert not shares[0].any(), "a row without counts stays zero"
    np.testing.assert_array_equal(shares[1:, [0, 5]], [[0.75, 0.25]] * 9)


def test_standardised_histograms_are_not_changed(tmp_path):
    rows = np.random.RandomState(0).randn(10, 800).astype(np.float32)
    write_surf(tmp_path, fts=rows)
    np.testing.assert_array_equal(load("office-caltech10-surf", tmp_path, "amazon").array(), rows)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"fts": np.ones((10, 801))}, "801 columns; features of office-caltech10-surf have 800"),
        ({"labels": np.arange(2, 12)}, "label 11; labels of office-caltech10-surf are 1 to 10, or 0 to 9"),
        ({"labels": np.arange(11)[1:] % 10 * 10 // 9}, "label 10; labels of .* are 1 to 10, or 0 to 9"),
        ({"labels": -np.arange(1, 11)}, "label -1; labels"),
        ({"labels": np.array(list("abcdefghij"))}, "labels must be numbers from 1 to 10; found 'a'"),
        ({}, "10 samples of office-caltech10-surf, domain amazon; expected 958"),
    ],
)
def test_errors_about_content_name_the_file(tmp_path, content, message):
    path = write_surf(tmp_path, **content)
    with pytest.raises(ValueError, match=message) as caught:
        load("office-caltech10-surf", tmp_path, "amazon", allow_partial=bool(content))
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_labels_are_required(tmp_path):
    arrays(tmp_path / "office_caltech10/surf/dslr.mat", fts=np.ones((4, 800)))
    with pytest.raises(ValueError, match=r"dslr\.mat: no labels found under labels, label, Y"):
        load("office-caltech10-surf", tmp_path, "dslr")


def test_two_files_for_one_domain_are_rejected(tmp_path):
    write_surf(tmp_path)
    write_surf(tmp_path, "amazon_zscore_SURF_L10.mat")
    with pytest.raises(ValueError, match=r"amazon_SURF_L10\.mat and amazon_zscore_SURF_L10\.mat: two files for domain"):
        load("office-caltech10-surf", tmp_path, "amazon")


def test_an_error_lists_the_paths_of_a_missing_file(tmp_path):
    write_surf(tmp_path)
    pattern = tmp_path / "office_caltech10/surf/dslr*.mat"
    with pytest.raises(ValueError, match="domain dslr not found") as caught:
        load("office-caltech10-surf", tmp_path, "dslr")
    assert f"looked for {pattern} (or .npz, .safetensors), " in str(caught.value)


@pytest.mark.realdata
@pytest.mark.parametrize("domain", ["amazon", "dslr", "webcam"])
def test_real_images(data_root, domain):
    samples = DATASETS.find("office-caltech10").load(data("office-caltech10", data_root), domain)
    assert tuple(np.bincount(samples.labels)) == office_caltech10.COUNTS[domain]


@pytest.mark.realdata
@pytest.mark.parametrize("domain", ["amazon", "caltech", "dslr", "webcam"])
def test_real_histograms(data_root, domain):
    samples = DATASETS.find("office-caltech10-surf").load(data("office-caltech10-surf", data_root), domain)
    assert tuple(np.bincount(samples.labels)) == office_caltech10.COUNTS[domain]
    np.testing.assert_allclose(samples.array().sum(axis=1), 1, rtol=1e-5)


@pytest.mark.realdata
@pytest.mark.parametrize("domain", ["dslr", "webcam"])
def test_real_decaf6(data_root, domain):
    samples = DATASETS.find("office-caltech10-decaf6").load(data("office-caltech10-decaf6", data_root), domain)
    assert tuple(np.bincount(samples.labels)) == office_caltech10.COUNTS[domain]
    assert samples.content.shape == (4096,)


def test_other_classes_of_caltech_256_are_ignored(tmp_path):
    for name in ("001.ak47", "003.backpack", "257.clutter", "224.touring-bike"):
        image(tmp_path / "office_caltech10/caltech-256" / name / "1.jpg")
    samples = load("office-caltech10", tmp_path, "caltech")
    assert sorted(samples.names()) == ["003.backpack/1.jpg", "224.touring-bike/1.jpg"]
