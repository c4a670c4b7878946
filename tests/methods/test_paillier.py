"""FDA's encryption with real keys: the target's computation without a key, and the size of a ciphertext."""

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
    encrypted = encrypt(public, rows)
    assert all(isinstance(number, paillier.EncryptedNumber) for row in encrypted for number in row)
    ciphertexts = {number.ciphertext() for row in encrypt(public, torch.ones(4, 1)) for number in row}
    assert len(ciphertexts) == 4  # equal numbers have different ciphertexts
    mean = torch.tensor([private.decrypt(number) for number in encrypted_mean(encrypted)])
    torch.testing.assert_close(mean, rows.mean(0))


def test_the_mean_of_one_row_is_that_row(keys):
    public, private = keys
    (mean,) = encrypted_mean(encrypt(public, torch.tensor([[-0.25]])))
    assert private.decrypt(mean) == -0.25


def test_the_gradient_depends_on_the_mean_only(keys):
    """At the target it is 2/n · (own mean − mean of the source) for each row."""
    public, private = keys
    torch.manual_seed(1)
    own, others = torch.randn(4, 2, requires_grad=True), torch.randn(3, 2)
    linear_mmd(own, others).backward()
    mean = torch.tensor([private.decrypt(number) for number in encrypted_mean(encrypt(public, others))])
    torch.testing.assert_close(own.grad, (2 / 4 * (own.detach().mean(0) - mean)).expand(4, 2))


def test_ciphertexts_are_counted_with_their_size():
    public, _ = paillier.generate_paillier_keypair(n_length=2048)
    size = (public.encrypt(0.1).ciphertext().bit_length() + 7) // 8
    assert CIPHERTEXT_BYTES / 2 < size <= CIPHERTEXT_BYTES
    rows = torch.zeros(6, 4).numpy()
    assert Ciphertexts("ward", 1, 1, rows).nbytes == 6 * 4 * CIPHERTEXT_BYTES
    assert Features("home", 1, 1, rows).nbytes == 6 * 4 * 4
