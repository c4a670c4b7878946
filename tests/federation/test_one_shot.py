"""W and C from one message of each source: against samples that are pooled here, and when messages are lost."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import fedrf
from fedrf.config.loader import load_config
from fedrf.tca.random_features import RandomFourierFeatures

CLASSES, COLUMNS, NUM_FEATURES, SIGMA, RIDGE = 4, 6, 40, 0.8, 0.3
COUNTS = {"a": 120, "b": 80, "c": 60, "t": 90}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root, random = tmp_path_factory.mktemp("domains"), np.random.RandomState(1)
    centres = 2 * random.randn(CLASSES, COLUMNS)
    for name, count in COUNTS.items():
        labels = random.choice(CLASSES, count, p=[0.5, 0.2, 0.2, 0.1])
        rows = centres[labels] + random.randn(count, COLUMNS) + 0.5 * random.randn(COLUMNS)
        save_file({"features": rows.astype(np.float32), "labels": labels}, root / f"{name}.safetensors")
    return root


@pytest.fixture
def run(folder, tmp_path):
    def run(name="run", **more):
        keys = {
            "method": "fedrf-oneshot",
            "data.name": "features",
            "data.root": str(folder),
            "data.target": "t",
            "data.classes": [str(label) for label in range(CLASSES)],
            "model.num_features": NUM_FEATURES,
            "model.dim": CLASSES,
            "model.sigma": SIGMA,
            "align.statistics": "gram",
            "align.ridge": RIDGE,
            "adapt.when": "never",
            "federation.mode": "sync",
            **{key.replace("__", "."): value for key, value in more.items()},
        }
        return fedrf.run(None, keys, out=tmp_path / name, local=True)

    return run


def features_of(folder, name):
    """Return the random features of a domain, and its labels."""
    content = load_file(folder / f"{name}.safetensors")
    rows = torch.from_numpy(content["features"])
    random_features = RandomFourierFeatures(COLUMNS, NUM_FEATURES, SIGMA, "gaussian", 0)
    return random_features(rows / rows.norm(dim=1, keepdim=True)).double().numpy(), content["labels"]


def expected_probabilities(folder, sources, only_means=False):
    """Solve the ridge regression here, sample by sample, and return the target's class probabilities.

    Parameters
    ----------
    only_means
        Whether the covariance within classes is replaced by a multiple of the identity with the same trace.
    """
    target = features_of(folder, "t")[0]
    first = second = 0.0
    for name in sources:
        rows, labels = features_of(folder, name)
        weights = np.bincount(labels, minlength=CLASSES)[labels] ** -0.5
        weights /= weights.sum()
        mean, indicators = weights @ rows, np.eye(CLASSES)[labels]
        centred, similarity = rows - mean, 1 / np.linalg.norm(mean - target.mean(0))
        if only_means:
            class_means = (indicators.T * weights) @ centred / (weights @ indicators)[:, None]
            within = centred - class_means[labels]
            scatter = np.trace((within.T * weights) @ within) / len(mean) * np.eye(len(mean))
            first = first + similarity * ((class_means.T * (weights @ indicators)) @ class_means + scatter)
        else:
            first = first + similarity * (centred.T * weights) @ centred
        second = second + similarity * (centred.T * weights) @ (indicators - weights @ indicators)
    target = target - target.mean(0)
    scores = target @ np.linalg.solve(first + RIDGE * np.mean(np.diag(first)) * np.eye(len(first)), second)
    logits = np.exp(10 * scores)
    return logits / logits.sum(1, keepdims=True)


def predictions(result):
    """Return the predicted class and its probability for each sample, from predictions.csv."""
    table = np.genfromtxt(result.folder / "predictions.csv", delimiter=",", skip_header=1)
    return table[np.argsort(table[:, 0])][:, 1:]


def expected(folder, sources, **options):
    probabilities = expected_probabilities(folder, sources, **options)
    return np.stack([probabilities.argmax(1), probabilities.max(1)], axis=1)


def test_the_target_predicts_as_the_pooled_solution(folder, run):
    result = run()
    assert result.finished
    assert result.summary["failures"] == []
    np.testing.assert_allclose(predictions(result), expected(folder, "abc"), atol=5e-3)


def test_class_means_alone(folder, run):
    result = run(align__statistics="means")
    np.testing.assert_allclose(predictions(result), expected(folder, "abc", only_means=True), atol=2e-2)


def test_all_components_are_the_whole_matrix(folder, run):
    """Up to the rounding of numbers to one byte."""
    result = run(align__statistics="lowrank", align__rank=2 * NUM_FEATURES)
    np.testing.assert_allclose(predictions(result), expected(folder, "abc"), atol=2e-2)


def test_rf_tca_with_all_components_and_a_large_gamma_is_the_ridge_regression(folder, run):
    result = run(align__closed_form="rf-tca", align__gamma=1e9, model__dim=2 * NUM_FEATURES)
    np.testing.assert_allclose(predictions(result), expected(folder, "abc"), atol=5e-3)
    sent = result.summary["communication"]["by_direction"]["up"]["class_statistics"]
    columns = CLASSES + 2 * NUM_FEATURES
    assert sent == 4 * (2 * 2 * NUM_FEATURES * columns + 4 * columns + 4 * CLASSES + 8)  # the target sends its own too


def test_rf_tca_with_few_components_differs(folder, run):
    result = run(align__closed_form="rf-tca", model__dim=3)
    assert result.summary["failures"] == []
    assert np.abs(predictions(result) - expected(folder, "abc")).max() > 0.05


def test_more_components_than_classes_change_nothing(folder, run):
    np.testing.assert_allclose(predictions(run(model__dim=16)), expected(folder, "abc"), atol=5e-3)


def test_a_lost_message_is_a_missing_source(folder, run):
    """With this seed and probability, one of three messages arrives."""
    result = run(federation__drop=0.6, seed=0)
    sent = result.summary["communication"]["by_direction"]["up"]["class_statistics"]
    columns = CLASSES + 2 * NUM_FEATURES
    single = 2 * 2 * NUM_FEATURES * columns + 4 * columns + 4 * CLASSES + 8
    arrived = sent // single
    assert 1 <= arrived < 3
    subsets = ["a", "b", "c"] if arrived == 1 else ["ab", "ac", "bc"]
    errors = [np.abs(predictions(result) - expected(folder, names)).max() for names in subsets]
    assert sorted(errors)[0] < 5e-3 < sorted(errors)[1]


def test_if_all_messages_would_be_lost_none_is(run):
    result = run(federation__drop=0.999)
    assert result.summary["failures"] == []


def test_asynchronous_and_synchronous_runs_give_the_same_bits(run):
    results = [run(mode, federation__mode=mode) for mode in ("sync", "async")]
    np.testing.assert_array_equal(*map(predictions, results))


def test_a_client_that_is_late_is_left_out_and_reported(folder, run):
    """The coordinator does not wait longer than the deadline."""
    result = run(train__rounds=1, federation__delays={"b": 1.0}, federation__deadline=0.2, model__sharing="frozen")
    assert result.finished
    assert any("b left" in failure for failure in result.summary["failures"])
    np.testing.assert_allclose(predictions(result), expected(folder, "ac"), atol=5e-3)


def test_the_ridge_that_was_chosen_is_in_the_summary(run):
    summary = json.loads((run(align__ridge="auto").folder / "summary.json").read_text())
    assert summary["measured"]["ridge"] in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def test_statistics_after_rounds_use_the_extractor_that_was_learned(run):
    result = run(train__rounds=4, model__sharing="averaged", method="fedrf-plus")
    sent = result.summary["communication"]["bytes_by_kind"]
    assert result.finished
    assert sent["extractor"] > 0
    assert sent["class_statistics"] > 0


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_interrupted_adaptation_goes_on_with_the_same_bits(run, monkeypatch, mode):
    monkeypatch.setattr("fedrf.experiment.driver.POLL_SECONDS", 0.02)
    keys = {
        "adapt__when": "last",
        "adapt__steps": 60,
        "track__evaluate_every": 2,
        "adapt__lr": 0.01,
        "federation__mode": mode,
    }
    whole = run("whole", **keys)
    config, out = whole.config.model_dump(mode="json"), whole.folder.parent / "half"
    half = fedrf.run(None, config, out=out, local=True, observe=lambda rows: any("step" in row for row in rows))
    assert not half.finished
    resumed = fedrf.run(resume=half.folder, local=True)
    assert resumed.finished
    np.testing.assert_array_equal(predictions(whole), predictions(resumed))
    assert resumed.summary["measured"] == whole.summary["measured"]
    kinds = ("class_statistics", "class_map", "mean_embedding")
    sent, expected_bytes = (run.summary["communication"]["bytes_by_kind"] for run in (resumed, whole))
    # In async mode, sources that had finished send their statistics again.
    assert all(sent[kind] == expected_bytes[kind] or mode == "async" for kind in kinds)
    assert all(sent[kind] >= expected_bytes[kind] for kind in kinds)


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        ({"method": "fedrf-plus", "train.rounds": 0}, "train.rounds=0 needs W and C in closed form"),
        ({"method": "fedavg", "align.statistics": "gram"}, "is for methods that match mean embeddings (fedrf-oneshot"),
        ({"model.classifier": "mlp"}, "align.statistics=lowrank needs model.classifier=linear; got mlp"),
        ({"federation.prediction": "vote", "adapt.when": "never"}, "align.statistics=lowrank gives one classifier"),
        ({"adapt.when": "joint"}, "adapt.when=joint adapts within them"),
    ],
)
def test_settings_that_do_not_fit_are_refused(overrides, complaint):
    with pytest.raises(ValueError, match=r".") as error:
        load_config("digits", {"method": "fedrf-oneshot", **overrides})
    assert complaint in str(error.value)


def test_a_method_replaces_what_a_recipe_says_and_the_call_replaces_both():
    assert load_config("office31", {"method": "fedrf-plus"}).train.rounds == 300
    assert load_config("office31", {"method": "fedrf-oneshot"}).train.rounds == 0
    assert load_config("office31", {"method": "fedrf-oneshot", "train.rounds": 25}).train.rounds == 25
