"""Random choices of a client, from the seed or from its secret."""

import numpy as np
import pytest

from fedrf.data import draws
from fedrf.data.draws import Draws


def test_the_seed_gives_the_numbers_that_the_protocol_documents():
    drawn = Draws(7, is_private=False)
    assert drawn.secret is None
    expected = np.random.RandomState([7, 2, 5, 0xDA7A]).permutation(50)
    np.testing.assert_array_equal(drawn.random(2, 5, 0xDA7A).permutation(50), expected)


def test_a_secret_gives_the_same_numbers_for_a_purpose_and_others_for_another(monkeypatch):
    monkeypatch.setattr(draws, "new_secret", lambda: b"a" * 32)
    first, again = Draws(0, is_private=True), Draws(0, is_private=True)
    np.testing.assert_array_equal(first.random(1, 2).permutation(50), again.random(1, 2).permutation(50))
    for other in (first.random(1, 3), first.random(12), first.random(2, 1), np.random.RandomState([0, 1, 2])):
        assert (other.permutation(50) != first.random(1, 2).permutation(50)).sum() > 40


@pytest.mark.parametrize("differing", [0, 31])
def test_every_byte_of_the_secret_counts(monkeypatch, differing):
    one, two = bytes(32), bytes(int(position == differing) for position in range(32))
    drawn = []
    for secret in (one, two):
        monkeypatch.setattr(draws, "new_secret", lambda secret=secret: secret)
        drawn.append(Draws(0, is_private=True).random(1).permutation(50))
    assert (drawn[0] != drawn[1]).sum() > 40


def test_secrets_are_long_and_never_the_same():
    secrets = {Draws(0, is_private=True).secret for _ in range(10)}
    assert {len(secret) for secret in secrets} == {32}
    assert len(secrets) == 10
