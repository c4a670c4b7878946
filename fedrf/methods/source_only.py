"""No federation: each source trains alone, sends its network once at the end, and the target lets them vote.

The network is that of FedRF-TCA, random features included, so that it shows what alignment and adaptation bring. With
`--sources each` a comparison has the accuracy of each source alone.

Sent: W and C of each source, and its extractor where that is trained, once up and once down to the target. Bytes a
round: ``0``. Asynchronous: yes, nobody waits until the end.
"""

from __future__ import annotations

from fedrf.methods.base import Method, classification_loss, no_loss

METHODS = (Method("source-only", classification_loss, no_loss),)
