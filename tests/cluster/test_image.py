"""The Dockerfile builds what the descriptions of clusters run, from files that are there."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
INSTRUCTIONS = [
    line.split(maxsplit=1)
    for line in re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
    if line
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def given(instruction):
    return [rest for name, rest in INSTRUCTIONS if name == instruction]


def is_ignored(path):
    """Tell whether .dockerignore keeps a path out: the last pattern that fits it, or a folder above it, decides."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            wild = re.escape(line.removeprefix("!")).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
            if re.fullmatch(f"{wild}(/.*)?", path):
                ignored = not line.startswith("!")
    return ignored


def test_hadolint_has_nothing_to_say():
    subprocess.run([Path(sys.executable).with_name("hadolint"), ROOT / "Dockerfile"], check=True)


def test_what_is_copied_is_there():
    tracked = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    sources = [source for rest in given("COPY") for source in rest.split()[:-1]]
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
def test_what_does_not_belong_stays_outside(path):
    assert is_ignored(path)


def test_it_is_pinned_not_root_and_looks_after_itself():
    assert all(re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", base) for base in given("FROM"))
    assert all("-c constraints.txt" in line for line in re.findall(r"pip install [^;&]*", " ".join(given("RUN"))))
    assert given("USER") == ["1000"]
    assert given("HEALTHCHECK")[0].endswith('CMD ["fedrf", "doctor"]')
    assert not given("ENTRYPOINT")  # Ray's cluster launcher starts the image with `bash`


def test_clusters_run_this_image():
    """The tag, the home folder and the extras are those of the Dockerfile and of the project."""
    home = re.search(r"HOME=(\S+)", " ".join(given("ENV")))[1]
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
    ("settings", "code", "said"),
    [
        ({"VARIANT": "cuda"}, 0, "pip install -c constraints.txt torch torchvision"),
        ({"VARIANT": "cpu", "TORCH_INDEX": "there"}, 0, "--no-deps torch torchvision --index-url there"),
        ({"VARIANT": "cpu"}, 2, "VARIANT=cpu needs --build-arg TORCH_INDEX"),
        ({"VARIANT": "gpu"}, 1, "VARIANT=gpu: must be cuda or cpu"),
    ],
)
def test_variants(settings, code, said):
    step = next(rest for rest in given("RUN") if "$VARIANT" in rest)
    result = subprocess.run(
        ["sh", "-c", f"pip() {{ echo pip $*; }}; {step}"], env=settings, capture_output=True, text=True
    )
    assert result.returncode == code
    assert said in " ".join((result.stdout + result.stderr).split())
