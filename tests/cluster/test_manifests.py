"""Cluster configurations are valid for Ray, KubeRay and Kubernetes, and have the documented properties."""

import copy
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import jsonschema
import kubernetes_validate
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.scripts.scripts import start

from fedrf.config.keys import describe_keys

ROOT = Path(__file__).parents[2]
CLUSTERS = ("aws", "gcp", "on-premise")
FIELDS = yaml.safe_load(Path(__file__).with_name("kuberay_fields.yaml").read_text())
UNITS = {"g": 1024**3, "Gi": 1024**3}


def documents(name):
    return list(yaml.safe_load_all((ROOT / "cluster" / f"{name}.yaml").read_text()))


def launcher(name):
    """Return a configuration for `ray up` with Ray's defaults, validated as `ray up` does."""
    config = prepare_config(documents(name)[0])
    validate_config(config)
    return config


def start_options(command):
    """Return the options of `ray start` in a command; fail for unknown ones."""
    words = shlex.split(command.partition("ray start")[2])
    return start.make_parser(click.Context(start)).parse_args(words)[0]


def in_bytes(text):
    number, unit = re.fullmatch(r"(\d+)(\w+)", text).groups()
    return int(number) * UNITS[unit]


@pytest.mark.parametrize("name", CLUSTERS)
def test_ray_accepts_the_cluster(name):
    config = launcher(name)
    for role in ("head", "worker"):
        *_, command = config[f"{role}_start_ray_commands"]
        assert "export RAY_AUTH_MODE=token" in command
        options = start_options(command)
        assert ("head" in options) == (role == "head")
        assert options["object_store_memory"] == "2000000000"
    assert start_options(config["head_start_ray_commands"][-1])["dashboard_host"] == "127.0.0.1"
    assert config["file_mounts"] == {"~/.ray/auth_token": "~/.ray/auth_token"}
    assert "security_group" not in config["provider"]  # it would open ports
    docker = config["docker"]
    sizes = [option.partition("=")[2] for option in docker["run_options"] if option.startswith("--shm-size")]
    assert [in_bytes(size) > 2_000_000_000 for size in sizes] == [True]
    assert docker["worker_run_options"] == ["--gpus=all"]


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("change", [{"max_worker": 4}, {"docker": {"images": "x"}}, {"setup_commands": [1]}])
def test_ray_rejects_a_mistake(name, change):
    config = launcher(name) | change
    with pytest.raises(jsonschema.ValidationError):
        validate_config(config)


def test_unknown_options_of_ray_start_are_found():
    with pytest.raises(click.NoSuchOption, match="--dashboard-hosts"):
        start_options("ray start --dashboard-hosts=127.0.0.1")


def test_machines_have_gpus_and_disks():
    aws, gcp = (launcher(name)["available_node_types"] for name in ("aws", "gcp"))
    assert re.match(r"g\d", aws["gpu"]["node_config"]["InstanceType"])
    accelerator = gcp["gpu"]["node_config"]["guestAccelerators"][0]["acceleratorCount"]
    assert gcp["gpu"]["resources"]["GPU"] == accelerator == 1
    assert gcp["gpu"]["node_config"]["scheduling"]["onHostMaintenance"] == "TERMINATE"
    for role in ("head", "gpu"):
        assert aws[role]["node_config"]["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] >= 100
        assert gcp[role]["node_config"]["disks"][0]["initializeParams"]["diskSizeGb"] >= 100
    assert launcher("aws")["provider"]["cache_stopped_nodes"] is False


def check_kubernetes(document):
    """Validate KubeRay's fields by the list beside this file, and everything else by Kubernetes' schema."""
    latest = kubernetes_validate.latest_version()
    if not document["apiVersion"].startswith("ray.io/"):
        kubernetes_validate.validate(document, latest, strict=True)
        return
    jsonschema.validate(document, FIELDS)
    for group in groups(document):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **group["template"]}
        kubernetes_validate.validate(pod, latest, strict=True)


def groups(document):
    cluster = document["spec"].get("rayClusterSpec", document["spec"])
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


