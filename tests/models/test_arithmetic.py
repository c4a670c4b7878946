"""Settings of a GPU while a client runs, and precision of the extractor."""

import warnings

import numpy as np
import pytest
import torch
from torch.backends import cudnn

import fedrf
from fedrf.config.loader import load_config
from fedrf.errors import RunFailedError
from fedrf.models import network
from fedrf.models.arithmetic import arithmetic
from fedrf.protocol import messages
from tests.conftest import TINY, final_weights

CUDA = torch.device("cuda", 0)  # settings can be made without one


def settings():
    return (
        torch.are_deterministic_algorithms_enabled(),
        cudnn.benchmark,
        cudnn.allow_tf32,
        torch.get_float32_matmul_precision(),
    )


@pytest.fixture
def before():
    """Settings that no configuration has."""
    kept = settings()
    cudnn.benchmark, cudnn.allow_tf32 = True, True
    torch.set_float32_matmul_precision("medium")
    yield settings()
    assert settings() == (kept[0], True, True, "medium")
    cudnn.benchmark, cudnn.allow_tf32 = kept[1:3]
    torch.set_float32_matmul_precision(kept[3])


@pytest.mark.parametrize(
    ("mode", "precision", "expected"),
    [
        ("sync", "32", (True, False, False, "highest")),
        ("async", "32", (False, False, False, "highest")),
        ("sync", "tf32", (True, False, True, "high")),
        ("async", "bf16-mixed", (False, False, False, "highest")),
    ],
)
def test_settings_of_a_gpu_hold_until_the_last_client_has_ended(before, mode, precision, expected):
    config = load_config(None, {**TINY, "federation.mode": mode, "train.precision": precision})
    first, second = (arithmetic(config, CUDA, print) for _ in range(2))
    with first:
        with second:
            assert settings() == expected
        assert settings() == expected
    assert settings() == before


def test_nothing_changes_on_the_cpu(before):
    config = load_config(None, {**TINY, "federation.mode": "sync"})
    with arithmetic(config, torch.device("cpu"), print):
        assert settings() == before


def test_operations_without_a_deterministic_implementation_are_noted_once():
    config, notes = load_config(None, {**TINY, "federation.mode": "sync"}), []
    shown = warnings.showwarning
    with warnings.catch_warnings(), arithmetic(config, CUDA, notes.append):
        for _ in range(3):
            warnings.warn("pool_backward does not have a deterministic implementation, but you set it", stacklevel=1)
    assert notes == ["not the same bits on a GPU: pool_backward has no deterministic implementation"]
    assert warnings.showwarning is shown


def test_a_number_of_bits_is_a_precision():
    assert load_config(None, {**TINY, "train.precision": 32}).train.precision == "32"
    with pytest.raises(ValueError, match=r"train\.precision"):
        load_config(None, {**TINY, "train.precision": "64"})


def test_half_precision_needs_an_accelerator(tmp_path):
    keys = {**TINY, "train.precision": "16-mixed", "resources.accelerator": "cpu"}
    with pytest.raises(RunFailedError, match=r"precision=16-mixed needs an accelerator; allowed on a CPU: 32, tf32"):
        fedrf.run(None, keys, out=tmp_path / "run", local=True)


def test_messages_have_single_precision_and_unit_norm_whatever_the_precision_of_the_extractor(tmp_path, monkeypatch):
    """In bfloat16, norms of means would be off by 0.004, and be refused."""
    norms, kinds = [], set()
    check, extract = messages.MeanEmbedding.check_bounds, network.DomainModel._extract

    def checked(self, where, norm):
        norms.append(float(np.linalg.norm(self.values.astype(np.float64))))
        check(self, where, norm)

    def extracted(self, inputs):
        kinds.add(self.extractor.adapter(inputs[:1]).dtype)
        with torch.autocast("cpu", torch.bfloat16):
            low = self.extractor.adapter(inputs)
        result = extract(self, inputs)
        assert result.dtype == torch.float32
        assert torch.equal(result, low.float())
        return result

    monkeypatch.setattr(messages.MeanEmbedding, "check_bounds", checked)
    monkeypatch.setattr(network.DomainModel, "_extract", extracted)
    keys = {**TINY, "federation.mode": "sync", "model.kernel": "gaussian", "model.sigma": 1000.0}
    mixed = fedrf.run(None, {**keys, "train.precision": "bf16-mixed"}, out=tmp_path / "mixed", local=True)
    assert kinds == {torch.float32}
    assert max(norms) > 0.9999  # a wide kernel: the means are as long as they can be
    assert max(norms) <= 1 + 1e-6
    assert mixed.summary["communication"]["refused"] == {}
    monkeypatch.undo()
    plain = fedrf.run(None, keys, out=tmp_path / "plain", local=True)
    assert final_weights(mixed) != final_weights(plain)


def test_tf32_changes_no_bit_on_the_cpu(tmp_path):
    keys = {**TINY, "federation.mode": "sync", "train.rounds": 2, "adapt.steps": 1}
    runs = [
        fedrf.run(None, {**keys, "train.precision": precision}, out=tmp_path / precision, local=True)
        for precision in ("32", "tf32")
    ]
    assert final_weights(runs[0]) == final_weights(runs[1])
