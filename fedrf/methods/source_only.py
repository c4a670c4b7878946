"""No federation: each source trains alone, sends its network once at the end, and the target lets them vote."""

from __future__ import annotations

from fedrf.methods.base import Method, classification_loss, no_loss

METHOD = Method(
    "source-only",
    classification_loss,
    no_loss,
    sent="W and C (and the extractor, if trained) of each source once, at the end",
)
