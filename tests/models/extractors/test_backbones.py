"""Properties that all backbones share."""

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from fedrf.models.extractors.builders import make_extractor
from fedrf.models.extractors.preparation import Preparation
from tests.models.extractors.images import noisy_patches

HALF_MAX = torch.finfo(torch.float16).max


def test_weights_of_another_network_are_refused(resnet18):
    with pytest.raises(ValueError, match=r"^model.weights=.*resnet18.pth: .*missing layer1.0.conv3.weight.* more$"):
        make_extractor("resnet50", None, weights=str(resnet18[0]))
    with pytest.raises(ValueError, match=r"^model.weights=.*resnet18.pth: .*missing _conv_stem.weight.* more$"):
        make_extractor("efficientnet-lite0", None, weights=str(resnet18[0]))


def test_preparation_belongs_to_the_weights(efficientnets):
    assert efficientnets["efficientnet-lite0"].prepare == Preparation(256, 224, "bicubic")
    assert efficientnets["efficientnet-lite0-plus"].prepare == Preparation(320, 320, "bicubic")
    assert efficientnets["efficientnet-lite0-small"].prepare == Preparation(64, 64, "bilinear")
    assert make_extractor("resnet18", (1, 28, 28), "none").prepare == Preparation(256, 224, "bilinear")


@torch.no_grad()
@pytest.mark.parametrize("name", ["efficientnet-lite0-small", "resnet18"])
def test_training_mode_changes_no_output(name):
    extractor, x = make_extractor(name, None, "none"), noisy_patches(3, 64)
    before, state = extractor.eval()(x), {key: value.clone() for key, value in extractor.state_dict().items()}
    assert torch.equal(extractor.train()(x), before)
    assert not any(module.training for module in extractor.trunk.modules())
    assert all(torch.equal(value, state[key]) for key, value in extractor.state_dict().items())


@torch.no_grad()
@pytest.mark.parametrize("name", ["efficientnet-lite0", "resnet18", "resnet50"])
def test_random_weights_give_activations_of_moderate_size(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        extractor = make_extractor(name, (1, 28, 28), "none")
    x = noisy_patches(2, extractor.prepare.crop)
    trunk = extractor.trunk(x)
    for features in (trunk, extractor.adapter(trunk)):
        assert features.isfinite().all()
        assert 0.05 < features.square().mean().sqrt() < 20
        assert features.abs().max() < HALF_MAX
        # Two images have different features.
        assert (features[0] - features[1]).norm() > 0.02 * features[0].norm()
    assert extractor(x).shape == (2, extractor.out_features)


def test_random_weights_depend_on_the_global_seed_only():
    def weights(seed):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return parameters_to_vector(
                value.contiguous() for value in make_extractor("efficientnet-lite0-small", None, "none").parameters()
            )

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


@torch.no_grad()
@pytest.mark.parametrize("name", ["efficientnet-lite0-small", "resnet18"])
def test_other_samples_of_a_batch_change_no_bit(name):
    # The cache relies on it. It only holds for batches of equal size: PyTorch uses other kernels for small ones.
    network, x = make_extractor(name, None, "none").frozen_layers(), noisy_patches(32, 64)
    together = network(x)
    for shift in (1, 5, 16):
        assert torch.equal(network(x.roll(shift, dims=0)), together.roll(shift, dims=0))
    alone = torch.zeros_like(x)
    alone[13] = x[2]
    assert torch.equal(network(alone)[13], together[2])
