"""FDA (Kang et al. 2022): MMD between clients of which the sources' features are encrypted.

What makes encryption possible is a cheap MMD: to second order in the distances a Gaussian kernel's is the squared
distance between two means. Its gradient is linear in the other side's features, and sums are what Paillier's
ciphertexts allow. So sources send [[z]], the target adds ciphertexts up and has only a mean decrypted
(`encrypted_mean`, for real, with the package phe).

In a run of many rounds numbers go as they are and count as ciphertexts of 512 bytes (keys of 2048 bits): no result
would differ, and one batch would take minutes.

Sent every round: B aligned features, encrypted from each source up and down to the target, plain from the target up and
down to each source; m ciphertexts, the mean, from the target to each source, and m decrypted numbers back. Once: each
source's public key, 256 bytes. Every T rounds as f-DAN. Bytes a round, P = 512:
``2*K * (B + 1)*m * P + 4 * (K + 1) * B*m + 4 * 2*K * m + 4 * ((2*K + 2) * (G + W) + (2*K + 1) * C) / T``. Asynchronous:
no, the mean is decrypted by who sent it, in the same round.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor

from fedrf.methods import f_dan
from fedrf.methods.base import Method
from fedrf.methods.sample_mmd import linear_mmd

PRECISION = 1e-7  # of numbers between −1 and 1


def encrypt(public_key: Any, rows: Tensor) -> list[list[Any]]:
    """Encrypt every number on its own, as a source does."""
    # One precision for all: exponents are sent in the clear, and would tell magnitudes.
    return [[public_key.encrypt(float(number), precision=PRECISION) for number in row] for row in rows]


def encrypted_mean(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the mean of encrypted rows, still encrypted: what the target does, without any key."""
    return [sum(column[1:], column[0]) * (1 / len(rows)) for column in zip(*rows, strict=True)]


METHODS = (Method("fda", partial(f_dan.source_loss, linear_mmd), partial(f_dan.target_loss, linear_mmd)),)
