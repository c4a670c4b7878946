"""Names of methods, data sets, extractors, aggregation rules and scores, and classes that come from outside."""

import subprocess
import sys
from textwrap import dedent

import pytest

from fedrf.config.keys import describe_keys
from fedrf.config.loader import load_config
from fedrf.config.registry import AGGREGATION_RULES, DATASETS, EXTRACTORS, METHODS, REGISTRIES, SCORES
from fedrf.methods.base import Method
from tests.config.conftest import DATASET, IMPORT_METHOD, METHOD, error_of

# Built-in names


@pytest.mark.parametrize("registry", REGISTRIES.values(), ids=REGISTRIES)
def test_built_in_names_come_first_and_have_definitions(registry):
    built_in = list(registry.built_in)
    assert built_in
    assert registry.names()[: len(built_in)] == built_in
    for name, definition in registry.items():
        assert registry.find(name) is definition
    (allowed,) = (key.allowed for key in describe_keys() if key.name == registry.key)
    assert allowed.split(" | ") == [*registry.names(), "package.module:Name"]


@pytest.mark.parametrize("registry", [METHODS, DATASETS], ids=lambda registry: registry.key)
def test_a_built_in_class_has_the_name_under_which_it_is_found(registry):
    assert [definition.name for _, definition in registry.items()] == registry.names()


def test_listing_names_imports_no_definition():
    program = """
        import sys
        from fedrf.config.registry import DATASETS, METHODS
        assert "fedrf-tca" in METHODS.names() and "office31" in DATASETS.names()
        loaded = {"torch", "fedrf.methods.fedrf_tca", "fedrf.data.datasets.office31"} & sys.modules.keys()
        assert not loaded, loaded
    """
    subprocess.run([sys.executable, "-c", dedent(program)], check=True)


@pytest.mark.parametrize("key", REGISTRIES)
def test_an_unknown_name_gives_one_line_with_the_allowed_names(key):
    target = ["data.target=t"] if key == "data.name" else []
    complaint = error_of(f"{key}=magic", *target)
    assert complaint.startswith((f"{key}=magic: allowed: ", f"{key}='magic': allowed: "))
    assert complaint.endswith(f"{', '.join(REGISTRIES[key].names())}, or package.module:Name")


# Classes from outside


@pytest.mark.parametrize("place", ["current directory", "sys.path"])
def test_a_method_from_outside(write_module, tmp_path, place):
    folder = tmp_path / "current"
    if place == "sys.path":
        folder = tmp_path / "library"
        folder.mkdir()
        sys.path.append(str(folder))
    name = f"{write_module(METHOD, folder)}:Mine"
    config = load_config(None, [f"method={name}"])
    assert (config.method, config.train.lr) == (name, 0.5)
    assert load_config(None, [f"method={name}", "train.lr=0.1"]).train.lr == 0.1
    method = METHODS.find(name)
    assert isinstance(method, Method)
    assert method is METHODS.find(name)
    assert name not in METHODS.names()


def test_a_data_set_from_outside(write_module):
    name = f"{write_module(DATASET)}:Mine"
    config = load_config(None, ["method=fedrf-plus", f"data.name={name}", "data.target=a"])
    assert (config.data.name, config.train.rounds) == (name, 7)
    assert DATASETS.find(name).domains(config.data) == ("a", "b")


def test_extractors_rules_and_scores_from_outside(write_module):
    module = write_module(
        dedent("""\
        def largest(clients, weights):
            return max(clients, key=lambda values: values.sum())

        def certainty(probabilities):
            return probabilities.max(1).values.mean()

        class Rows:
            takes_features = True

            def __init__(self, shape, weights):
                self.shape = shape
        """)
    )
    keys = {"federation.aggregation": "largest", "track.select": "certainty", "model.extractor": "Rows"}
    features = {"data.name": "features", "data.target": "t"}
    config = load_config(None, features | {key: f"{module}:{name}" for key, name in keys.items()})
    rule, score = AGGREGATION_RULES.find(config.federation.aggregation), SCORES.find(config.track.select)
    assert (rule.combine.__name__, rule.weights, rule.asynchronous) == ("largest", "equal", None)
    assert (score.compute.__name__, score.higher_is_better, score.by_sources) == ("certainty", True, False)
    extractor = EXTRACTORS.find(config.model.extractor)
    assert (extractor.takes_features, extractor.is_learned) == (True, False)
    assert extractor.build((3,), "none").shape == (3,)


