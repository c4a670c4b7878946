"""`train.precision`: of the extractor alone, and of losses that are scaled."""

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn

import fedrf
from fedrf.config.loader import load_config
from fedrf.errors import RunFailedError
from fedrf.federation import worker
from fedrf.models import network
from fedrf.models.precision import ScaledLosses
from fedrf.protocol import messages
from tests.conftest import TINY, final_weights


def test_a_number_of_bits_is_a_precision():
    assert load_config(None, {**TINY, "train.precision": 32}).train.precision == "32"
    with pytest.raises(ValueError, match=r"train\.precision"):
        load_config(None, {**TINY, "train.precision": "64"})


def test_half_precision_needs_an_accelerator(tmp_path, monkeypatch):
    """Before samples are loaded, because their features can take hours."""
    monkeypatch.setattr(worker, "open_samples", None)
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


class TwoOptimizers(LightningModule):
    """Minimises a squared distance with two optimisers, as methods with an auxiliary network do."""

    def __init__(self, fused, overflows=()):
        super().__init__()
        self.automatic_optimization = False
        self.first, self.second = nn.Parameter(torch.tensor([3.0, 1.0])), nn.Parameter(torch.tensor([-2.0, 5.0]))
        self.fused, self.overflows, self.path = fused, overflows, []

    def configure_optimizers(self):
        return [torch.optim.SGD([part], lr=0.1, fused=self.fused) for part in (self.first, self.second)]

    def training_step(self, batch, number):
        loss = self.first.square().sum() + self.second.square().sum()
        if number in self.overflows:
            loss = loss * self.first.new_tensor(float("inf"))
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()
        self.path.append([*self.first.tolist(), *self.second.tolist()])


def trained(module, plugin, steps=6, folder=None):
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        plugins=[plugin],
    )
    trainer.fit(module, torch.utils.data.DataLoader(torch.zeros(steps, 1)))
    if folder:
        trainer.save_checkpoint(folder)
    return module.path


def scaling(interval):
    """Scales that double after every `interval` steps; the smallest step, 1, is the hardest case."""
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=interval)
    return ScaledLosses("16-mixed", "cpu", scaler)


@pytest.mark.filterwarnings("ignore")  # Lightning's hints about loaders
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("interval", [1, 2])
def test_two_optimisers_take_the_steps_of_unscaled_losses(fused, interval):
    expected = [[value * 0.8**step for value in (3.0, 1.0, -2.0, 5.0)] for step in range(1, 7)]
    assert np.allclose(trained(TwoOptimizers(fused), scaling(interval)), expected, rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fused", [False, True])
def test_an_overflow_stops_both_optimisers_for_one_step_and_halves_the_scale_once(fused, tmp_path):
    plugin = scaling(interval=1000)
    path = trained(TwoOptimizers(fused, overflows={2}), plugin, folder=tmp_path / "saved")
    powers = [1, 2, 2, 3, 4, 5]
    assert np.allclose(path, [[value * 0.8**power for value in (3.0, 1.0, -2.0, 5.0)] for power in powers], rtol=1e-5)
    saved = torch.load(tmp_path / "saved", weights_only=False)["ScaledLosses"]
    assert (saved["scale"], saved["_growth_tracker"]) == (4.0, 3)  # the last step is counted too
