"""FDA's encryption for real: what the target computes without a key, and how large a ciphertext is."""

import pytest
import torch
from phe import paillier

from fedrf.methods.fda import encrypt, encrypted_mean
from fedrf.methods.sample_mmd import linear_mmd
from fedrf.protocol.messages import CIPHERTEXT_BYTES, Ciphertexts, Features


@pytest.fixture(scope="module")
def keys():
    return paillier.generate_paillier_keypair(n_length=512)


def test_the_mean_of_encrypted_rows_decrypts_to_the_mean(keys):
    public, private = keys
    torch.manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(5, 3))
    hidden = encrypt(public, rows)
    assert all(isinstance(one, paillier.EncryptedNumber) for row in hidden for one in row)
    assert len({one.ciphertext() for row in encrypt(public, torch.ones(4, 1)) for one in row}) == 4  # never the same
    mean = torch.tensor([private.decrypt(one) for one in encrypted_mean(hidden)])
    torch.testing.assert_close(mean, rows.mean(0))


def test_one_row_is_its_own_mean(keys):
    public, private = keys
    (got,) = encrypted_mean(encrypt(public, torch.tensor([[-0.25]])))
    assert private.decrypt(got) == -0.25


def test_the_gradient_needs_nothing_but_the_mean(keys):
    """At the target: 2/n · (own mean − mean of the source), for each of its rows."""
    public, private = keys
    torch.manual_seed(1)
    own, theirs = torch.randn(4, 2, requires_grad=True), torch.randn(3, 2)
    linear_mmd(own, theirs).backward()
    mean = torch.tensor([private.decrypt(one) for one in encrypted_mean(encrypt(public, theirs))])
    torch.testing.assert_close(own.grad, (2 / 4 * (own.detach().mean(0) - mean)).expand(4, 2))


def test_a_ciphertext_takes_the_bytes_that_are_counted():
    public, _ = paillier.generate_paillier_keypair(n_length=2048)
    size = (public.encrypt(0.1).ciphertext().bit_length() + 7) // 8
    assert CIPHERTEXT_BYTES / 2 < size <= CIPHERTEXT_BYTES
    rows = torch.zeros(6, 4).numpy()
    assert Ciphertexts("ward", 1, 1, rows).nbytes == 6 * 4 * CIPHERTEXT_BYTES
    assert Features("home", 1, 1, rows).nbytes == 6 * 4 * 4
