"""One average: each source trains alone to the end, and then their networks are averaged, weighted by sample counts.

Sent: G, W and C of each source once, after the last round, and the average down to all. Bytes a round: ``0``.
Asynchronous: yes.
"""

from __future__ import annotations

from fedrf.methods.base import Method, classification_loss, no_loss

METHODS = (Method("source-average", classification_loss, no_loss),)
