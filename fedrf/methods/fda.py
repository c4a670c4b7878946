"""FDA (Kang et al. 2022): MMD between clients, for which the sources encrypt their features.

Encryption needs a cheap MMD: to second order in the distances, that of a Gaussian kernel is the squared distance
between two means. Its gradient is linear in the other side's features, and Paillier ciphertexts can be added. So
sources send [[z]], the target adds ciphertexts, and only a mean is decrypted (`encrypted_mean` does it with the
package phe).

In a run, plain numbers are sent and counted as ciphertexts of 512 bytes (keys of 2048 bits): the result is the same,
and encrypting one batch takes minutes.

Sent every round: B aligned features, encrypted from each source up and down to the target, plain from the target up and
down to each source; m ciphertexts, the mean, from the target to each source, and m decrypted numbers back. Once: each
source's public key, 256 bytes. Every T rounds as f-DAN. The sender decrypts the mean in the same round, so the method
is synchronous.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedrf.methods.averaging import NETWORK_AND_MESSAGES
from fedrf.methods.f_dan import FDAN
from fedrf.methods.sample_mmd import linear_mmd
from fedrf.protocol.messages import Ciphertexts

if TYPE_CHECKING:
    from torch import Tensor

PRECISION = 1e-7  # of numbers between −1 and 1


class FDA(FDAN):
    """MMD to second order between batches, with encrypted features of the sources."""

    name = "fda"
    summary = "linear MMD between batches, with encrypted features of the sources"
    settings = {**NETWORK_AND_MESSAGES, "federation.mode": "sync"}
    source_message = Ciphertexts
    asynchronous = False
    bytes_per_round = (
        "2*K * (B + 1)*m * P + 4 * (K + 1) * B*m + 4 * 2*K * m + 4 * ((2*K + 2) * (G + W) + (2*K + 1) * C) / T"
    )
    distance = staticmethod(linear_mmd)


def encrypt(public_key: Any, rows: Tensor) -> list[list[Any]]:
    """Encrypt every number separately, as a source does."""
    # One precision for all: exponents are not encrypted, and would reveal magnitudes.
    return [[public_key.encrypt(float(number), precision=PRECISION) for number in row] for row in rows]


def encrypted_mean(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the encrypted mean of encrypted rows, which the target computes without a key."""
    return [sum(column[1:], column[0]) * (1 / len(rows)) for column in zip(*rows, strict=True)]
