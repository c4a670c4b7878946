import shutil

import numpy as np
import pytest

from fedrf.config.registry import DATASETS
from fedrf.data.datasets import office31
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

OFFICE31 = DATASETS.find("office31")


def test_tables_agree_with_the_papers():
    assert len(office31.CLASSES) == 31
    assert sorted(office31.CLASSES) == list(office31.CLASSES)
    assert {domain: sum(counts) for domain, counts in office31.COUNTS.items()} == {
        "amazon": 2817,
        "dslr": 498,
        "webcam": 795,
    }


@pytest.mark.parametrize(
    "layout", ["office31/{}/images", "office31/{}", "Office_31/{}", "{}/images", "domain_adaptation_images/{}/images"]
)
def test_common_layouts_are_found(tmp_path, layout):
    for name in ("back_pack", "Trash Can"):
        images(tmp_path / layout.format("amazon") / name)
    samples = load("office31", tmp_path, "amazon")
    assert sorted(samples.labels) == [0, 0, 30, 30]
    assert OFFICE31.locate(data("office31", tmp_path), "amazon") == tmp_path / layout.format("amazon")


def test_a_complete_copy_is_accepted_and_an_error_names_incomplete_classes(tmp_path):
    write_complete_office31(tmp_path)
    config = data("office31", tmp_path)
    assert [len(OFFICE31.load(config, domain)) for domain in ("amazon", "dslr", "webcam")] == [2817, 498, 795]
    folder = tmp_path / "office31/dslr/images"
    (folder / "mug/frame_0001.jpg").unlink()
    for name in ("bike", "pen", "phone"):
        shutil.rmtree(folder / name)
    with pytest.raises(ValueError, match="expected 498") as caught:
        OFFICE31.load(config, "dslr")
    assert str(caught.value) == (
        f"{folder}: 453 samples of office31, domain dslr; expected 498: bike 0 of 21, mug 7 of 8, pen 0 of 10 "
        "and 1 more. Copy it again, or set data.allow_partial=true to use this part"
    )
    (tmp_path / "office31/webcam/images/mug/moved.jpg").write_bytes(b"")
    (tmp_path / "office31/webcam/images/pen/frame_0001.jpg").unlink()
    with pytest.raises(ValueError, match=r"795 samples .* expected 795: mug 28 of 27, pen 31 of 32"):
        OFFICE31.load(config, "webcam")
    partial = load("office31", tmp_path, "dslr")
    assert len(partial) == 453
    assert office31.CLASSES.index("bike") not in partial.labels
    assert partial.labels.max() == 30, "labels do not depend on missing classes"


def test_folders_of_other_classes_are_rejected_even_in_partial_data(tmp_path):
    write_office31(tmp_path)
    image(tmp_path / "office31/webcam/images/zebra/1.jpg")
    with pytest.raises(ValueError, match=r"webcam/images/zebra: not a class of office31; move it elsewhere"):
        load("office31", tmp_path, "webcam")


def test_two_folders_of_one_class_are_rejected(tmp_path):
    write_office31(tmp_path)
    image(tmp_path / "office31/webcam/images/Back Pack/1.jpg")
    with pytest.raises(ValueError, match=r"webcam/images/back_pack: a second folder of class back_pack"):
        load("office31", tmp_path, "webcam")


def test_system_files_are_ignored(tmp_path):
    write_office31(tmp_path)
    (tmp_path / "office31/dslr/images/.DS_Store").touch()
    (tmp_path / "office31/dslr/images/pen/Thumbs.db").touch()
    (tmp_path / "office31/dslr/__MACOSX").mkdir()
    assert len(load("office31", tmp_path, "dslr")) == 62


def test_an_error_names_an_empty_domain(tmp_path):
    (tmp_path / "office31/dslr/images/pen").mkdir(parents=True)
    with pytest.raises(ValueError, match="dslr/images: no image in it"):
        load("office31", tmp_path, "dslr")


def test_images_without_class_folders_are_rejected(tmp_path):
    image(tmp_path / "office31/dslr/1.jpg")
    with pytest.raises(ValueError, match=r"dslr: no class folder of office31, such as back_pack, bike, bike_helmet"):
        load("office31", tmp_path, "dslr")


def test_features_are_found_by_the_name_of_folder_or_file(tmp_path):
    write_features(tmp_path / "office31", ("amazon_surf", "amazon_decaf6", "Webcam-DeCAF"), 31, 4096)
    decaf = DATASETS.find("office31-decaf6")
    assert decaf.locate(data("office31-decaf6", tmp_path), "amazon").name == "amazon_decaf6.mat"
    assert decaf.locate(data("office31-decaf6", tmp_path), "webcam").name == "Webcam-DeCAF.mat"
    write_features(tmp_path / "office31/DeCAF6", ("A", "w"), 31, 4096)
    assert decaf.locate(data("office31-decaf6", tmp_path), "amazon").parent.name == "DeCAF6"
    assert load("office31-decaf6", tmp_path, "webcam").labels.tolist() == [*range(31), *range(31)]


def test_labels_can_start_at_zero(tmp_path):
    labels = np.arange(31)
    arrays(tmp_path / "office31/decaf6/dslr.npz", X=np.ones((31, 4096)), y=labels)
    assert load("office31-decaf6", tmp_path, "dslr").labels.tolist() == labels.tolist()


@pytest.mark.realdata
@pytest.mark.parametrize("domain", ["amazon", "dslr", "webcam"])
def test_real_images(data_root, domain):
    samples = OFFICE31.load(data("office31", data_root), domain)
    assert tuple(np.bincount(samples.labels)) == office31.COUNTS[domain]
    assert min(samples.content.image(0).size) == 256
    assert samples.names()[0].startswith("back_pack/frame_0001")
