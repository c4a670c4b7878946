import numpy as np
import pytest

from fedrf.config.loader import load_config
from fedrf.data.domains import (
    class_names,
    clients_of,
    load_domain,
    load_samples,
    num_classes,
    resolve_data,
    sources_and_target,
)
from tests.data.layouts import write_visda_c


def configure(*overrides):
    return load_config(None, overrides)


def data(*overrides):
    return configure(*overrides).data


def resolved(config):
    return config.model_copy(update={"data": resolve_data(config.data)})


def with_seed(config, seed):
    return config.model_copy(update={"seed": seed})


def test_sources_default_to_all_domains_but_the_target():
    assert clients_of(configure("data.target=street")) == (("handwritten", "rendered", "textured"), "street")


def test_an_error_names_an_unknown_domain():
    with pytest.raises(ValueError, match=r"data\.sources='moon': the domains of digits are handwritten"):
        sources_and_target(data("data.sources=[moon]"))


def test_a_limit_selects_the_same_samples_every_time():
    limited, again, everything = (
        load_domain(data(*keys), "handwritten") for keys in (("data.samples=50",),) * 2 + ((),)
    )
    assert len(limited) == len(limited.labels) == 50
    assert np.array_equal(limited.rows, again.rows)
    assert np.array_equal(limited.labels, everything.labels[limited.rows])
    assert np.array_equal(limited.array(), everything.array()[limited.rows])
    assert len(np.unique(limited.labels)) == 10
    assert len(load_domain(data("data.samples=1000000"), "handwritten")) == len(everything)


def test_the_clients_of_a_split_source_have_all_its_samples():
    config = configure(
        "seed=4",
        "data.partition=dirichlet",
        "data.clients=3",
        "data.sources=[handwritten, rendered]",
        "data.target=street",
    )
    names = ("handwritten:1", "handwritten:2", "handwritten:3", "rendered:1", "rendered:2", "rendered:3")
    assert clients_of(config) == (names, "street")
    parts = [load_samples(config, name) for name in names[:3]]
    whole = load_domain(config.data, "handwritten")
    assert sorted(np.concatenate([part.rows for part in parts])) == list(range(len(whole)))
    assert all(np.array_equal(part.labels, whole.labels[part.rows]) for part in parts)
    again, other = (load_samples(with_seed(config, seed), "handwritten:2") for seed in (4, 5))
    assert np.array_equal(again.rows, parts[1].rows)
    assert not np.array_equal(other.rows, parts[1].rows)
    assert len(load_samples(config, "street")) == 1800


def test_a_target_can_share_its_domain_with_sources():
    """The paper's implicit heterogeneity: one data set in five even parts, one of them without labels."""
    domain = ("data.sources=[handwritten]", "data.target=handwritten", "data.samples=1000")
    config = configure("data.partition=even", "data.clients=4", *domain)
    sources, target = clients_of(config)
    assert sources == ("handwritten:1", "handwritten:2", "handwritten:3", "handwritten:4")
    assert target == "handwritten"
    parts = [load_samples(config, name) for name in (*sources, target)]
    assert [len(part) for part in parts] == [200] * 5
    assert (
        sorted(np.concatenate([part.rows for part in parts])) == load_domain(config.data, "handwritten").rows.tolist()
    )


def test_a_driver_resolves_root_sources_and_classes(tmp_path, monkeypatch):
    for domain, classes in {"clinic": "ab", "ward": "bc", "home": "a"}.items():
        for name in classes:
            folder = tmp_path / domain / name
            folder.mkdir(parents=True)
            (folder / "1.png").write_bytes(b"")
    monkeypatch.setenv("FEDRF_DATA", str(tmp_path))
    config = resolve_data(data("data.name=folder", "data.target=home"))
    assert config.root == str(tmp_path)
    assert config.sources == ("clinic", "ward")
    assert config.classes == class_names(config) == ("a", "b", "c")
    assert num_classes(config) == 3
    monkeypatch.delenv("FEDRF_DATA")
    complete = data("data.name=folder", "data.target=home", "data.sources=[clinic]", "data.classes=[a, b, c]")
    assert resolve_data(complete) == complete, "the driver needs no access to the data"
    with pytest.raises(ValueError, match=r"needs a data root: set data\.root or \$FEDRF_DATA"):
        resolve_data(data("data.name=folder", "data.target=home"))


def test_a_resolved_configuration_does_not_change_with_the_folders(tmp_path):
    for domain in ("clinic", "ward", "home"):
        for name in "ab":
            (tmp_path / domain / name).mkdir(parents=True)
    config = resolved(configure("data.name=folder", f"data.root={tmp_path}", "data.target=home"))
    (tmp_path / "runs/first").mkdir(parents=True)
    assert clients_of(config) == (("clinic", "ward"), "home")
    assert clients_of(resolved(config)) == (("clinic", "ward"), "home")


def test_a_target_named_like_a_part_of_a_source_is_rejected():
    keys = ("data.name=features", "data.target='a:1'", "data.sources=a", "data.classes=['0', '1']")
    with pytest.raises(ValueError, match=r"data\.target='a:1' is also the name of a part of a source"):
        clients_of(configure(*keys, "data.partition=even", "data.clients=2"))


def test_a_target_named_like_the_pool_is_rejected():
    keys = ("data.name=features", "data.target=pool", "data.sources=a", "data.classes=['0', '1']")
    assert clients_of(configure(*keys)) == (("a",), "pool")
    with pytest.raises(ValueError, match=r"data\.target='pool' is also the name of the client with pooled samples"):
        clients_of(configure(*keys, "method=pooled"))


def test_rows_keep_their_names_when_they_are_standardised(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.random.RandomState(0).randn(20, 3), y=np.arange(20) % 2)
    keys = ["data.name=features", f"data.root={tmp_path}", "data.sources=a", "data.target=a", "data.partition=even"]
    original, scaled = (load_samples(configure(*keys, f"data.scale={scale}"), "a") for scale in ("none", "standard"))
    assert scaled.names() == original.names() == [str(row) for row in original.rows]
    assert np.array_equal(scaled.labels, original.labels)
    np.testing.assert_allclose(scaled.array().mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.array().std(axis=0), 1, atol=1e-5)


def test_an_incomplete_domain_has_a_note(tmp_path):
    write_visda_c(tmp_path)
    samples = load_domain(
        data("data.name=visda-c", "data.target=validation", f"data.root={tmp_path}", "data.allow_partial=true"), "train"
    )
    assert samples.notes == ("train: 24 of 152,397 samples are present",)
    assert samples.take(np.arange(3)).notes == samples.notes
