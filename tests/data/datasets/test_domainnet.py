import shutil

import numpy as np
import pytest

from fedrf.config.registry import DATASETS
from tests.data.layouts import data, image, lines, load, write_domainnet

DOMAINNET = DATASETS.find("domainnet")


def test_tables_agree_with_the_papers():
    totals = [DOMAINNET.expected(data("domainnet", "/", split="all"), name)[0] for name in DOMAINNET.domains(None)]
    assert sum(totals) == 409_832 + 176_743
    assert DOMAINNET.expected(data("domainnet", "/", split="test"), "sketch") == (20_916,)


@pytest.mark.parametrize("folder", ["", "splits", "txt", "image_list"])
def test_lists_are_read_in_their_order(tmp_path, folder):
    write_domainnet(tmp_path)
    home = tmp_path / "domainnet"
    (home / folder).mkdir(exist_ok=True)
    for split in ("train", "test"):
        (home / f"sketch_{split}.txt").rename(home / folder / f"sketch_{split}.txt")
    samples = load("domainnet", tmp_path, "sketch")
    assert samples.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert samples.names()[2] == "sketch/airplane/sketch_002_000001.jpg"
    assert samples.content.image(2).size == (8, 6)
    assert len(load("domainnet", tmp_path, "sketch", split="test")) == 3
    assert load("domainnet", tmp_path, "sketch", split="all").labels.tolist() == [0, 0, 1, 1, 2, 2, 0, 1, 2]
    assert DOMAINNET.locate(data("domainnet", tmp_path), "sketch") == home / "sketch"


def test_classes_come_from_the_lists(tmp_path):
    write_domainnet(tmp_path, classes=[f"thing_{label}" for label in range(345)], draw=lambda path, shade: None)
    classes = DOMAINNET.classes(data("domainnet", tmp_path))
    assert classes == tuple(f"thing_{label}" for label in range(345))
    for path in (tmp_path / "domainnet").glob("[cipqr]*.txt"):
        path.unlink()
    assert DOMAINNET.classes(data("domainnet", tmp_path)) == classes, "the lists of the last domain are enough"
    for path in (tmp_path / "domainnet").glob("*.txt"):
        path.unlink()
    with pytest.raises(ValueError, match=r"any list of images not found; looked for .*domainnet/clipart_train\.txt"):
        DOMAINNET.classes(data("domainnet", tmp_path))


def test_lists_with_fewer_classes_are_rejected_unless_partial_data_is_allowed(tmp_path):
    write_domainnet(tmp_path)
    with pytest.raises(ValueError, match="3 of 345 classes; no line has label 3, 4, 5, 6, 7 and 337 more"):
        DOMAINNET.classes(data("domainnet", tmp_path))
    classes = DOMAINNET.classes(data("domainnet", tmp_path, allow_partial=True))
    assert len(set(classes)) == 345
    assert classes[:4] == ("aircraft_carrier", "airplane", "alarm_clock", "class 3")


def test_a_label_must_have_one_name(tmp_path):
    write_domainnet(tmp_path)
    path = tmp_path / "domainnet/real_test.txt"
    path.write_text(path.read_text() + "real/zebra/real_001_000009.jpg 1\n")
    image(tmp_path / "domainnet/real/zebra/real_001_000009.jpg")
    with pytest.raises(ValueError, match=r"real_test\.txt: real/zebra/.* has label 1, which is airplane on another"):
        load("domainnet", tmp_path, "real", split="test")


def test_missing_images_are_an_error_unless_partial_data_is_allowed(tmp_path, monkeypatch):
    write_domainnet(tmp_path)
    home = tmp_path / "domainnet"
    shutil.rmtree(home / "real/airplane")
    (home / "real/alarm_clock/real_003_000002.jpg").unlink()
    monkeypatch.setattr(type(DOMAINNET), "counts", {**DOMAINNET.counts, "real": (6, 3)})
    with pytest.raises(ValueError, match=r"real_train\.txt: 3 of 6 images are not in ") as caught:
        DOMAINNET.load(data("domainnet", tmp_path), "real")
    assert f"{home}: real/airplane/real_002_000001.jpg and 2 more. Copy the rest" in str(caught.value)
    samples = load("domainnet", tmp_path, "real")
    assert samples.labels.tolist() == [0, 0, 2]
    assert [samples.content.image(row).size for row in samples.rows] == [(8, 6)] * 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("real/airplane/1.jpg", "line 3 must be 'folder/file.jpg label'; found 'real/airplane/1.jpg'"),
        ("real/airplane/1.jpg one", "line 3 must be 'folder/file.jpg label'"),
        ("1", "line 3 must be 'folder/file.jpg label'"),
        ("real/airplane/1.jpg 345", "line 3 has label 345; labels are 0 to 344"),
        ("real/airplane/1.jpg -1", "line 3 has label -1; labels are 0 to 344"),
        ("/etc/passwd 1", "line 3 must name a file below the folder of images; found '/etc/passwd'"),
        ("real/../../1.jpg 1", "line 3 must name a file below the folder of images"),
    ],
)
def test_an_error_has_the_number_of_an_invalid_line(tmp_path, line, message):
    write_domainnet(tmp_path)
    path = lines(tmp_path / "domainnet/real_train.txt", "real/airplane/1.jpg 1", "", line)
    with pytest.raises(ValueError, match=message) as caught:
        load("domainnet", tmp_path, "real")
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "no line that names an image"), (b"\xff\xfe", "cannot be read")]
)
def test_an_error_names_an_invalid_list(tmp_path, content, message):
    write_domainnet(tmp_path)
    (tmp_path / "domainnet/real_train.txt").write_bytes(content)
    with pytest.raises(ValueError, match=f"real_train.txt: {message}"):
        load("domainnet", tmp_path, "real")


def test_lists_can_have_spaces_in_names_and_windows_line_ends(tmp_path):
    write_domainnet(tmp_path)
    image(tmp_path / "domainnet/real/The Eiffel Tower/a b.jpg")
    text = "\ufeff./real/The Eiffel Tower/a b.jpg 7\r\nreal/airplane/real_002_000001.jpg\t1\r\n"
    (tmp_path / "domainnet/real_train.txt").write_bytes(text.encode())
    samples = load("domainnet", tmp_path, "real")
    assert samples.names()[0] == "real/The Eiffel Tower/a b.jpg"
    assert np.array_equal(samples.labels, [7, 1])


def test_images_and_lists_are_both_required(tmp_path):
    write_domainnet(tmp_path)
    home = tmp_path / "domainnet"
    (home / "real_train.txt").unlink()
    shutil.rmtree(home / "sketch")
    for domain, path in (("real", home / "real_train.txt"), ("sketch", home / "sketch")):
        with pytest.raises(ValueError, match=f"domain {domain} not found; looked for {path}"):
            DOMAINNET.locate(data("domainnet", tmp_path), domain)
