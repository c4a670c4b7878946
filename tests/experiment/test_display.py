"""The live display: its contents, and that nothing is printed without a terminal."""

import io

import pytest
from rich.console import Console

from fedrf.config.loader import load_config
from fedrf.experiment.display import Display, size
from fedrf.federation.status import Status
from fedrf.protocol.place import Place

STATUS = Status(
    rows=[{"client": "street", "round": 9, "loss": 0.25, "mmd": 0.001}],
    rounds={"street": 10, "rendered": 3, "textured": 10, "handwritten": 10},
    present=frozenset({"street", "rendered", "handwritten"}),
    finished=frozenset({"handwritten"}),
    traffic={("up", "aligner"): 1_500_000, ("down", "aligner"): 500_000},
    places={"street": Place("node-7", "cuda:0", "A100", 80_000)},
    seconds=12.0,
)


def display_texts(terminal, method="fedrf-plus"):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    with Display(load_config(None, {"method": method}), "handwritten", console) as display:
        display.update(STATUS)
        console_table = Console(file=io.StringIO(), width=100)
        console_table.print(display.table(STATUS))
    return console.file.getvalue(), console_table.file.getvalue()


def test_rounds_losses_bytes_stragglers_and_lost_clients():
    _, text = display_texts(True)
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "2.0 MB sent" in text
    assert "10/150" in lines["street"]
    assert "0.25" in lines["street"]
    assert "node-7 cuda:0" in lines["street"]
    assert "straggler" in lines["rendered"]
    assert "gone, restarting" in lines["textured"]
    assert "done" in lines["handwritten"]


def test_no_rounds_are_shown_if_there_are_none():
    _, text = display_texts(True, "fedrf-oneshot")
    assert "street" in text
    assert "/0" not in text


def test_nothing_is_printed_without_a_terminal():
    assert display_texts(False)[0] == ""
    assert display_texts(True)[0] != ""


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2e6, "2.0 MB"), (3e12, "3000.0 GB")]
)
def test_sizes(number, text):
    assert size(number) == text