def test_a_module_or_an_attribute_that_does_not_exist(write_module):
    assert error_of("method=no_such_module:Mine") == (
        "method=no_such_module:Mine: cannot import no_such_module "
        "(ModuleNotFoundError: No module named 'no_such_module')"
    )
    module = write_module(METHOD)
    missing = error_of(f"method={module}:Other")
    assert missing.startswith(f"method={module}:Other: {module} has no 'Other' (imported from ")
    assert missing.endswith(f"{module}.py)")
    for wrong in (f"{module}.py:Mine", f"folder/{module}:Mine", f"{module}:", ":Mine", f"{module}:Mi-ne"):
        assert error_of(f"method={wrong}") == (
            f"method={wrong}: a definition from outside is package.module:Name, without folders and without .py"
        )
    assert error_of(f"model.extractor={module}:x").startswith(
        f"model.extractor='{module}:x': {module} has no 'x' (imported from "
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise RuntimeError('no licence\\nfound')", "RuntimeError: no licence"),
        ("import math\nmath.no_such_function", "AttributeError: module 'math' has no attribute 'no_such_function'"),
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("class", "SyntaxError: invalid syntax"),
        ("raise KeyError", "KeyError"),
    ],
)
def test_a_module_that_raises_on_import(write_module, text, reason):
    module = write_module(text)
    assert f"method={module}:Mine: cannot import {module} ({reason}" in error_of(f"method={module}:Mine")


# Mistakes in a class


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (
            "",
            "Mine does not say what the target trains: set target_trains to a tuple of aligner, classifier, extractor,",
        ),
        (
            "target_trains = ('aligner', 'head')",
            "Mine.target_trains=('aligner', 'head'): allowed: a tuple of aligner, ",
        ),
        ("target_trains = 'aligner'", "Mine.target_trains='aligner': allowed: a tuple of aligner, classifier, extra"),
        ("target_trains = ('aligner',)", "Mine.target_trains=('aligner',) needs a target_loss to train with"),
        ("target_trains, shows_sources = (), True", "Mine.shows_sources needs asynchronous = False"),
        (
            "target_trains, weighs_sources = (), True",
            "Mine.weighs_sources needs shows_sources = True and a method weigh_sources",
        ),
        (
            "target_trains, message = (), 'samples'",
            "Mine.message='samples': allowed: a class of messages that are relayed",
        ),
        ("target_trains, pooling = (), 'half'", "Mine.pooling='half': allowed: none, sources, all, oracle"),
        (
            "target_trains, settings = (), {'train.roundz': 3}",
            "Mine.settings has the unknown key 'train.roundz'; `fedrf run --keys` lists all keys",
        ),
        ("target_trains, settings = (), {'train': 3}", "Mine.settings has the unknown key 'train'; `fedrf run --keys`"),
        ("target_trains, settings = (), {'lr': 3}", "Mine.settings has the unknown key 'lr'; `fedrf run --keys` lists"),
        ("target_trains, settings = (), {5: 3}", "Mine.settings has the unknown key 5; `fedrf run --keys` lists all"),
        ("target_trains, settings = (), ['train.lr']", "Mine.settings=['train.lr'] is not a dictionary of keys and"),
        (
            "target_trains = ()\n    def __init__(self, x): ...",
            "cannot make an instance of it (TypeError: Mine.__init__() missing 1 required positional argument: 'x')",
        ),
    ],
)
def test_a_mistake_in_the_class_of_a_method_gives_one_line(write_module, body, complaint):
    module = write_module(f"{IMPORT_METHOD}class Mine(Method):\n    {body}\n    summary = 'mine'\n")
    name = f"{module}:Mine"
    assert error_of(f"method={name}").startswith(f"method={name}: {complaint}")


@pytest.mark.parametrize(
    ("key", "definition", "complaint"),
    [
        ("method", "dict", "<class 'dict'> is not a subclass of fedrf.methods.base.Method"),
        ("method", "5", "5 is not a subclass of fedrf.methods.base.Method"),
        ("data.name", "dict", "<class 'dict'> is not a subclass of fedrf.data.dataset.Dataset"),
        ("model.extractor", "5", "5 is neither a class of extractors nor a function that returns one"),
        ("federation.aggregation", "5", "5 is neither a Rule nor a function of parameters and weights"),
        ("track.select", "5", "5 is neither a Score nor a function of class probabilities"),
    ],
)
def test_something_that_is_not_a_definition(write_module, key, definition, complaint):
    name = f"{write_module(f'Mine = {definition}')}:Mine"
    assert complaint in error_of(f"{key}={name}", "data.target=t")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("def load(", "def read(", "Mine does not define load"),
        ("name, about, origin = ", "name, about, source = ", "Mine does not set origin"),
        ("settings = ", "content, settings = 'sounds', ", "Mine.content='sounds': allowed: images, features"),
        ("train.rounds", "train.round", "Mine.settings has the unknown key 'train.round'; `fedrf run --keys` lists"),
    ],
)
def test_a_mistake_in_the_class_of_a_data_set_gives_one_line(write_module, old, new, complaint):
    name = f"{write_module(DATASET.replace(old, new))}:Mine"
    assert error_of(f"data.name={name}", "data.target=a").startswith(f"data.name={name}: {complaint}")
