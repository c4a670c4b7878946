"""`fedrf paper`: what the command prints and writes."""

import json
import re
from pathlib import Path

import pytest

from fedrf.files import locked
from fedrf.paper.experiments import EXPERIMENTS, robustness
from fedrf.paper.plan import Experiment
from fedrf.paper.setting import Setting
from tests.cli.calls import call
from tests.paper.computations import TINY_RUN


def tiny(setting: Setting):
    """Return table III with tiny runs."""
    plan = robustness.TABLE3.recipe(Setting(True, None, (0,)))
    cells = []
    for cell in plan.cells[:3]:
        senders = cell.job.settings["federation"]["classifiers_from"]
        settings = {**TINY_RUN, "federation.classifiers_from": senders}
        cells.append(cell._replace(job=setting.run(0, settings)))
    return plan.__class__(tuple(cells), plan.notes)


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDRF_DATA", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setitem(EXPERIMENTS, "table3-drops", Experiment("table3-drops", "lost messages", tiny))
    monkeypatch.chdir(tmp_path)


def test_list_says_what_can_be_run_and_what_is_missing(monkeypatch, capsys):
    code, out, _ = call(["paper", "list", "--json"], monkeypatch, capsys)
    assert code == 0
    states = {entry["id"]: entry for entry in json.loads(out)}
    assert list(states) == list(EXPERIMENTS)
    assert states["table6-digit-five"]["quick"].startswith("ready")
    assert states["table6-digit-five"]["full"].startswith("needs mnist, mnist-m")
    assert states["table4-office31"]["quick"].startswith("needs amazon, dslr, webcam of office31")
    assert "Table IV" in states["table4-office31"]["place"]
    assert states["theorem1"]["done"] is None
    code, out, _ = call(["paper", "list"], monkeypatch, capsys)
    assert all(name in out for name in EXPERIMENTS)


def test_run_show_and_page(monkeypatch, capsys, tmp_path):
    code, out, err = call(["paper", "run", "table3-drops", "--quick", "--jobs", "1"], monkeypatch, capsys)
    assert code == 0
    assert "to run, 1 at a time, about" in err
    assert "mm,sv,sy,up→mt" in out
    assert "97.6" in out  # of the paper
    folder = tmp_path / "paper"
    outcome = json.loads((folder / "table3-drops.quick.json").read_text())
    assert outcome["mode"] == "quick"
    assert len(outcome["tables"][0]["rows"]["mm,sv,sy,up→mt"]["(I)"]) == 1
    # A second call has nothing to run.
    code, again, err = call(["paper", "run", "table3-drops", "--quick", "--jobs", "1"], monkeypatch, capsys)
    assert code == 0
    assert err == ""
    for command in ("show", "table"):
        code, shown, _ = call(["paper", command, "table3-drops"], monkeypatch, capsys)
        assert code == 0
        assert shown.splitlines()[:6] == again.splitlines()[:6]
    page = (folder / "paper.html").read_text()
    assert 'id="table3-drops.quick"' in page
    assert page.count("not run") == len(EXPERIMENTS) - 1
    assert not re.search(r"(src|href)=\"(?!#|https://arxiv)", page)  # self-contained


def test_figures_are_written_as_svg_and_png(monkeypatch, capsys, tmp_path):
    code, _, _ = call(
        ["paper", "run", "theorem1", "--quick", "--seeds", "0", "--jobs", "2", "--out", "out"], monkeypatch, capsys
    )
    assert code == 0
    assert (tmp_path / "out" / "theorem1.quick.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "out" / "theorem1.quick.svg").read_text()
    assert "<svg" in svg
    assert "Davis-Kahan bound" in svg
    assert "<svg" in (tmp_path / "out" / "paper.html").read_text()
    table = json.loads((tmp_path / "out" / "theorem1.quick.json").read_text())["tables"][-1]
    assert -0.8 < table["rows"]["error |HΣᵀW_RF − HKW_R|_F"]["n=800"][0] < -0.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "table10"], "'table10' is no table or figure of the paper; allowed: all, theorem1"),
        (["run", "table4-office31", "--quick"], "table4-office31: needs amazon, dslr, webcam of office31"),
        (["run", "table6-digit-five"], "table6-digit-five: needs mnist"),
        (["run", "theorem1", "--seeds", "a"], "--seeds takes whole numbers, at least 0, such as 0,1,2; got 'a'"),
        (["run", "theorem1", "--seeds=-1"], "--seeds takes whole numbers, at least 0, such as 0,1,2; got '-1'"),
        (["run", "all", "table10"], "'table10' is no table or figure of the paper"),
        (["run", "theorem1", "--out", "file"], "Invalid value for '--out'"),
        (["show", "all"], "nothing has been run in paper; `fedrf paper run all --quick` does it"),
        (["show", "theorem1"], "theorem1 has not been run in paper; `fedrf paper run theorem1 --quick` does it"),
    ],
)
def test_a_mistake_is_one_line(monkeypatch, capsys, arguments, message):
    Path("file").touch()
    code, _, err = call(["paper", *arguments], monkeypatch, capsys)
    assert code == 2
    assert err.startswith(f"fedrf: {message}")
    assert err.count("\n") == 1


def test_a_folder_that_another_call_uses_is_refused(monkeypatch, capsys, tmp_path):
    (tmp_path / "paper").mkdir()
    with locked(tmp_path / "paper", ""):
        code, _, err = call(["paper", "run", "table3", "--quick"], monkeypatch, capsys)
    assert code == 2
    assert "another `fedrf paper run` uses" in err


def test_a_damaged_outcome_does_not_stop_other_experiments(monkeypatch, capsys, tmp_path):
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "theorem1.quick.json").write_text("{")
    code, out, _ = call(["paper", "list", "--json"], monkeypatch, capsys)
    assert code == 0
    assert "cannot be read" in json.loads(out)[0]["done"]
    code, _, _ = call(["paper", "run", "table3", "--quick", "--jobs", "1"], monkeypatch, capsys)
    assert code == 0
    assert "theorem1.quick.json cannot be read" in (tmp_path / "paper" / "paper.html").read_text()
