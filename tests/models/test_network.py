"""`DomainModel` alone: trained and used by a Lightning trainer, and its parts."""

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from fedrf.models.extractors.builders import make_extractor
from fedrf.models.extractors.extractor import CachedExtractor
from fedrf.models.network import DomainModel, NoRandomFeatures
from fedrf.tca.random_features import RandomFourierFeatures


def digits():
    """Return 600 handwritten digits as images of 8 × 8 pixels, and their labels."""
    images, labels = load_digits(return_X_y=True)
    return torch.from_numpy(images[:600] / 16).float().reshape(-1, 1, 8, 8), torch.from_numpy(labels[:600])


def clusters():
    """Return rows around ten centres, and their labels."""
    random = np.random.RandomState(0)
    labels = np.arange(600) % 10
    rows = 2 * random.randn(10, 20)[labels] + random.randn(600, 20)
    return torch.from_numpy(rows).float(), torch.from_numpy(labels)


def new_model(extractor, shape, **settings):
    torch.manual_seed(0)
    extractor = make_extractor(extractor, shape)
    random_features = RandomFourierFeatures(extractor.out_features, 100, sigma=1.0)
    return DomainModel(extractor, random_features, dim=16, num_classes=10, **settings)


def new_trainer(epochs=1):
    return Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


@pytest.mark.filterwarnings("ignore")  # Lightning's hints about data loaders
@pytest.mark.parametrize(("extractor", "data"), [("gradients", digits), ("identity", clusters)])
def test_a_trainer_fits_labelled_samples_and_predicts_probabilities(extractor, data):
    samples, labels = data()
    model = new_model(extractor, samples.shape[1:])
    training = DataLoader(TensorDataset(samples[:400], labels[:400]), batch_size=50)
    test = DataLoader(samples[400:], batch_size=64)
    before, adapter = torch.cat(new_trainer().predict(model, test)), model.extractor.adapter.outer.weight.clone()
    new_trainer(epochs=5).fit(model, training)
    probabilities = torch.cat(new_trainer().predict(model, test))
    assert probabilities.shape == (200, 10)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(200))
    accuracies = [float((rows.argmax(1) == labels[400:]).float().mean()) for rows in (before, probabilities)]
    assert accuracies[0] < 0.3
    assert accuracies[1] > 0.7
    assert not torch.equal(model.extractor.adapter.outer.weight, adapter)
    # Batches may have labels.
    labelled = DataLoader(TensorDataset(samples[400:], labels[400:]), batch_size=64)
    torch.testing.assert_close(torch.cat(new_trainer().predict(model, labelled)), probabilities, rtol=0, atol=0)


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize(("extractor", "data"), [("gradients", digits), ("cnn", digits), ("identity", clusters)])
def test_cached_outputs_of_the_trunk_give_the_same_logits(extractor, data, is_frozen):
    samples = data()[0][:32]
    model = new_model(extractor, samples.shape[1:], classifier="mlp")
    whole = model.extractor
    if extractor != "cnn":
        torch.nn.init.normal_(whole.adapter.outer.weight)  # otherwise the adapter is the identity
    cached = DomainModel(
        CachedExtractor(whole.adapter, whole.out_features, adapter_is_applied=is_frozen),
        model.random_features,
        dim=16,
        num_classes=10,
        classifier="mlp",
    )
    weights = {name: value for name, value in model.state_dict().items() if not name.startswith("extractor.trunk.")}
    cached.load_state_dict(weights)
    with torch.no_grad():
        outputs = whole.frozen_layers()(samples) if is_frozen else whole.trunk(samples)
        assert torch.equal(cached(outputs), model(samples))
        assert torch.equal(cached(outputs, "aligned"), model(samples, "aligned"))


@pytest.mark.parametrize("has_random_features", [True, False])
def test_features_and_aligned_features_have_norm_1(has_random_features):
    samples, _ = clusters()
    model = new_model("identity", (20,))
    if not has_random_features:
        model = DomainModel(model.extractor, NoRandomFeatures(20), dim=16, num_classes=10)
    features = model.features(samples)
    assert features.shape == (600, 200 if has_random_features else 20)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(600))
    torch.testing.assert_close(model.align(features).norm(dim=1), torch.ones(600))
    assert model(samples).shape == (600, 10)


def test_the_scale_multiplies_the_inputs_of_the_classifier():
    samples, _ = clusters()
    model = new_model("identity", (20,), scale=3.0)
    expected = 3 * model(samples, "aligned") @ model.classifier.weight.T + model.classifier.bias
    torch.testing.assert_close(model(samples), expected)
