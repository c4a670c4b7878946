"""The resources that clients require of a cluster, computed without one."""

import re
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fedrf
from fedrf.config.loader import load_config
from fedrf.config.schema import ResourcesConfig
from fedrf.runtime.placement import Requirements, compute_requirements, describe_contention
from fedrf.runtime.shortage import describe_shortage

NAMES = ("a", "b", "c", "t")
NODE = {"CPU": 8.0, "GPU": 4.0, "memory": 1e9, "node:10.0.0.1": 1.0, "north": 1.0}


def requirements(*nodes, names=NAMES, **resources) -> Requirements:
    return compute_requirements(names, ResourcesConfig(**resources), nodes or [NODE])


def shortage(*nodes, names=NAMES, **resources):
    return describe_shortage(requirements(*nodes, names=names, **resources), nodes or [NODE])


def gpus(*counts, cpus=8.0):
    return [{"CPU": cpus, "GPU": float(count)} for count in counts]


def test_each_client_gets_its_own_bundle():
    assert requirements().bundles == [{"CPU": 1.0, "GPU": 1.0}] * 4
    assert requirements({"CPU": 2.0}).bundles == [{"CPU": 0.5}] * 4
    assert requirements(gpus_per_client=0.25, cpus_per_client=2).bundles == [{"CPU": 2.0, "GPU": 0.25}] * 4


@pytest.mark.parametrize(
    ("clients", "counts", "share"),
    [
        (3, [2], 0.5),
        (3, [1, 1], 0.5),
        (4, [3], 0.5),
        (6, [4], 0.5),
        (5, [2], 0.3333),  # three of one, two of the other
        (7, [1], 0.1428),
        (5, [5], 1.0),
        (2, [8], 1.0),
    ],
)
def test_a_gpu_is_shared_by_as_few_clients_as_possible(clients, counts, share):
    bundles = requirements(*gpus(*counts), names=range(clients)).bundles
    assert {bundle["GPU"] for bundle in bundles} == {share}


def test_cpus_are_those_of_the_nodes_that_hold_the_clients():
    head, worker = {"CPU": 16.0}, {"CPU": 2.0, "GPU": 1.0}
    assert requirements(head, worker, worker).bundles == [{"CPU": 1.0, "GPU": 0.5}] * 4
    assert requirements(head, worker).bundles == [{"CPU": 0.5, "GPU": 0.25}] * 4
    # Nine CPUs would be 2.25 for each client, but the small nodes cannot hold one of that size.
    assert requirements({"CPU": 1.0}, {"CPU": 1.0}, {"CPU": 1.5}, names=range(5)).bundles == [{"CPU": 0.5}] * 5


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


def test_clients_that_are_bound_to_a_node_share_its_gpus():
    nodes = [{"CPU": 8.0, "GPU": 1.0, "north": 1.0}, {"CPU": 8.0, "GPU": 8.0}]
    assert requirements(*nodes).bundles[0]["GPU"] == 1.0
    assert requirements(*nodes, nodes={"a": "north", "b": "north"}).bundles[0]["GPU"] == 0.5


@pytest.mark.parametrize(("word", "strategy"), [("pack", "PACK"), ("spread", "SPREAD"), ("apart", "STRICT_SPREAD")])
def test_placement_is_rays_strategy(word, strategy):
    assert requirements(placement=word).strategy == strategy


def test_a_cluster_without_cpus_is_reported_and_no_bundle_is_empty():
    assert all(requirements({}).bundles)
    assert shortage({}) == "4 clients of 0.01 CPUs do not fit on nodes with 0 CPUs: nothing of this kind"


WORKERS = gpus(1, 1, 0)


