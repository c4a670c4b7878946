"""No federation: each source trains alone, sends its network once at the end, and the target lets them vote.

Sent: W and C of each source, and its extractor where that is trained, once up and once down to the target.
"""

from __future__ import annotations

from fedrf.methods.base import Method, classification_loss, no_loss

METHOD = Method("source-only", classification_loss, no_loss)