@pytest.mark.parametrize("name", ["kuberay-cluster", "kuberay-job"])
def test_kuberay_accepts_the_manifest(name):
    for document in documents(name):
        check_kubernetes(document)
    *_, document = documents(name)
    cluster = document["spec"].get("rayClusterSpec", document["spec"])
    assert f"ray=={cluster['rayVersion']}\n" in (ROOT / "constraints.txt").read_text()
    assert cluster["authOptions"] == {"mode": "token"}
    head, *workers = groups(document)
    assert (head["serviceType"], head["enableIngress"]) == ("ClusterIP", False)
    # The operator must reach the dashboard of a job; that of a cluster is reachable only by port-forward.
    host = {"RayCluster": "127.0.0.1", "RayJob": "0.0.0.0"}[document["kind"]]
    assert head["rayStartParams"]["dashboard-host"] == host
    for worker in workers:
        assert worker["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    for group in (head, *workers):
        options = start_options("ray start " + " ".join(f"--{k}={v}" for k, v in group["rayStartParams"].items()))
        pod = group["template"]["spec"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        shm = next(mount["name"] for mount in pod["containers"][0]["volumeMounts"] if mount["mountPath"] == "/dev/shm")
        assert volumes[shm]["emptyDir"]["medium"] == "Memory"
        assert in_bytes(volumes[shm]["emptyDir"]["sizeLimit"]) > int(options["object_store_memory"])
        # It counts as memory of the pod, which needs as much again for processes.
        memory = in_bytes(pod["containers"][0]["resources"]["limits"]["memory"])
        assert memory >= 2 * in_bytes(volumes[shm]["emptyDir"]["sizeLimit"])
        # KubeRay adds probes that ask Ray's agent by wget. Ours must not replace them by a program.
        assert not {"livenessProbe", "readinessProbe", "startupProbe"} & set(pod["containers"][0])
        assert pod["containers"][0]["resources"]["requests"]["ephemeral-storage"]
        assert pod["securityContext"]["runAsNonRoot"]


@pytest.mark.parametrize("name", ["kuberay-cluster", "kuberay-job"])
def test_the_commented_lines_mount_data_sets_in_all_pods(name):
    text = (ROOT / "cluster" / f"{name}.yaml").read_text()
    *_, document = yaml.safe_load_all(re.sub(r"# (- \{name: (?:data|FEDRF_DATA),)", r"\1", text))
    check_kubernetes(document)
    for group in groups(document):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        root = next(variable["value"] for variable in container["env"] if variable["name"] == "FEDRF_DATA")
        assert [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "data"] == [root]
        (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "data")
        assert volume["persistentVolumeClaim"]["readOnly"]


@pytest.mark.parametrize("name", CLUSTERS)
def test_data_sets_of_the_host_are_mounted_where_fedrf_looks_for_them(name):
    options = " ".join(launcher(name)["docker"]["run_options"])
    host, inside = re.search(r"--volume=(/\S*data):(/\S+):ro", options).groups()
    assert f"--env=FEDRF_DATA={inside}" in options
    copies = re.findall(r"# - sudo install .* (/\S+)$", (ROOT / f"cluster/{name}.yaml").read_text(), re.MULTILINE)
    assert set(copies) <= {host}


def misspell(document, path, wrong):
    """Return a copy of a document in which the key at `path` is misspelt."""
    document = copy.deepcopy(document)
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    parent[wrong] = parent.pop(path[-1])
    return document


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (["spec", "authOptions"], "authOption"),
        (["spec", "headGroupSpec", "enableIngress"], "enableIngres"),
        (["spec", "workerGroupSpecs", 0, "minReplicas"], "minReplica"),
        (["spec", "workerGroupSpecs", 0, "template", "spec", "tolerations"], "toleration"),
        (["spec", "headGroupSpec", "template", "spec", "containers", 0, "volumeMounts"], "volumeMount"),
    ],
)
def test_a_misspelt_key_in_a_manifest_is_found(path, wrong):
    document = documents("kuberay-cluster")[0]
    with pytest.raises(jsonschema.ValidationError):
        check_kubernetes(misspell(document, path, wrong))


def test_shell_scripts_pass_shellcheck():
    scripts = [
        path
        for path in (ROOT / "cluster").iterdir()
        if path.is_file() and path.read_bytes()[:9] in (b"#!/bin/ba", b"#!/bin/sh")
    ]
    assert {path.name for path in scripts} >= {"slurm.sh", "submit"}
    subprocess.run([Path(sys.executable).with_name("shellcheck"), *scripts], check=True)


def test_the_readme_has_five_commands_and_names_only_what_exists():
    page = (ROOT / "cluster/README.md").read_text()
    first = re.search(r"```console\n(.*?)```", page, re.DOTALL)[1]
    assert first.count("$ ") == len(first.splitlines()) == 5
    for name in re.findall(r"\bcluster/[\w.-]+", page):
        assert (ROOT / name).exists(), name
    known = {key.name for key in describe_keys()}
    assert set(re.findall(r"\b((?:resources|track)\.[a-z_]+)=", page)) <= known
