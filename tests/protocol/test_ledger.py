"""What the coordinator counts and records."""

import pickle

from fedrf.protocol.ledger import Ledger


def test_who_was_left_out_how_often_and_why():
    ledger = Ledger()
    for reason in ("far", "far", "odd"):
        ledger.suspect("a", reason)
    ledger.suspect("b", "far")
    assert ledger.suspicions == {"a": {"far": 2, "odd": 1}, "b": {"far": 1}}
    assert ledger.failures == [
        "left out: a, because far",
        "left out: a, because odd",
        "left out: b, because far",
    ]
    assert pickle.loads(pickle.dumps(ledger)).suspicions == ledger.suspicions
