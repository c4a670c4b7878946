"""Messages that have not changed."""

import numpy as np
import pytest

from fedrf.protocol.message import BadMessageError
from fedrf.protocol.messages import MeanEmbedding
from fedrf.protocol.repeats import Repeats, Same


def message(number, values, sender="a", attempt=0):
    return MeanEmbedding(sender, number, attempt, np.array(values, np.float32))


def test_the_receiver_has_what_the_sender_meant():
    sender, receiver = Repeats(), Repeats()
    meant = [message(1, [0.1, 0.2]), message(2, [0.1, 0.2]), message(3, [0.1, 0.2]), message(4, [0.3, 0.2])]
    sent = [sender.shorten(each) for each in meant]
    assert [each.values for each in sent[1:3]] == [Same(1), Same(1)]
    assert [each.nbytes for each in sent] == [8, 8, 8, 8]
    received = [receiver.restore(each) for each in sent]
    assert [each.round for each in received] == [1, 2, 3, 4]
    for before, after in zip(meant, received, strict=True):
        np.testing.assert_array_equal(before.values, after.values)


def test_zeros_of_both_signs_are_different_bits():
    sender = Repeats()
    sender.shorten(message(1, [0.0]))
    assert isinstance(sender.shorten(message(2, [-0.0])).values, np.ndarray)


@pytest.mark.parametrize("other", [{"sender": "b"}, {"attempt": 1}])
def test_other_senders_and_processes_are_not_the_same(other):
    sender, receiver = Repeats(), Repeats()
    receiver.restore(sender.shorten(message(1, [0.1])))
    assert isinstance(sender.shorten(message(2, [0.1], **other)).values, np.ndarray)
    with pytest.raises(BadMessageError, match="repeats one that is not known"):
        receiver.restore(MeanEmbedding(**{"sender": "a", "round": 2, "attempt": 0, "values": Same(1), **other}))


def test_the_round_must_be_that_of_the_message():
    receiver = Repeats()
    receiver.restore(message(3, [0.1]))
    with pytest.raises(BadMessageError, match="mean_embedding of a repeats one that is not known"):
        receiver.restore(MeanEmbedding("a", 4, 0, Same(2)))


def test_after_forgetting_the_next_message_is_whole():
    sender = Repeats()
    sender.shorten(message(1, [0.1]))
    sender.forget()
    assert isinstance(sender.shorten(message(2, [0.1])).values, np.ndarray)
