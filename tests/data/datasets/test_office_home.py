import shutil

import numpy as np
import pytest

from fedrf.config.registry import DATASETS
from tests.data.layouts import data, images, load, write_office_home

OFFICE_HOME = DATASETS.find("office-home")


def test_tables_agree_with_the_papers():
    config = data("office-home", "/")
    assert [OFFICE_HOME.expected(config, domain)[0] for domain in OFFICE_HOME.domains(config)] == [
        2427,
        4365,
        4439,
        4357,
    ]
    classes = OFFICE_HOME.classes(config)
    assert len(set(classes)) == 65
    assert sorted(classes) == list(classes)


@pytest.mark.parametrize("name", ["Real World", "RealWorld", "real_world", "Real"])
def test_the_fourth_domain_has_several_names(tmp_path, name):
    images(tmp_path / "office_home" / name / "TV")
    images(tmp_path / "office_home" / name / "Alarm Clock")
    assert load("office-home", tmp_path, "real-world").labels.tolist() == [0, 0, 58, 58]


def test_an_error_names_missing_classes(tmp_path):
    write_office_home(tmp_path)
    folder = tmp_path / "OfficeHomeDataset_10072016/Art"
    assert np.bincount(load("office-home", tmp_path, "art").labels).tolist() == [1] * 65
    for name in ("Bed", "Bike", "Couch", "Pan"):
        shutil.rmtree(folder / name)
    with pytest.raises(ValueError, match=r"expected 2,427: no Bed, no Bike, no Couch and 1 more\. ") as caught:
        OFFICE_HOME.load(data("office-home", tmp_path), "art")
    assert str(caught.value).startswith(f"{folder}: 61 samples")
    assert len(load("office-home", tmp_path, "art")) == 61