@pytest.mark.parametrize(
    ("nodes", "resources", "message"),
    [
        ([NODE], {}, None),
        (
            [NODE],
            {"cpus_per_client": 3},
            "4 clients of 3 CPUs do not fit on nodes with 8 CPUs and 4 GPUs: at most 2 clients (fewer data.sources), "
            "or resources.cpus_per_client=2",
        ),
        (
            WORKERS,
            {"gpus_per_client": 0.66},
            "4 clients of 0.66 GPUs do not fit on nodes with 8, 8, 8 CPUs and 1, 1, 0 GPUs: at most 2 clients (fewer "
            "data.sources), or resources.gpus_per_client=0.5",
        ),
        (
            WORKERS,
            {"placement": "apart"},
            "4 clients with resources.placement=apart do not fit on nodes with 8, 8, 8 CPUs and 1, 1, 0 GPUs: at most "
            "2 clients (fewer data.sources), or resources.placement=spread, or resources.clients_per_actor=2",
        ),
        (
            [{"CPU": 3.0}, {"CPU": 3.0}],
            {"cpus_per_client": 2},
            "4 clients of 2 CPUs do not fit on nodes with 3, 3 CPUs: at most 2 clients (fewer data.sources), "
            "or resources.cpus_per_client=1.5",
        ),
        (
            gpus(2, 1),
            {"gpus_per_client": 0.75},
            "4 clients of 0.75 GPUs do not fit on nodes with 8, 8 CPUs and 2, 1 GPUs: at most 3 clients (fewer "
            "data.sources), or resources.gpus_per_client=0.5",
        ),
        (
            [{"CPU": 4.0}, {"CPU": 2.0}, {"CPU": 2.0}],
            {"placement": "apart", "cpus_per_client": 1},
            "4 clients with resources.placement=apart do not fit on nodes with 4, 2, 2 CPUs: at most 3 clients (fewer "
            "data.sources), or resources.placement=spread, or resources.clients_per_actor=2",
        ),
        (
            [{"CPU": 2.0, "GPU": 1.0}],
            {"gpus_per_client": 1, "cpus_per_client": 2},
            "4 clients of 2 CPUs and 1 GPUs do not fit on nodes with 2 CPUs and 1 GPUs: "
            "resources.gpus_per_client=0.25 with resources.cpus_per_client=0.5",
        ),
        (
            [{"CPU": 8.0, "north": 1.0}, {"CPU": 8.0, "GPU": 4.0}],
            {"nodes": {"a": "north"}},
            "4 clients of 1 GPUs do not fit on nodes with 8, 8 CPUs and 4, 0 GPUs: at most 3 clients (fewer "
            "data.sources), or resources.gpus_per_client=0",
        ),
        ([NODE], {"nodes": {"a": "north"}}, None),
        (
            [NODE],
            {"nodes": {"a": "south"}},
            'resources.nodes: no node of the cluster offers south; offered: north (ray start --resources=\'{"south": '
            "1}' offers it)",
        ),
    ],
)
def test_a_shortage_says_what_would_fit(nodes, resources, message):
    assert shortage(*nodes, **resources) == message


def test_clients_that_are_bound_to_nodes_are_moved_to_make_room():
    both, one = {"CPU": 1.0, "east": 1.0, "west": 1.0}, {"CPU": 1.0, "east": 1.0}
    keys = {"names": ("a", "b"), "cpus_per_client": 1}
    assert shortage(both, one, nodes={"a": "east", "b": "west"}, **keys) is None
    assert shortage(both, one, nodes={"a": "west", "b": "west"}, **keys) is not None


def test_contention_tells_used_resources_from_wrong_nodes():
    assert "need 4 GPUs, and of Ray's 4 only 3 are free" in describe_contention(
        requirements(), NODE, {"CPU": 8.0, "GPU": 3.0}
    )
    assert "not on the required nodes" in describe_contention(requirements(placement="apart"), NODE, NODE)


def test_unknown_clients_and_shared_processes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"resources\.nodes names x; the clients are rendered, textured, street"):
        fedrf.run(None, {"resources.nodes": {"x": "north"}}, out=tmp_path / "run")
    with pytest.raises(ValueError, match="nodes needs clients_per_actor=1; got 2"):
        load_config(None, {"resources.nodes": {"a": "north"}, "resources.clients_per_actor": 2})


