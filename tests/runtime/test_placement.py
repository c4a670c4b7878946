"""What clients need of a cluster, worked out without one."""

import pytest

import fedrf
from fedrf.config.loader import load_config
from fedrf.config.schema import ResourcesConfig
from fedrf.runtime.placement import Needs, needs, too_busy, too_little

NAMES = ("a", "b", "c", "t")
CLUSTER = {"CPU": 8.0, "GPU": 4.0, "memory": 1e9, "node:10.0.0.1": 1.0, "north": 1.0}


def wanted(total=CLUSTER, **resources) -> Needs:
    return needs(NAMES, ResourcesConfig(**resources), total)


def test_every_client_gets_a_bundle_of_its_own():
    assert wanted().bundles == [{"CPU": 1.0, "GPU": 1.0}] * 4
    assert wanted({"CPU": 2.0}).bundles == [{"CPU": 0.5}] * 4
    assert wanted(gpus_per_client=0.25, cpus_per_client=2).bundles == [{"CPU": 2.0, "GPU": 0.25}] * 4


def test_clients_in_one_process_share_a_bundle():
    assert wanted(clients_per_actor=3, cpus_per_client=0.5, gpus_per_client=0.25).bundles == [
        {"CPU": 1.5, "GPU": 0.75},
        {"CPU": 1.5, "GPU": 0.75},
    ]
    assert wanted(clients_per_actor=9).bundles == [{"CPU": 1.0, "GPU": 1.0}]


def test_a_client_is_bound_to_its_node_and_the_others_are_not():
    bundles = wanted(nodes={"b": "north"}, gpus_per_client=0).bundles
    assert [set(bundle) for bundle in bundles] == [{"CPU"}, {"CPU", "north"}, {"CPU"}, {"CPU"}]
    assert 0 < bundles[1]["north"] <= 0.01  # many clients fit on a node that offers 1


@pytest.mark.parametrize(("word", "strategy"), [("pack", "PACK"), ("spread", "SPREAD"), ("apart", "STRICT_SPREAD")])
def test_placement_is_rays_strategy(word, strategy):
    assert wanted(placement=word).strategy == strategy


def test_a_cluster_without_a_cpu_yet_gets_a_complaint_and_no_empty_bundle():
    assert all(wanted({}).bundles)
    assert "4 clients need" in too_little(wanted({}), {})


@pytest.mark.parametrize(
    ("resources", "complaint"),
    [
        ({}, None),
        ({"gpus_per_client": 2}, "4 clients need 8 GPUs and Ray has 4; at most 1 each"),
        ({"cpus_per_client": 3}, "4 clients need 12 CPUs and Ray has 8; at most 2 each"),
        ({"nodes": {"a": "north"}}, None),
        (
            {"nodes": {"a": "south"}},
            "resources.nodes names south, and no node of the cluster offers that; offered: north",
        ),
    ],
)
def test_too_little_says_what_is_missing(resources, complaint):
    said = too_little(wanted(**resources), CLUSTER)
    assert said is None if complaint is None else complaint in said


def test_too_busy_tells_free_from_missing():
    assert "need 4 GPUs, and of Ray's 4 only 3 are free" in too_busy(wanted(), CLUSTER, {"CPU": 8.0, "GPU": 3.0})
    assert "not on the nodes where it is wanted" in too_busy(wanted(placement="apart"), CLUSTER, CLUSTER)


def test_unknown_clients_and_shared_processes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"resources\.nodes names x; the clients are rendered, textured, street"):
        fedrf.run(None, {"resources.nodes": {"x": "north"}}, out=tmp_path / "run")
    with pytest.raises(ValueError, match="nodes needs clients_per_actor=1; got 2"):
        load_config(None, {"resources.nodes": {"a": "north"}, "resources.clients_per_actor": 2})
