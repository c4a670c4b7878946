"""The Dockerfile builds the image that the cluster configurations use, from files that exist."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from fedrf.cli.doctor_nodes import MIN_DRIVER

DRIVER_FILES = ("aws.yaml", "gcp.yaml", "on-premise.yaml", "kuberay-cluster.yaml", "slurm.sh", "README.md")
ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
INSTRUCTIONS = [
    line.split(maxsplit=1)
    for line in re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
    if line
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def arguments_of(instruction):
    return [rest for name, rest in INSTRUCTIONS if name == instruction]


def is_ignored(path):
    """Return whether .dockerignore excludes a path: the last pattern that matches it or a parent folder decides."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = re.escape(line.removeprefix("!")).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
            if re.fullmatch(f"{pattern}(/.*)?", path):
                ignored = not line.startswith("!")
    return ignored


def test_hadolint_passes():
    subprocess.run([Path(sys.executable).with_name("hadolint"), ROOT / "Dockerfile"], check=True)


def test_copied_files_exist():
    tracked = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    sources = [source for rest in arguments_of("COPY") for source in rest.split()[:-1]]
    assert {"constraints.txt", "pyproject.toml", "fedrf", "tune", "cluster"} == set(sources)
    for source in sources:
        files = [name for name in tracked.stdout.splitlines() if name == source or name.startswith(f"{source}/")]
        assert files, source
        assert not any(map(is_ignored, files)), source


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        ".mypy_cache/x",
        "fedrf/__pycache__/x.pyc",
        "runs/a/summary.json",
        "sweeps/a/best.yaml",
        "wandb/x",
        "data/office31/x.jpg",
        "tests/conftest.py",
        "benchmarks/rounds.py",
    ],
)
def test_other_files_are_excluded(path):
    assert is_ignored(path)


def test_versions_user_and_health_check():
    assert all(re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", base) for base in arguments_of("FROM"))
    assert all(
        "-c constraints.txt" in line for line in re.findall(r"pip install [^;&]*", " ".join(arguments_of("RUN")))
    )
    assert arguments_of("USER") == ["1000"]
    assert not arguments_of("ENTRYPOINT")  # Ray's cluster launcher runs the image with `bash`


@pytest.mark.parametrize(
    ("is_started", "answer", "is_healthy"),
    [(False, "exit 4", True), (True, "echo success", True), (True, "echo dead", False), (True, "exit 4", False)],
)
def test_the_health_check_asks_the_agent_of_ray_if_ray_was_started(tmp_path, is_started, answer, is_healthy):
    command = arguments_of("HEALTHCHECK")[0].partition("CMD ")[2]
    assert not set(command.split()) & {"python", "fedrf", "ray"}  # it runs every minute and must import nothing
    assert " wget" in " ".join(arguments_of("RUN"))
    (tmp_path / "ray").mkdir()
    if is_started:
        (tmp_path / "ray/session_latest").symlink_to("session_1")
        (tmp_path / "ray/session_1").mkdir()
    result = subprocess.run(
        ["sh", "-c", f"wget() {{ {answer}; }}; {command}"], env={"RAY_TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    )
    assert (result.returncode == 0) == is_healthy


@pytest.mark.parametrize("name", ["Dockerfile", *(f"cluster/{file}" for file in DRIVER_FILES)])
def test_the_driver_is_new_enough_for_the_cuda_of_torch(name):
    driver = MIN_DRIVER[torch.version.cuda.partition(".")[0]]
    assert set(re.findall(r"driver(?: of NVIDIA)? >= (\d+)", (ROOT / name).read_text())) == {str(driver)}


def test_cluster_configurations_use_this_image():
    """The tag, the home folder and the extras match the Dockerfile and the project."""
    home = re.search(r"HOME=(\S+)", " ".join(arguments_of("ENV")))[1]
    for path in (ROOT / "cluster").glob("*.yaml"):
        text = path.read_text()
        assert set(re.findall(r"image: (\S+)", text)) == {f"REGISTRY/fedrf:{PROJECT['version']}"}, path.name
        assert set(re.findall(r"/home/\w+", text)) == {home}, path.name
    extras = re.search(r"'\.\[(.*?)\]'", DOCKERFILE)[1].split(",")
    assert set(extras) <= set(PROJECT["optional-dependencies"])
    assert {PROJECT["readme"], *PROJECT["license-files"]} <= set(
        re.search(r"touch (.*?)&&", DOCKERFILE, re.DOTALL)[1].split()
    )


@pytest.mark.parametrize(
    ("settings", "code", "output"),
    [
        ({"VARIANT": "cuda"}, 0, "pip install -c constraints.txt torch torchvision"),
        ({"VARIANT": "cpu", "TORCH_INDEX": "there"}, 0, "--no-deps torch torchvision --index-url there"),
        ({"VARIANT": "cpu"}, 2, "VARIANT=cpu needs --build-arg TORCH_INDEX"),
        ({"VARIANT": "gpu"}, 1, "VARIANT=gpu: must be cuda or cpu"),
    ],
)
def test_variants(settings, code, output):
    step = next(rest for rest in arguments_of("RUN") if "$VARIANT" in rest)
    result = subprocess.run(
        ["sh", "-c", f"pip() {{ echo pip $*; }}; {step}"], env=settings, capture_output=True, text=True
    )
    assert result.returncode == code
    assert output in " ".join((result.stdout + result.stderr).split())
