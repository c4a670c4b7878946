import numpy as np
import pytest

from fedrf.config.loader import load_config
from fedrf.config.schema import DataConfig
from fedrf.data.domains import clients_of, load_domain, load_samples, num_classes, settle, sources_and_target
from tests.data.layouts import write_visda_c


def data(*overrides):
    return load_config(None, overrides).data


def test_sources_default_to_all_but_the_target():
    assert clients_of(data("data.target=street")) == (("handwritten", "rendered", "textured"), "street")


def test_unknown_domains_are_named():
    with pytest.raises(ValueError, match=r"data\.sources='moon': the domains of digits are handwritten"):
        sources_and_target(data("data.sources=[moon]"))


def test_samples_are_limited_to_the_same_ones_every_time():
    some, again, everything = (load_domain(data(*keys), "street") for keys in (("data.samples=50",),) * 2 + ((),))
    assert len(some) == len(some.labels) == 50
    assert np.array_equal(some.rows, again.rows)
    assert np.array_equal(some.labels, everything.labels[some.rows])
    assert np.array_equal(some.array(), everything.array()[some.rows])
    assert len(np.unique(some.labels)) == 10
    assert len(load_domain(data("data.samples=1000000"), "street")) == len(everything)


def test_a_split_source_is_several_clients_that_have_all_of_it():
    config = data("data.partition=dirichlet", "data.clients=3", "data.sources=[street, rendered]")
    names = ("street:1", "street:2", "street:3", "rendered:1", "rendered:2", "rendered:3")
    assert clients_of(config) == (names, "handwritten")
    parts = [load_samples(config, name, seed=4) for name in names[:3]]
    whole = load_domain(config, "street")
    assert sorted(np.concatenate([part.rows for part in parts])) == list(range(len(whole)))
    assert all(np.array_equal(part.labels, whole.labels[part.rows]) for part in parts)
    again, other = load_samples(config, "street:2", seed=4), load_samples(config, "street:2", seed=5)
    assert np.array_equal(again.rows, parts[1].rows)
    assert not np.array_equal(other.rows, parts[1].rows)
    assert len(load_samples(config, "handwritten", seed=4)) == len(load_domain(config, "handwritten"))


def test_a_target_can_share_its_domain_with_sources():
    """The paper's implicit heterogeneity: one data set in five even parts, one of them without labels."""
    config = data("data.partition=even", "data.clients=4", "data.sources=[street]", "data.target=street")
    sources, target = clients_of(config)
    assert (sources, target) == (("street:1", "street:2", "street:3", "street:4"), "street")
    parts = [load_samples(config, name) for name in (*sources, target)]
    assert [len(part) for part in parts] == [360] * 5
    assert sorted(np.concatenate([part.rows for part in parts])) == list(range(1800))


def test_a_driver_settles_what_clients_must_agree_on(tmp_path, monkeypatch):
    for domain, kinds in {"clinic": "ab", "ward": "bc", "home": "a"}.items():
        for kind in kinds:
            folder = tmp_path / domain / kind
            folder.mkdir(parents=True)
            (folder / "1.png").write_bytes(b"")
    monkeypatch.setenv("FEDRF_DATA", str(tmp_path))
    config = settle(data("data.name=folder", "data.target=home"))
    assert config.root == str(tmp_path)
    assert config.classes == ("a", "b", "c")
    assert num_classes(config) == 3
    monkeypatch.delenv("FEDRF_DATA")
    elsewhere = data("data.name=folder", "data.target=home", "data.sources=[clinic]", "data.classes=[a, b, c]")
    assert settle(elsewhere) == elsewhere  # a driver need not see the data
    with pytest.raises(ValueError, match=r"needs a data root: set data\.root or \$FEDRF_DATA"):
        settle(data("data.name=folder", "data.target=home"))


def test_what_a_driver_settled_stays_when_folders_change(tmp_path):
    for domain in ("clinic", "ward", "home"):
        for kind in "ab":
            (tmp_path / domain / kind).mkdir(parents=True)
    config = settle(data("data.name=folder", f"data.root={tmp_path}", "data.target=home"))
    (tmp_path / "runs/first").mkdir(parents=True)
    assert clients_of(config) == (("clinic", "ward"), "home")
    assert clients_of(settle(config)) == (("clinic", "ward"), "home")


def test_a_name_that_is_also_a_part_is_refused():
    config = DataConfig(name="features", target="a:1", sources=("a",), classes=("0", "1"), partition="even", clients=2)
    with pytest.raises(ValueError, match="'a:1' is called like a part of a source"):
        clients_of(config)


def test_rows_keep_their_names_when_they_are_scaled(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.random.RandomState(0).randn(20, 3), y=np.arange(20) % 2)
    keys = ["data.name=features", f"data.root={tmp_path}", "data.sources=a", "data.target=a", "data.partition=even"]
    plain, scaled = (load_samples(data(*keys, f"data.scale={scale}"), "a") for scale in ("none", "standard"))
    assert scaled.names() == plain.names() == [str(row) for row in plain.rows]
    assert np.array_equal(scaled.labels, plain.labels)
    np.testing.assert_allclose(scaled.array().mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.array().std(axis=0), 1, atol=1e-5)


def test_what_is_not_complete_is_noted(tmp_path):
    write_visda_c(tmp_path)
    samples = load_domain(
        data("data.name=visda-c", "data.target=validation", f"data.root={tmp_path}", "data.allow_partial=true"), "train"
    )
    assert samples.notes == ("train: 24 of 152,397 samples are there",)
    assert samples.take(np.arange(3)).notes == samples.notes
