import pytest
from rich.console import Console

from fedrf.cli import demo
from fedrf.comparison.variants import DEFAULT
from fedrf.config.loader import load_config
from fedrf.config.registry import METHODS
from fedrf.data.datasets.digits import DOMAINS
from fedrf.experiment.results import RunResult


def test_the_demo_compares_methods_that_exist_on_targets_that_exist():
    assert demo.METHODS == ("fedavg", "source-only", "fedrf-tca", "fedrf-plus", "fedrf-oneshot")
    assert set(demo.METHODS) <= set(METHODS.names())
    assert len(demo.TARGETS) >= 2
    assert set(demo.TARGETS) <= set(DOMAINS)


def test_the_table_has_a_row_for_each_method(tmp_path, capsys):
    def result(accuracy):
        summary = {
            "target_accuracy": {"final": accuracy},
            "communication": {"bytes_total": 2_000_000},
            "seconds": {"total": 3.0},
        }
        return RunResult(tmp_path, load_config(), summary)

    results = {(method, target): result(0.5) for method in demo.METHODS for target in demo.TARGETS}
    results[DEFAULT, demo.TARGETS[0]] = result(0.987)
    Console(width=120).print(demo.table(results))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.split() and line.split()[0] in demo.METHODS] == list(demo.METHODS)
    assert any("98.7" in line and "2.0 MB" in line for line in lines if DEFAULT in line)


@pytest.mark.slow
@pytest.mark.ray
def test_our_methods_clearly_win_the_demo(ray_session, tmp_path):
    """The demo itself, on one of its targets."""
    import fedrf

    keys = {"data.target": "street", "resources.accelerator": "cpu"}
    accuracy = {
        method: fedrf.run(
            "digits", {**keys, "method": method}, out=tmp_path / method, session=ray_session
        ).target_accuracy
        for method in ("fedavg", "fedrf-plus", DEFAULT)  # the best of the others
    }
    assert min(accuracy["fedrf-plus"], accuracy[DEFAULT]) > accuracy["fedavg"] + 0.05
