"""Examples in the documentation run, and what it names exists."""

import doctest
import importlib
import pkgutil
import re
import runpy
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml

import fedrf
import fedrf.data.datasets
import fedrf.methods
from fedrf.config.keys import describe_keys
from fedrf.config.loader import load_config
from tune.space import load_space

ROOT = Path(__file__).parent.parent
MODULES = [m.name for m in pkgutil.walk_packages(fedrf.__path__, "fedrf.") if not m.name.endswith("__main__")]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "cluster/README.md"]
PAGES = [*GUIDES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"]
SECTIONS = "data|model|align|train|adapt|federation|resources|simulation|track"
PARTICIPATION = ("federation.embeddings_from", "federation.aligners_from", "federation.classifiers_from")


def code_blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@cache
def help_of(*command):
    return subprocess.run([sys.executable, "-m", *command, "--help"], capture_output=True, text=True).stdout


def anchors(page):
    """Return the names that links to the headings of a page have."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_readme_examples_run_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = code_blocks("README.md", "python")
    assert len(blocks) == 2
    scope = {}
    for block in blocks:
        exec(block, scope)
    assert scope["rf"].mmd_.after < scope["rf"].mmd_.before
    assert scope["result"].finished


def test_estimator_examples_run_from_top_to_bottom():
    blocks = code_blocks("docs/estimators.md", "python")
    assert len(blocks) == 2
    scope = {}
    for block in blocks:
        exec(block, scope)
    assert scope["rf"].mmd_.after < scope["rf"].mmd_.before


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_the_search_space_in_the_documentation_is_valid(tmp_path):
    (block,) = code_blocks("docs/sweeps.md", "yaml")
    (tmp_path / "space.yaml").write_text(block)
    assert len(load_space(str(tmp_path / "space.yaml"))) == 4


def test_settings_that_the_documentation_names_are_allowed():
    page = (ROOT / "docs/protocol.md").read_text()
    table = re.findall(r"^\| .* \| `(federation\.[^`]*)` \|$", page, re.MULTILINE)
    assert len(table) == 12
    for overrides in table:
        load_config(None, ["method=fedrf-tca", *overrides.split()])


@pytest.mark.parametrize("page", ["docs/protocol.md", "docs/glossary.md"])
def test_participation_words_in_the_documentation_are_those_of_the_keys(page):
    (table,) = re.findall(r"^\| value \|.*\n\| --- .*\n((?:\|.*\n)+)", (ROOT / page).read_text(), re.MULTILINE)
    words = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    allowed = {key.name: set(key.allowed.split(" | ")) for key in describe_keys()}
    assert all(allowed[key] == words for key in PARTICIPATION)


def test_commands_that_the_documentation_shows_exist():
    text = "".join(page.read_text() for page in GUIDES)
    commands = set(re.findall(r"(?:\$ |`)fedrf ([a-z]+)", text))
    assert commands >= {"run", "compare", "align", "report", "data", "doctor", "methods", "datasets"}
    assert all(f" {command} " in help_of("fedrf") for command in commands)
    options = set(re.findall(r"fedrf run [^\n`]*?(--[a-z]+)", text))
    assert options >= {"--resume", "--address"}
    assert all(option in help_of("fedrf", "run") for option in options)
    comparing = set(re.findall(r" (--[a-z]+)", " ".join(re.findall(r"fedrf compare [^\n`]*", text))))
    assert comparing >= {"--methods", "--ablate", "--vary"}
    assert all(option in help_of("fedrf", "compare") for option in comparing)
    sweeping = set(re.findall(r"python -m tune [^\n`]*?(--[a-z-]+)", text))
    assert sweeping >= {"--resume", "--space", "--closed-form"}
    assert all(option in help_of("tune") for option in sweeping)


def test_keys_that_the_documentation_names_exist():
    text = "".join(page.read_text() for page in GUIDES)
    keys = set(re.findall(rf"\b((?:{SECTIONS})\.[a-z_]+)=", text))
    keys |= set(re.findall(rf"`((?:{SECTIONS})\.[a-z_]+)`", text))
    assert keys <= {key.name for key in describe_keys()}


def test_the_table_of_methods_has_all_of_them_and_says_which_can_run_asynchronously():
    page = (ROOT / "docs/methods.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|.*\| (yes|no|–) \|$", page, re.MULTILINE)
    answers = {name: answer for names, answer in rows for name in re.findall("`([^`]+)`", names)}
    assert list(answers) == list(fedrf.methods.BUILT_IN)
    for name, answer in answers.items():
        if answer == "no":
            with pytest.raises(ValueError, match="async"):
                load_config(None, [f"method={name}", "federation.mode=async"])
        else:
            load_config(None, [f"method={name}", "federation.mode=async"])


def test_the_table_of_data_sets_has_all_of_them():
    rows = re.findall(r"^\| (`[^|]*) \| [^|]* \| [^|]* \|$", (ROOT / "docs/data.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall("`([^`]+)`", row) if name in fedrf.data.datasets.BUILT_IN}
    assert named == set(fedrf.data.datasets.BUILT_IN)


def test_make_targets_that_are_named_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md", "docs/benchmarks.md"):
        named = set(re.findall(r"(?:\$ |`|&& )make ([\w-]+)", (ROOT / name).read_text()))
        assert named, name
        assert named <= targets, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not link.startswith("https://"):
            path, _, heading = link.partition("#")
            linked = (page.parent / path).resolve() if path else page
            assert linked.exists(), link
            assert not heading or heading in anchors(linked), link


def test_files_of_the_package_that_the_documentation_names_exist():
    for page in (*GUIDES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"):
        for name in re.findall(r"`((?:fedrf|tests|docs|benchmarks|cluster|tune)/[\w./-]*)`", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/index.md").read_text()
    assert all(f"]({page.name})" in index for page in (ROOT / "docs").glob("*.md") if page.name != "index.md")


def test_the_layer_table_is_that_of_the_packages():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (`fedrf`|`\w+/`.*?) \| (.*?) \|", page, re.MULTILINE)
    packages = [name for names, _ in rows for name in re.findall(r"`(\w+)/`", names)]
    assert sorted(packages) == sorted(path.parent.name for path in (ROOT / "fedrf").glob("*/__init__.py"))
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [set(re.findall(r"fedrf\.(\w+)", layer)) for layer in reversed(contracts[0]["layers"])]
    rank = {name: index for index, names in enumerate(layers) for name in names}
    assert [rank[name] for name in packages] == sorted(rank[name] for name in packages)
    for names, modules in rows:
        package = ROOT / "fedrf" / (re.findall(r"`(\w+)/`", names) or ["."])[0]
        for module in re.findall(r"`(\w+)/?`", modules):
            assert (package / module).is_dir() or (package / f"{module}.py").is_file(), f"{names}: {module}"


@pytest.mark.parametrize("name", ["protocol", "bytes", "virtual_time"])
def test_a_figure_is_the_one_that_its_program_draws(name, tmp_path):
    program = runpy.run_path(str(ROOT / f"docs/figures/{name}.py"))
    program["main"](tmp_path / "drawn.svg")
    drawn, committed = (path.read_text() for path in (tmp_path / "drawn.svg", ROOT / f"docs/figures/{name}.svg"))
    # Text becomes outlines with a comment that holds it; outlines may differ between versions of matplotlib.
    assert re.findall(r"<!-- (.*?) -->", drawn) == re.findall(r"<!-- (.*?) -->", committed)
    assert re.search(r'viewBox="[^"]*"', drawn)[0] == re.search(r'viewBox="[^"]*"', committed)[0]


def test_the_figure_of_bytes_has_all_federated_methods_of_the_three_tables():
    program = runpy.run_path(str(ROOT / "docs/figures/bytes.py"))
    page = (ROOT / "docs/results.md").read_text()
    federated = {name for name in fedrf.methods.BUILT_IN if not name.startswith(("pooled", "target"))}
    for heading in program["TITLES"]:
        found = program["points"](page, heading)
        assert found.keys() == federated
        assert found["fedrf-oneshot"][0] < 1e6 < found["fedavg"][0]


def test_the_citation_names_the_paper_and_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    paper, readme = citation["preferred-citation"], (ROOT / "README.md").read_text()
    assert citation["version"] == fedrf.__version__
    words = " ".join(readme.replace("*", "").split())
    assert paper["title"] in words
    assert all(f"{author['given-names']} {author['family-names']}" in words for author in paper["authors"])
    assert paper["url"] in readme


def test_constraints_name_versions_and_no_hosts():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line) for line in lines)
