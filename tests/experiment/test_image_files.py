"""Federations on files: images in folders, feature files, and split domains."""

import csv
from contextlib import nullcontext

import numpy as np
import pytest

import fedrf
from fedrf.errors import RunFailedError
from tests.conftest import final_weights
from tests.experiment.conftest import IMAGES_PER_CLASS, figures, image_settings, write_images

pytestmark = pytest.mark.filterwarnings("ignore:model.weights=none")


@pytest.mark.parametrize(
    ("more", "caches"),
    [
        ({}, ("off", "disk")),
        ({"model__extractor": "resnet18", "model__weights": "none"}, ("off", "disk", "disk")),
        ({"model__extractor": "resnet18", "model__weights": "none", "model__sharing": "averaged"}, ("off", "disk")),
        ({"model__extractor": "cnn", "model__sharing": "local"}, ("off", "disk", "disk")),
    ],
    ids=["efficientnet", "resnet frozen", "resnet averaged", "cnn"],
)
def test_caching_changes_no_bit_of_a_run(images, tmp_path, small_images, more, caches):
    """Weights and figures are the same bytes if the trunk is computed every time, once, or in an earlier run."""
    runs = {}
    random = more.get("model__weights") == "none"
    for number, cache in enumerate(caches):
        chosen = image_settings(images, train__rounds=2, adapt__steps=2, model__cache=cache, **more)
        with pytest.warns(UserWarning, match="resnet18 has random weights") if random else nullcontext():
            runs[number] = fedrf.run(None, chosen, out=tmp_path / str(number), local=True)
    for cached in list(runs.values())[1:]:
        assert final_weights(cached) == final_weights(runs[0])
        assert figures(cached) == figures(runs[0])
    assert runs[0].summary["config_hash"] == runs[1].summary["config_hash"]
    assert any("has random weights" in note for note in runs[0].summary["notes"]) == random


def test_half_precision_changes_weights_and_the_accuracy_only_slightly(images, tmp_path):
    exact, half = (
        fedrf.run(None, image_settings(images, model__cache_precision=kind), out=tmp_path / kind, local=True)
        for kind in ("float32", "float16")
    )
    assert final_weights(exact) != final_weights(half)
    assert half.summary["config_hash"] != exact.summary["config_hash"]
    assert half.target_accuracy == pytest.approx(exact.target_accuracy, abs=0.1)


@pytest.mark.ray
def test_ray_gives_the_same_bits(images, tmp_path, ray_session):
    split = {"data__partition": "shards", "data__clients": 2}
    chosen = image_settings(images, train__rounds=2, resources__clients_per_actor=3, **split)  # two processes
    by_ray = fedrf.run(None, chosen, out=tmp_path / "ray", session=ray_session)
    by_threads = fedrf.run(None, chosen, out=tmp_path / "threads", local=True)
    assert final_weights(by_ray).keys() == {"clinic:1", "clinic:2", "ward:1", "ward:2", "home"}
    assert final_weights(by_ray) == final_weights(by_threads)


def test_an_easy_task_is_solved_and_a_target_without_labels_gets_the_same_predictions(images, tmp_path):
    labelled = fedrf.run(None, image_settings(images, train__rounds=40), out=tmp_path / "labelled", local=True)
    assert labelled.target_accuracy > 0.9
    root = tmp_path / "root"
    for domain in ("clinic", "ward"):
        (root / domain).parent.mkdir(exist_ok=True)
        (root / domain).symlink_to(images / domain)
    (root / "home").mkdir()
    for path in sorted((images / "home").rglob("*.jpg")):
        (root / "home" / f"{path.parent.name}-{path.name}").write_bytes(path.read_bytes())
    result = fedrf.run(None, image_settings(root, train__rounds=40), out=tmp_path / "run", local=True)
    assert result.finished
    assert result.summary["target_accuracy"] == {"final": None, "selected": None, "oracle": None}
    assert (result.folder / "report.html").exists()
    assert result.summary["notes"] == ["home: no labels, so accuracy is unknown; predictions are in predictions.csv"]
    with (result.folder / "predictions.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == 3 * IMAGES_PER_CLASS
    assert all(0 <= float(row["confidence"]) <= 1 for row in table)
    is_correct = [row["sample"].startswith(row["predicted"]) for row in table]
    assert np.mean(is_correct) > 0.9
    assert final_weights(result) == final_weights(labelled)


def test_a_source_without_labels_is_reported(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(5), y=np.arange(5) % 2)
    for domain in ("b", "t"):
        np.savez(tmp_path / f"{domain}.npz", X=np.eye(5))
    keys = {"data.name": "features", "data.target": "t", "model.extractor": "identity", "data.classes": ["0", "1"]}
    with pytest.raises(ValueError, match=r"b\.npz: a source needs labels; none found under"):
        fedrf.run(None, image_settings(tmp_path) | keys, out=tmp_path / "run", local=True)


def test_corrupt_images_can_be_left_out_and_are_counted(tmp_path):
    root = write_images(tmp_path / "root", per_class=4)
    (root / "ward/red/2.jpg").write_bytes(b"")
    whole = (root / "home/blue/1.jpg").read_bytes()
    (root / "home/blue/1.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunFailedError, match=r"(2|1)\.jpg: cannot be decoded"):
        fedrf.run(None, image_settings(root), out=tmp_path / "failed", local=True)
    result = fedrf.run(None, image_settings(root, data__skip_corrupt=True), out=tmp_path / "skipped", local=True)
    assert set(result.summary["notes"]) == {
        "ward: 1 corrupt images were left out",
        "home: 1 corrupt images were left out",
    }
    assert len((result.folder / "predictions.csv").read_text().splitlines()) == 12  # a title, and 12 images but one


def test_missing_files_are_reported_before_the_run_starts(tmp_path):
    keys = image_settings(tmp_path, data__name="office31", data__target="dslr")
    with pytest.raises(ValueError, match=r"office31: .* not found; looked for .*\. Available from"):
        fedrf.run(None, keys, out=tmp_path / "run", local=True)
    assert not (tmp_path / "run").exists()


def test_consistency_affects_feature_maps_and_only_at_the_target(images, tmp_path, small_images):
    """Warped maps change the weights of the target and of no source; vectors of features cannot be warped."""
    keys = {"model__weights": "none", "adapt__steps": 2, "train__rounds": 1}
    for extractor, differs in (("efficientnet-lite0-small", True), ("gradients", False)):
        chosen = keys if differs else {"adapt__steps": 2, "train__rounds": 1}
        weights = [
            final_weights(
                fedrf.run(
                    None,
                    image_settings(images, model__extractor=extractor, adapt__consistency=weight, **chosen),
                    out=tmp_path / f"{extractor}-{weight}",
                    local=True,
                )
            )
            for weight in (0.0, 1.0)
        ]
        assert (weights[0]["home"] != weights[1]["home"]) is differs
        assert {**weights[0], "home": b""} == {**weights[1], "home": b""}