# An exhaustive search for places: a process takes its GPU share from one GPU, or whole GPUs.


def can_be_placed(nodes, bundles, apart=False):
    """Try every node and GPU for one process after the other; exact numbers in ten-thousandths, as Ray counts."""
    processes = [{kind: round(Fraction(amount) * 10_000) for kind, amount in bundle.items()} for bundle in bundles]
    processes.sort(key=sorted)  # equal ones follow each other, so that more states are equal

    @cache
    def place(index, state):
        if index == len(processes):
            return True
        bundle = processes[index]
        for position, (cpu, devices, labels, used) in enumerate(state):
            if bundle.get("CPU", 0) > cpu or (apart and used) or not set(bundle) - {"CPU", "GPU"} <= labels:
                continue
            for left in take(devices, bundle.get("GPU", 0)):
                changed = (cpu - bundle.get("CPU", 0), left, labels, True)
                if place(index + 1, (*state[:position], changed, *state[position + 1 :])):
                    return True
        return False

    def take(devices, amount):
        if amount > 10_000:
            idle = [device for device in devices if device == 10_000]
            if 10_000 * len(idle) >= amount:
                yield tuple(sorted(devices))[: len(devices) - amount // 10_000]
            return
        for device in set(devices) if amount else ():
            if device >= amount:
                rest = list(devices)
                rest.remove(device)
                yield tuple(sorted([*rest, device - amount]))
        if not amount:
            yield devices

    return place(
        0,
        tuple(
            (
                round(Fraction(node["CPU"]) * 10_000),
                (10_000,) * int(node.get("GPU", 0)),
                frozenset(kind for kind in node if kind not in ("CPU", "GPU")),
                False,
            )
            for node in nodes
        ),
    )


def test_the_exhaustive_search_knows_known_cases():
    assert can_be_placed(gpus(2), [{"GPU": 0.5}] * 4)
    assert not can_be_placed(gpus(2), [{"GPU": 0.66}] * 3)
    assert can_be_placed(gpus(2), [{"GPU": 1.0}, {"GPU": 0.5}, {"GPU": 0.5}])
    assert not can_be_placed(gpus(1, 1), [{"GPU": 2.0}])
    assert not can_be_placed(gpus(2), [{"GPU": 1.0}] * 2, apart=True)
    assert not can_be_placed([{"CPU": 1.0, "x": 1}, {"CPU": 5.0}], [{"CPU": 1.0, "x": 0.001}] * 2)


@st.composite
def clusters(draw):
    node = st.fixed_dictionaries(
        {"CPU": st.sampled_from([0.5, 1.0, 2.0, 3.0, 8.0]), "GPU": st.integers(0, 3)},
        optional={"x": st.just(1.0), "y": st.just(1.0)},
    )
    return draw(st.lists(node, min_size=1, max_size=3)), tuple(f"c{n}" for n in range(draw(st.integers(1, 7))))


@st.composite
def settings_of(draw, names, shares):
    cpus, gpus = shares
    bound = draw(st.dictionaries(st.sampled_from(names), st.sampled_from("xy"), max_size=3))
    return {
        "cpus_per_client": draw(cpus),
        "gpus_per_client": draw(gpus),
        "placement": draw(st.sampled_from(["pack", "apart"])),
        "nodes": bound,
        "clients_per_actor": 1 if bound else draw(st.sampled_from([1, 1, 2])),
    }


AUTO = (st.one_of(st.just("auto"), st.sampled_from([0.5, 1.0])), st.just("auto"))
FIXED = (st.sampled_from([0.3, 0.5, 1.0, 2.0]), st.sampled_from([0, 0.25, 0.3333, 0.5, 0.66, 1]))


def labelled(nodes, keys):
    return all(any(label in node for node in nodes) for label in keys["nodes"].values())


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_automatic_shares_fit_and_no_larger_ones_would(data):
    nodes, names = data.draw(clusters())
    keys = data.draw(settings_of(names, AUTO))
    assume(labelled(nodes, keys))
    required = requirements(*nodes, names=names, **keys)
    apart = keys["placement"] == "apart"

    def placeable(cpu, gpu):
        changed = [bundle | {"CPU": cpu} | ({"GPU": gpu} if gpu else {}) for bundle in required.bundles]
        return can_be_placed(nodes, [{k: v for k, v in b.items() if gpu or k != "GPU"} for b in changed], apart)

    cpu, gpu = (required.bundles[0].get(kind, 0) for kind in ("CPU", "GPU"))
    smallest_cpu = 0.01 if keys["cpus_per_client"] == "auto" else cpu
    parts = [10_000 // count / 10_000 for count in range(1, len(required.bundles) + 1)]
    if not can_be_placed(nodes, required.bundles, apart):
        has_gpus = any(node["GPU"] for node in nodes)
        assert not any(placeable(smallest_cpu, part) for part in (parts if has_gpus else [0]))
        assert describe_shortage(required, nodes)
        return
    assert describe_shortage(required, nodes) is None
    assert not any(placeable(smallest_cpu, part) for part in parts if part > gpu)
    if keys["cpus_per_client"] == "auto" and cpu < 1:
        assert not placeable(round(cpu + 0.01, 2), gpu)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_shortage_is_reported_exactly_if_there_is_one_and_its_advice_fits(data):
    nodes, names = data.draw(clusters())
    keys = data.draw(settings_of(names, FIXED))
    each = min(keys["clients_per_actor"], len(names))
    assume(labelled(nodes, keys) and keys["gpus_per_client"] * keys["clients_per_actor"] <= 1)
    required = requirements(*nodes, names=names, **keys)
    text = describe_shortage(required, nodes)
    assert (text is None) == can_be_placed(nodes, required.bundles, keys["placement"] == "apart")
    for advice in text.partition(": ")[2].split(", or ") if text else ():
        changed = dict(re.findall(r"resources\.(\w+)=([\w.]+)", advice))
        if changed:
            fixed = requirements(*nodes, names=names, **{**keys, **changed})
            assert can_be_placed(nodes, fixed.bundles, fixed.strategy == "STRICT_SPREAD"), advice
    if text and (most := re.search(r"at most (\d+) clients", text)) and not keys["nodes"]:
        several = [required.bundles[0]] * (int(most[1]) // each)
        assert can_be_placed(nodes, several, keys["placement"] == "apart")
        assert not can_be_placed(nodes, [*several, required.bundles[0]], keys["placement"] == "apart")


def test_processes_in_given_bundles_have_what_the_bundles_reserve():
    """A trial that is continued on a smaller cluster than the one it was configured for."""
    wanted = ResourcesConfig(cpus_per_client=2, gpus_per_client=0.5, clients_per_actor=2)
    required = compute_requirements(["a", "b", "c"], wanted, [{"CPU": 8, "GPU": 2}])
    assert required.within({"CPU": 1, "GPU": 0.5, "node:1": 0.001}).amounts == (1, 0.5)
    smaller = required.within({"CPU": 1})
    assert (smaller.cpus, smaller.gpus) == (0.5, 0)
    assert smaller.nodes == required.nodes


@pytest.mark.parametrize(("accelerator", "advice"), [("cuda", "start nodes with GPUs"), ("mps", "use --local")])
def test_an_accelerator_that_is_named_and_unknown_to_ray_is_an_error(accelerator, advice):
    with pytest.raises(ValueError, match=rf"^resources\.accelerator={accelerator}: Ray sees no GPU .*; {advice}"):
        requirements({"CPU": 8.0}, accelerator=accelerator)
    for allowed in ({"allow_cpu": True}, {"gpus_per_client": 0}):
        assert requirements({"CPU": 8.0}, accelerator=accelerator, **allowed).gpus == 0
    assert requirements({"CPU": 8.0, "GPU": 1.0}, accelerator=accelerator).gpus == 0.25
