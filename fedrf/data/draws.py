"""The random choices of a client: from the seed, which all know, or from a secret of its own."""

from __future__ import annotations

import secrets
from hashlib import blake2b

import numpy as np

SECRET_BYTES = 32


def new_secret() -> bytes:
    """Return a secret that nobody can guess."""
    return secrets.token_bytes(SECRET_BYTES)


class Draws:
    """Generators of random numbers for one client.

    Parameters
    ----------
    seed
        The seed of the run.
    is_private
        Whether numbers depend on a secret of this client instead (`federation.private_batches`).

    Attributes
    ----------
    secret
        It is kept here and in the client's checkpoints, and nowhere else; None if the seed is used.
    """

    def __init__(self, seed: int, is_private: bool) -> None:
        self._seed = seed
        self.secret = new_secret() if is_private else None

    def random(self, *purpose: int) -> np.random.RandomState:
        """Return a generator that depends on the purpose and on seed or secret alone, so resuming needs no state."""
        if self.secret is None:
            return np.random.RandomState([self._seed, *purpose])
        # A hash: who finds out the numbers for one purpose learns nothing about the secret or the other purposes.
        digest = blake2b(repr(purpose).encode(), key=self.secret, digest_size=32).digest()
        return np.random.RandomState(np.frombuffer(digest, dtype="<u4"))
