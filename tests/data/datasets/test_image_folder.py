import numpy as np
import pytest

from fedrf.config.registry import DATASETS
from fedrf.data.content import CorruptImageError, ImageFiles
from fedrf.data.datasets.image_folder import list_images
from fedrf.data.domains import resolve_data
from tests.data.layouts import data, image, images, write_folder

FOLDER = DATASETS.find("folder")


def test_classes_are_those_of_the_sources_and_not_of_the_target(tmp_path):
    images(tmp_path / "clinic/dog")
    images(tmp_path / "ward/cat")
    images(tmp_path / "home/zebra")
    config = data("folder", tmp_path, target="home")
    assert FOLDER.domains(config) == ("clinic", "home", "ward")
    assert FOLDER.classes(config) == ("cat", "dog")
    assert FOLDER.load(config, "clinic").labels.tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"home/zebra: not one of the classes cat, dog; see data\.classes"):
        FOLDER.load(config, "home")
    named = data("folder", tmp_path, target="home", sources=("clinic",), classes=("zebra", "dog"))
    assert FOLDER.classes(named) == ("zebra", "dog")
    assert FOLDER.load(named, "home").labels.tolist() == [0, 0]
    with pytest.raises(ValueError, match=r"ward/cat: not one of the classes zebra, dog"):
        FOLDER.load(named, "ward")


@pytest.mark.parametrize("inner", ["", "images/"])
def test_images_are_listed_in_order_and_other_files_are_ignored(tmp_path, inner):
    folder = tmp_path / "clinic" / inner
    for name in ("b.JPG", "a.jpeg", "c.png", "d.webp", "e.TIF", "f.bmp", "g.ppm", "h.gif"):
        image(folder / "cat" / name)
    image(folder / "dog/1.png")
    for name in ("cat/Thumbs.db", "cat/notes.txt", "cat/.hidden.jpg", ".DS_Store", "readme.md"):
        (folder / name).touch()
    (folder / ".git").mkdir()
    (folder / "mouse").mkdir()
    images(tmp_path / "ward/mouse")
    samples = FOLDER.load(data("folder", tmp_path), "clinic")
    assert samples.names() == [*(f"cat/{name}" for name in (
        "a.jpeg", "b.JPG", "c.png", "d.webp", "e.TIF", "f.bmp", "g.ppm", "h.gif")), "dog/1.png"]  # fmt: skip
    assert samples.labels.tolist() == [0] * 8 + [1]
    assert FOLDER.locate(data("folder", tmp_path), "clinic") == folder
    assert all(samples.content.image(row).size == (8, 6) for row in samples.rows)


@pytest.mark.parametrize("inner", ["", "images/"])
def test_a_target_without_class_folders_has_no_labels(tmp_path, inner):
    write_folder(tmp_path)
    images(tmp_path / "new" / inner, 3)
    config = resolve_data(data("folder", tmp_path, target="new"))
    assert config.classes == ("cat", "dog")
    samples = FOLDER.load(config, "new")
    assert len(samples) == 3
    assert samples.labels is None


def test_images_beside_class_folders_are_an_error(tmp_path):
    write_folder(tmp_path)
    image(tmp_path / "home/lost.jpg")
    with pytest.raises(ValueError, match=r"home: images both in class folders \(cat, dog\) and beside .*lost\.jpg"):
        FOLDER.load(data("folder", tmp_path), "home")


def test_folders_in_class_folders_are_an_error(tmp_path):
    write_folder(tmp_path)
    images(tmp_path / "home/cat/more")
    with pytest.raises(ValueError, match=r"home/cat/more: a folder inside a class folder"):
        FOLDER.load(data("folder", tmp_path), "home")


def test_a_domain_without_images_is_an_error(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "empty/cat").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"empty: no image in it or its class folders; names must end in \.jpg"):
        FOLDER.load(data("folder", tmp_path), "empty")


def test_one_class_is_not_enough(tmp_path):
    images(tmp_path / "clinic/cat")
    images(tmp_path / "home")
    with pytest.raises(ValueError, match=r"clinic: class folders found: cat; sources need at least two"):
        FOLDER.classes(data("folder", tmp_path, target="home"))


def test_links_are_followed(tmp_path):
    write_folder(tmp_path / "original")
    (tmp_path / "linked").symlink_to(tmp_path / "original/clinic")
    samples = FOLDER.load(data("folder", tmp_path, classes=("cat", "dog")), "linked")
    assert np.bincount(samples.labels).tolist() == [2, 2]


def test_an_error_names_a_broken_link(tmp_path):
    image(tmp_path / "clinic/a/1.jpg")
    (tmp_path / "clinic/a/2.jpg").symlink_to(tmp_path / "gone.jpg")
    with pytest.raises(ValueError, match=r"clinic/a/2\.jpg: a broken link"):
        list_images(tmp_path / "clinic")


def test_any_exception_of_pillow_is_a_corrupt_image(tmp_path, monkeypatch):
    image(tmp_path / "clinic/1.tif")

    def raise_type_error(path):
        raise TypeError("'float' object cannot be interpreted as an integer")

    monkeypatch.setattr("fedrf.data.content.Image.open", raise_type_error)
    with pytest.raises(CorruptImageError, match=r"1\.tif: cannot be decoded \('float' object"):
        ImageFiles(tmp_path / "clinic", ["1.tif"]).image(0)
