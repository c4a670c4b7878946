"""What the classes of methods say of themselves, and that no other package knows a method by name."""

import re
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from fedrf.config.registry import METHODS
from fedrf.methods import accept
from fedrf.methods.base import Method
from fedrf.protocol.messages import Moments

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", METHODS.built_in)
def test_every_method_has_a_name_a_summary_and_a_formula(name):
    method = METHODS.find(name)
    assert method.name == name
    assert method.summary
    assert method.bytes_per_round


def test_methods_are_read_without_torch():
    script = """
import sys
from fedrf.config.registry import METHODS
for _, method in METHODS.items():
    for attribute in dir(method):
        getattr(method, attribute)
assert len(METHODS.names()) >= 22
print("torch" in sys.modules)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert answer.stdout == "False\n", answer.stderr


# The name as a word. An English word counts only as a whole string, or as the value of the key.
WORDS = "|".join(re.escape(name) for name in METHODS.built_in if name != "pooled")
MENTION = re.compile(rf"""(?<![\w-])({WORDS})(?![\w-])|["'`]pooled["'`]|method=pooled(?![\w-])""")


@pytest.mark.parametrize(
    ("text", "is_mention"),
    [
        ('config.method == "fedavg"', True),
        ("as `fedavg` does", True),
        ("method=fedavg", True),
        ('"fedavg-rf"', True),
        ('"fedavg-variant"', False),
        ("my_fedavg", False),
        ("FedAvg", False),
        ("pooled samples", False),
        ('"pooled"', True),
        ("method=pooled", True),
        ("method=pooled-variant", False),
        ('"pooled samples"', False),
    ],
)
def test_what_counts_as_a_mention(text, is_mention):
    assert bool(MENTION.search(text)) == is_mention


def test_no_other_package_mentions_a_method():
    found = []
    for package in ("fedrf", "tune", "cluster"):
        for path in sorted((ROOT / package).rglob("*.py")):
            # The paper's experiments name methods, as users do.
            if {ROOT / "fedrf/methods", ROOT / "fedrf/paper"} & set(path.parents):
                continue
            lines = [(path.relative_to(ROOT).as_posix(), line.strip()) for line in path.read_text().splitlines()]
            found += [entry for entry in lines if MENTION.search(entry[1])]
    # The default of the key `method`.
    ((path, line),) = found
    assert path == "fedrf/config/schema.py"
    assert re.fullmatch(r'method: .* = Field\("fedrf-oneshot", .*\)', line)


class Incomplete(Method):
    name = "incomplete"


class UnknownPart(Method):
    target_trains = ("backbone",)


class TextInsteadOfTuple(Method):
    target_trains = "aligner"


class WithoutTargetLoss(Method):
    target_trains = ("aligner",)


class ShowsSources(Method):
    target_trains = ()
    shows_sources = True


class WeighsSources(Method):
    target_trains = ()
    weighs_sources = True


class UnknownMessage(Method):
    target_trains = ()
    message = "samples"


class WithoutValues(Method):
    target_trains = ()
    message = Moments


class MissingStep(Method):
    target_trains = ("aligner", "extractor")
    target_steps: ClassVar = {"aligner": 100}

    def target_loss(self, *arguments):
        return {}


class MistypedHook(Method):
    target_trains = ()

    def sorce_loss(self, *arguments):
        return {}


class MistypedFlag(Method):
    target_trains = ()
    asynchronous = "no"


class UnknownPooling(Method):
    target_trains = ()
    pooling = "everything"


@pytest.mark.parametrize(
    ("definition", "error"),
    [
        (Incomplete, "Incomplete does not say what the target trains: set target_trains to a tuple of aligner, "),
        (UnknownPart, r"UnknownPart.target_trains=\('backbone',\): allowed: a tuple of aligner, classifier, extractor"),
        (TextInsteadOfTuple, "TextInsteadOfTuple.target_trains='aligner': allowed: a tuple of "),
        (WithoutTargetLoss, r"WithoutTargetLoss.target_trains=\('aligner',\) needs a target_loss"),
        (ShowsSources, "ShowsSources.shows_sources needs asynchronous = False"),
        (WeighsSources, "WeighsSources.weighs_sources needs shows_sources = True and a method weigh_sources"),
        (UnknownMessage, "UnknownMessage.message='samples': allowed: a class of messages that are relayed"),
        (WithoutValues, "WithoutValues.message=Moments needs a method own_message"),
        (MissingStep, "MissingStep.target_steps needs a factor for each of aligner, extractor"),
        (MistypedHook, r"MistypedHook has sorce_loss; did you mean source_loss\?"),
        (MistypedFlag, "MistypedFlag.asynchronous='no': allowed: True, False"),
        (UnknownPooling, "UnknownPooling.pooling='everything': allowed: none, sources, all, oracle"),
        (dict, "<class 'dict'> is not a subclass of fedrf.methods.base.Method"),
    ],
)
def test_mistakes_in_a_class_are_named_in_one_line(definition, error):
    with pytest.raises(ValueError, match=f"^{error}") as caught:
        accept(definition)
    assert "\n" not in str(caught.value)
