"""Sizes of messages, against those of a model."""

import numpy as np
import pytest

from fedrf.config.loader import load_config
from fedrf.models.extractors.builders import make_extractor
from fedrf.models.network import DomainModel
from fedrf.models.parts import get_part
from fedrf.protocol.message import BadMessageError
from fedrf.protocol.messages import Aligner, Classifier, Greeting
from fedrf.protocol.sizes import Sizes
from fedrf.tca.random_features import RandomFourierFeatures

CONFIG = {"method": "fedrf-plus", "model.num_features": 1, "model.dim": 2}


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_expected_shapes_are_those_of_the_model(kind):
    sizes = Sizes.of(load_config(None, {**CONFIG, "model.classifier": kind}), 3)
    model = DomainModel(make_extractor("identity", (3,)), RandomFourierFeatures(3, 1), 2, 10, kind)
    for message in (Aligner, Classifier):
        assert tuple(get_part(model, message.kind).shape) == message.shape(sizes)


def test_clients_agree_on_the_sizes_of_the_majority():
    greetings = [Greeting(name, 0, 0, 1.0, extractor, 1, 7, 2) for name, extractor in (("a", 9), ("b", 4), ("t", 4))]
    without_kernel = Sizes.of(load_config(None, {**CONFIG, "model.kernel": "none"}), 3)
    assert without_kernel.features is None
    agreed = without_kernel.agreed(greetings)
    assert (agreed.extractor, agreed.auxiliary, agreed.features) == (4, 2, 7)
    with_kernel = Sizes.of(load_config(None, CONFIG), 3).agreed(greetings)
    assert with_kernel.features == 2  # 2N, whatever clients say


def test_messages_of_unknown_size_are_refused():
    """Before clients have agreed on sizes there is no bound on what would be stored."""
    sizes = Sizes.of(load_config(None, {**CONFIG, "model.kernel": "none"}), 3)
    with pytest.raises(BadMessageError, match="aligner of a is not expected in this run, or not yet"):
        Aligner("a", 1, 0, np.ones((5, 2), np.float32)).check(sizes)
