import os
import subprocess
import sys

import pytest

from fedrf.closed_form import accuracy, align_pair
from fedrf.demo import METHODS, office_caltech, shifted_digits


@pytest.mark.parametrize("method", ["TCA", "R-TCA", "RF-TCA gaussian"])
def test_alignment_bridges_a_change_of_light(method):
    digits = shifted_digits()
    source, target = digits["plain"], digits["left"]
    before = accuracy("SVM", source, target)
    pair = align_pair(source, target, METHODS[method]())
    after = accuracy("SVM", pair.aligned_source, pair.aligned_target)
    assert after > before + 0.05


@pytest.mark.slow
def test_demo_runs_without_any_data():
    done = subprocess.run(
        [sys.executable, "-m", "fedrf.demo"],
        capture_output=True,
        text=True,
        env={**os.environ, "FEDRF_DATA": "", "COLUMNS": "100"},
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "plain→left" in done.stdout
    assert "mean" in done.stdout


@pytest.mark.realdata
def test_office_caltech_has_four_domains(data_root):
    domains = office_caltech()
    assert {name: len(domain.features) for name, domain in domains.items()} == {"A": 958, "C": 1123, "D": 157, "W": 295}


@pytest.mark.realdata
def test_dslr_to_webcam_improves_by_far(data_root):
    domains = office_caltech()
    source, target = domains["D"], domains["W"]
    before = accuracy("1-NN", source, target)
    pair = align_pair(source, target, METHODS["RF-TCA gaussian"]())
    after = accuracy("1-NN", pair.aligned_source, pair.aligned_target)
    assert after > before + 0.1
