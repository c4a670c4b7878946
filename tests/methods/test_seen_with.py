"""A network with other parts: the same as a copy that has them."""

import copy

import pytest
import torch

from fedrf.models.extractors.builders import make_extractor
from fedrf.models.network import DomainModel, NoRandomFeatures
from fedrf.tca.random_features import RandomFourierFeatures

KINDS = ("aligner", "classifier", "extractor")


def network(seed, kernel, classifier="linear"):
    torch.manual_seed(seed)
    adapter = make_extractor("identity", (5,)).adapter
    torch.nn.init.normal_(adapter.outer.weight)
    between = RandomFourierFeatures(5, 20) if kernel else NoRandomFeatures(5)
    return DomainModel(adapter, between, 4, 3, classifier)


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("classifier", ["linear", "mlp"])
@pytest.mark.parametrize("kinds", [KINDS, ("classifier",), ("extractor", "aligner")])
def test_what_a_copy_with_these_parts_gives(kernel, classifier, kinds):
    model, other = network(0, kernel, classifier), network(1, kernel, classifier)
    inputs = torch.randn(6, 5, requires_grad=True)
    parts = {kind: other.get_part(kind) for kind in kinds}
    before = copy.deepcopy(model.state_dict())
    reference = copy.deepcopy(model)
    for kind, values in parts.items():
        reference.set_part(kind, values)
    logits, aligned = model.seen_with(parts, inputs), model.seen_with(parts, inputs, "aligned")
    torch.testing.assert_close(logits, reference(inputs).detach(), rtol=0, atol=0)
    torch.testing.assert_close(aligned, reference.align(reference.features(inputs)).detach(), rtol=0, atol=0)
    assert not logits.requires_grad
    assert not torch.allclose(logits, model(inputs))
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


def test_a_part_of_another_size_is_an_error():
    model = network(0, False)
    with pytest.raises(RuntimeError):
        model.seen_with({"classifier": torch.zeros(14)}, torch.randn(2, 5))
