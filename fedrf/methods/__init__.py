"""Methods, one file each; `METHODS` is the registry, in the order of `fedrf.config.presets`.

A file has `METHODS`, and says at its top what is sent, how many bytes that is in a round, and whether nobody need wait
for anybody. In these formulas, which tests hold against what was sent, there are K sources; G, W, C and D are the
numbers in extractor, aligner, classifier and companion, S = 2N those in Σℓ, m those in an aligned sample, B samples are
in a batch, and averages are taken every T rounds (`federation.classifier_interval`).
"""

from importlib import import_module
from pkgutil import iter_modules

from fedrf.config.presets import PRESETS
from fedrf.methods.base import Inbox, Method

_FOUND = {
    method.name: method
    for module in iter_modules(__path__)
    for method in getattr(import_module(f"{__name__}.{module.name}"), "METHODS", ())
}
METHODS: dict[str, Method] = {name: _FOUND[name] for name in PRESETS}

__all__ = ["METHODS", "Inbox", "Method"]
