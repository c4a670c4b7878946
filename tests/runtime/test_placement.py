"""The resources that clients require of a cluster, computed without one."""

import pytest

import fedrf
from fedrf.config.loader import load_config
from fedrf.config.schema import ResourcesConfig
from fedrf.runtime.placement import Requirements, compute_requirements, describe_contention, describe_shortage

NAMES = ("a", "b", "c", "t")
CLUSTER = {"CPU": 8.0, "GPU": 4.0, "memory": 1e9, "node:10.0.0.1": 1.0, "north": 1.0}


def requirements(total=CLUSTER, **resources) -> Requirements:
    return compute_requirements(NAMES, ResourcesConfig(**resources), total)


def test_each_client_gets_its_own_bundle():
    assert requirements().bundles == [{"CPU": 1.0, "GPU": 1.0}] * 4
    assert requirements({"CPU": 2.0}).bundles == [{"CPU": 0.5}] * 4
    assert requirements(gpus_per_client=0.25, cpus_per_client=2).bundles == [{"CPU": 2.0, "GPU": 0.25}] * 4


def test_clients_in_one_process_share_a_bundle():
    assert requirements(clients_per_actor=3, cpus_per_client=0.5, gpus_per_client=0.25).bundles == [
        {"CPU": 1.5, "GPU": 0.75},
        {"CPU": 1.5, "GPU": 0.75},
    ]
    assert requirements(clients_per_actor=9).bundles == [{"CPU": 1.0, "GPU": 1.0}]


def test_a_client_is_bound_to_its_node_and_the_others_are_not():
    bundles = requirements(nodes={"b": "north"}, gpus_per_client=0).bundles
    assert [set(bundle) for bundle in bundles] == [{"CPU"}, {"CPU", "north"}, {"CPU"}, {"CPU"}]
    assert 0 < bundles[1]["north"] <= 0.01  # many clients fit on a node that offers 1


@pytest.mark.parametrize(("word", "strategy"), [("pack", "PACK"), ("spread", "SPREAD"), ("apart", "STRICT_SPREAD")])
def test_placement_is_rays_strategy(word, strategy):
    assert requirements(placement=word).strategy == strategy


def test_a_cluster_without_cpus_is_reported_and_no_bundle_is_empty():
    assert all(requirements({}).bundles)
    assert "4 clients need" in describe_shortage(requirements({}), {})


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({}, None),
        ({"cpus_per_client": 3}, "4 clients need 12 CPUs and Ray has 8; at most 2 each"),
        ({"nodes": {"a": "north"}}, None),
        ({"nodes": {"a": "south"}}, "resources.nodes: no node of the cluster offers south; offered: north"),
    ],
)
def test_a_shortage_names_what_is_missing(resources, message):
    shortage = describe_shortage(requirements(**resources), CLUSTER)
    assert shortage is None if message is None else message in shortage


def test_contention_tells_used_resources_from_wrong_nodes():
    assert "need 4 GPUs, and of Ray's 4 only 3 are free" in describe_contention(
        requirements(), CLUSTER, {"CPU": 8.0, "GPU": 3.0}
    )
    assert "not on the required nodes" in describe_contention(requirements(placement="apart"), CLUSTER, CLUSTER)


def test_unknown_clients_and_shared_processes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"resources\.nodes names x; the clients are rendered, textured, street"):
        fedrf.run(None, {"resources.nodes": {"x": "north"}}, out=tmp_path / "run")
    with pytest.raises(ValueError, match="nodes needs clients_per_actor=1; got 2"):
        load_config(None, {"resources.nodes": {"a": "north"}, "resources.clients_per_actor": 2})
