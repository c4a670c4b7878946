"""Parts of a network: copied, loaded, and replaced for one forward pass."""

import copy

import pytest
import torch

from fedrf.models.extractors.builders import make_extractor
from fedrf.models.network import DomainModel, NoRandomFeatures
from fedrf.models.parts import get_part, outputs_with, parameters_of, set_part
from fedrf.tca.random_features import RandomFourierFeatures

PARTS = ("aligner", "classifier", "extractor")


def network(seed, has_random_features, classifier="linear"):
    torch.manual_seed(seed)
    extractor = make_extractor("identity", (5,))
    torch.nn.init.normal_(extractor.adapter.outer.weight)
    random_features = RandomFourierFeatures(5, 20) if has_random_features else NoRandomFeatures(5)
    return DomainModel(extractor, random_features, 4, 3, classifier)


@pytest.mark.parametrize("has_random_features", [True, False])
@pytest.mark.parametrize("classifier", ["linear", "mlp"])
@pytest.mark.parametrize("names", [PARTS, ("classifier",), ("extractor", "aligner")])
def test_outputs_with_other_parts_are_those_of_a_copy_that_has_them(has_random_features, classifier, names):
    model, other = (network(seed, has_random_features, classifier) for seed in (0, 1))
    inputs = torch.randn(6, 5, requires_grad=True)
    parts = {part: get_part(other, part) for part in names}
    before = copy.deepcopy(model.state_dict())
    reference = copy.deepcopy(model)
    for part, values in parts.items():
        set_part(reference, part, values)
    logits, aligned = outputs_with(model, parts, inputs), outputs_with(model, parts, inputs, "aligned")
    torch.testing.assert_close(logits, reference(inputs).detach(), rtol=0, atol=0)
    torch.testing.assert_close(aligned, reference.align(reference.features(inputs)).detach(), rtol=0, atol=0)
    assert not logits.requires_grad
    assert not torch.allclose(logits, model(inputs))
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)


def test_a_part_of_another_size_is_an_error():
    model = network(0, False)
    with pytest.raises(RuntimeError):
        outputs_with(model, {"classifier": torch.zeros(14)}, torch.randn(2, 5))


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("classifier", ["linear", "mlp"])
def test_a_part_can_be_copied_to_another_network(part, classifier):
    first, second = (network(seed, True, classifier) for seed in (0, 1))
    values = get_part(first, part)
    before = values.clone()
    assert not torch.equal(get_part(second, part), before)
    set_part(second, part, values)
    torch.testing.assert_close(get_part(second, part), before, rtol=0, atol=0)
    with torch.no_grad():
        for parameter in parameters_of(first, part):
            parameter += 1
    torch.testing.assert_close(values, before, rtol=0, atol=0)  # `get_part` returns a copy
