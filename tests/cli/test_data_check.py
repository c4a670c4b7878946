import json

import numpy as np
import pytest

from fedrf.config.loader import load_config
from fedrf.data.check import check_dataset
from fedrf.data.domains import clients_of, load_samples
from fedrf.data.partition import PARTITIONERS
from tests.cli.small_folders import statuses

pytestmark = pytest.mark.usefixtures("no_root")


def test_named_domains_only(root):
    overrides = ["data.sources=[amazon, dslr]"]
    assert list(statuses(check_dataset("folder", overrides, str(root)))) == ["amazon", "dslr"]
    assert list(statuses(check_dataset("folder", [*overrides, "data.target=webcam"], str(root)))) == [
        *("amazon", "dslr", "webcam")
    ]
    assert list(statuses(check_dataset("folder", ["data.target=amazon"], str(root)))) == ["dslr", "webcam", "amazon"]
    every = check_dataset("folder", ["data.sources=[amazon, dslr, webcam]"], str(root))
    assert every.ok  # no domain is left as a target, and a check needs none


def test_data_root_comes_before_the_key_and_the_environment(root, monkeypatch, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    monkeypatch.setenv("FEDRF_DATA", str(empty))
    assert not check_dataset("folder").ok
    assert check_dataset("folder", [f"data.root={root}"]).ok
    assert check_dataset("folder", [f"data.root={empty}"], str(root)).ok


@pytest.mark.parametrize("kind", PARTITIONERS)
@pytest.mark.parametrize("more", [[], ["data.sources=[amazon, webcam]", "data.target=webcam"]])
def test_clients_have_the_samples_that_they_have_in_a_run(root, kind, more):
    more = more or ["data.target=dslr"]
    overrides = [f"data.partition={kind}", "data.clients=3", "data.concentration=2", "seed=5", *more]
    report = check_dataset("folder", overrides, str(root))
    config = load_config(None, ["data.name=folder", f"data.root={root}", *overrides])
    sources, target = clients_of(config)
    assert [client.name for client in report.clients] == [*sources, target]
    for client in report.clients:
        labels = load_samples(config, client.name).labels
        assert (client.samples, client.counts) == (len(labels), tuple(np.bincount(labels, minlength=2)))


def test_seeds_split_differently(root):
    def split(seed):
        return check_dataset(
            "folder", ["data.partition=dirichlet", "data.clients=2", f"seed={seed}"], str(root)
        ).clients

    assert split(0) == split(0) != split(1)


def test_clients_of_a_missing_domain_are_left_out(small_office):
    (small_office / "dslr").rename(small_office / "elsewhere")
    report = check_dataset(
        "office31", ["data.partition=even", "data.clients=2", "data.target=webcam"], str(small_office)
    )
    assert not report.ok
    assert [client.name for client in report.clients] == ["amazon:1", "amazon:2", "webcam"]


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        ("moon", [], r"data\.name=moon: allowed: digits, digit-five, office31"),
        (
            "digits",
            ["train.rounds=3"],
            r"'train\.rounds' is not a key of a data check; allowed: seed, data\.root, .*data\.shards",
        ),
        ("digits", ["data.name=folder"], r"'data\.name' is not a key of a data check"),
        ("digits", ["data.partitions=even"], r"'data\.partitions' is not a key"),
        ("digits", ["data.partition=halves"], r"data\.partition='halves'"),
        ("digits", ["data.clients=4"], "clients=4 needs a data.partition"),
        ("digits", ["data.target=moon"], r"data\.target='moon': the domains of digits are handwritten"),
        ("digits", ["data.sources=[moon]"], r"data\.sources='moon': the domains of digits are handwritten"),
        (
            "digits",
            ["data.samples=20", "data.partition=even", "data.clients=11"],
            r"data\.clients=11: 20 samples are too few",
        ),
        ("office31", [], r"needs a data root: set data\.root or \$FEDRF_DATA"),
        ("folder", [], r"needs a data root: set data\.root or \$FEDRF_DATA"),
        ("office31", ["data.root=/nowhere"], "data.root=/nowhere: no such folder"),
    ],
)
def test_an_error_of_the_call_is_one_line(name, overrides, message):
    with pytest.raises(ValueError, match=message) as raised:
        check_dataset(name, overrides)
    assert "\n" not in str(raised.value)


def test_reports_are_json(root):
    report = check_dataset("folder", ["data.partition=even", "data.clients=2"], str(root), decode=True)
    plain = json.loads(json.dumps(report.as_json()))
    assert plain["ok"] is True
    assert plain["domains"][0]["counts"] == [6, 12]
    assert [client["name"] for client in plain["clients"]][-1] == "webcam"


@pytest.mark.realdata
def test_real_data_is_complete(data_root):
    decaf6 = ["data.sources=[dslr]", "data.target=webcam"]
    for name, overrides in (("office31", []), ("office-caltech10-surf", []), ("office-caltech10-decaf6", decaf6)):
        assert check_dataset(name, overrides, str(data_root)).ok


def test_features_with_different_columns_are_a_problem(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(4), y=np.arange(4) % 2)
    np.savez(tmp_path / "b.npz", X=np.ones((4, 3)))
    report = check_dataset("features", ["data.target=b"], str(tmp_path))
    assert [domain.status for domain in report.domains] == ["ok", "ok"]
    assert not report.ok
    assert "the same number of columns; found 4 in" in report.problem
    np.savez(tmp_path / "b.npz", X=np.ones((4, 4)))
    assert check_dataset("features", [], str(tmp_path)).ok  # b has no labels: it can be a target
