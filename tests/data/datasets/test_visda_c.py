import pytest

from fedrf.config.registry import DATASETS
from tests.data.layouts import data, image, lines, load, write_visda_c

VISDA = DATASETS.find("visda-c")


def test_tables_agree_with_the_papers():
    config = data("visda-c", "/")
    assert VISDA.expected(config, "train") == (152_397, 152_396)
    assert VISDA.expected(config, "validation") == (55_388,)
    assert len(VISDA.classes(config)) == 12
    assert VISDA.classes(config)[-2:] == ("train", "truck")


def test_the_list_selects_the_images(tmp_path):
    write_visda_c(tmp_path)
    folder = tmp_path / "visda_c/validation"
    image(folder / "bus/unlisted.png")
    lines(folder / "image_list.txt", "truck/a.png 11", "train/b.png 10")
    image(folder / "truck/a.png")
    image(folder / "train/b.png")
    samples = load("visda-c", tmp_path, "validation")
    assert samples.names() == ["truck/a.png", "train/b.png"]
    assert samples.labels.tolist() == [11, 10]


def test_class_folders_are_read_if_there_is_no_list(tmp_path):
    write_visda_c(tmp_path)
    listed = load("visda-c", tmp_path, "train")
    (tmp_path / "visda_c/train/image_list.txt").unlink()
    samples = load("visda-c", tmp_path, "train")
    assert sorted(samples.names()) == sorted(listed.names())
    assert sorted(samples.labels) == sorted(listed.labels)
    with pytest.raises(ValueError, match=r"visda_c/train: 24 samples .* expected 152,397 or 152,396\. Copy it again"):
        VISDA.load(data("visda-c", tmp_path), "train")


def test_label_and_folder_must_agree(tmp_path):
    write_visda_c(tmp_path)
    lines(tmp_path / "visda_c/train/image_list.txt", "bus/a.png 3")
    with pytest.raises(ValueError, match=r"image_list\.txt: bus/a\.png has label 3, so it must be in car/"):
        load("visda-c", tmp_path, "train")


def test_missing_images_and_incomplete_lists_are_rejected(tmp_path):
    write_visda_c(tmp_path)
    folder = tmp_path / "visda_c/validation"
    with pytest.raises(ValueError, match=r"image_list\.txt: 24 samples of visda-c, domain validation; expected 55,388"):
        VISDA.load(data("visda-c", tmp_path), "validation")
    for path in folder.glob("*/*.png"):
        path.unlink()
    with pytest.raises(
        ValueError, match=r"image_list\.txt: 24 of 24 images are not in .*aeroplane/src_0_.* and 23 more"
    ):
        load("visda-c", tmp_path, "validation")
