"""Whole federations on files: pictures in folders, features, split domains; and what the target never holds."""

import csv
import gc
import signal
import time
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from PIL import Image

import fedrf
from fedrf.adaptation.evaluation import Evaluator
from fedrf.config.loader import load_config
from fedrf.data.domains import load_samples, settle
from fedrf.errors import RunFailedError
from fedrf.experiment.results import RunFolder
from fedrf.experiment.run import Experiment
from fedrf.federation.client import Client
from fedrf.federation.client_info import ClientInfo
from fedrf.models.extractors.builders import make_extractor
from fedrf.models.extractors.preparation import Preparation
from fedrf.protocol.messages import Reply
from fedrf.runtime.local import LocalFederation
from tests.conftest import TINY, final_weights

pytestmark = pytest.mark.filterwarnings("ignore:model.weights=none")

COLOURS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}
LIGHT = {"clinic": 0, "ward": 30, "home": -30}


def write_pictures(root, per_class=8):
    """Three domains of three classes: noisy pictures of one colour, lighter in one domain and darker in another."""
    random = np.random.RandomState(0)
    for domain, light in LIGHT.items():
        for name, colour in COLOURS.items():
            folder = root / domain / name
            folder.mkdir(parents=True)
            for number in range(per_class):
                size = (40 + number, 50, 3)
                noise = random.normal(light, 25, size) + np.array(colour)
                Image.fromarray(noise.clip(0, 255).astype(np.uint8)).save(folder / f"{number}.jpg")
    return root


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture
def small_pictures(monkeypatch):
    """A backbone sees pictures of 64 × 64, so that tests need not wait for it."""

    def make(*arguments):
        extractor = make_extractor(*arguments)
        extractor.prepare = Preparation(64, 64)
        return extractor

    monkeypatch.setattr("fedrf.federation.client.make_extractor", make)


def settings(root, **more):
    keys = {
        **TINY,
        "data.name": "folder",
        "data.root": str(root),
        "data.target": "home",
        "model.extractor": "efficientnet-lite0-small",
        "federation.mode": "sync",
        "model.num_features": 60,
    }
    keys.pop("data.samples")
    return keys | {key.replace("__", "."): value for key, value in more.items()}


def figures(result):
    kept = ("client", "round", "step", "loss", "mmd", "accuracy", "information")
    return sorted(({key: row[key] for key in kept if key in row} for row in RunFolder(result.folder).rows()), key=repr)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"model__extractor": "resnet18", "model__weights": "none"},
        {"model__extractor": "resnet18", "model__weights": "none", "model__sharing": "averaged", "adapt__steps": 2},
        {"model__extractor": "cnn", "model__sharing": "local"},
    ],
    ids=["efficientnet", "resnet frozen", "resnet averaged", "cnn"],
)
def test_caching_changes_no_bit_of_a_run(pictures, tmp_path, small_pictures, more):
    """Weights and figures of whole runs, byte for byte, whether the trunk is computed once, before, or every time."""
    runs = {}
    random = more.get("model__weights") == "none"
    for number, cache in enumerate(("off", "disk", "disk")):
        chosen = settings(pictures, train__rounds=3, model__cache=cache, **more)
        with pytest.warns(UserWarning, match="resnet18 has random weights") if random else nullcontext():
            runs[number] = fedrf.run(None, chosen, out=tmp_path / str(number), local=True)
    for number in (1, 2):
        assert final_weights(runs[number]) == final_weights(runs[0])
        assert figures(runs[number]) == figures(runs[0])
    assert runs[0].summary["config_hash"] == runs[1].summary["config_hash"]
    assert any("has random weights" in note for note in runs[0].summary["notes"]) == random


def test_half_precision_changes_little_but_something(pictures, tmp_path):
    exact, half = (
        fedrf.run(None, settings(pictures, model__cache_precision=kind), out=tmp_path / kind, local=True)
        for kind in ("float32", "float16")
    )
    assert final_weights(exact) != final_weights(half)
    assert half.summary["config_hash"] != exact.summary["config_hash"]
    assert half.target_accuracy == pytest.approx(exact.target_accuracy, abs=0.1)


def test_real_features_solve_an_easy_task(pictures, tmp_path):
    result = fedrf.run(None, settings(pictures, train__rounds=40), out=tmp_path / "run", local=True)
    assert result.target_accuracy > 0.9


@pytest.mark.ray
def test_ray_changes_no_bit(pictures, tmp_path, ray_session):
    chosen = settings(pictures, data__partition="shards", data__clients=2)
    by_ray = fedrf.run(None, chosen, out=tmp_path / "ray", session=ray_session)
    by_threads = fedrf.run(None, chosen, out=tmp_path / "threads", local=True)
    assert final_weights(by_ray).keys() == {"clinic:1", "clinic:2", "ward:1", "ward:2", "home"}
    assert final_weights(by_ray) == final_weights(by_threads)


def new_client(config, name):
    """A client that has greeted, as a site makes it."""
    samples = load_samples(config, name)
    shown = samples.without_labels() if name == config.data.target else samples
    place = ClientInfo(name, ("clinic", "ward"), config.data.target, None)
    answers = {"greet": (1.0, Reply()), "prepare": False}
    return Client(config, place, shown, lambda call, *_: answers.get(call), Evaluator(samples.labels)), samples.labels


def reachable(start, stop):
    """Everything that can be reached from an object, not through `stop`, classes, modules or what modules hold."""
    seen, left = {id(stop)}, [start]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type) or type(one).__name__ in ("module", "function", "frame"):
            if type(one).__name__ == "function" and id(one) not in seen:
                left += [cell.cell_contents for cell in one.__closure__ or () if cell is not None]
            seen.add(id(one))
            continue
        seen.add(id(one))
        yield one
        left += gc.get_referents(one)
        if isinstance(one, dict):
            left += one.values()


def holds(start, stop, labels):
    for one in reachable(start, stop):
        if isinstance(one, (np.ndarray, torch.Tensor, list, tuple)) and len(one := _flat(one)) == len(labels):
            try:
                if np.array_equal(np.asarray(one, dtype=np.float64), labels):
                    return True
            except (TypeError, ValueError, RuntimeError):
                continue
    return False


def _flat(one):
    if isinstance(one, torch.Tensor):
        return one.detach().reshape(-1).numpy() if one.dtype != torch.bfloat16 else ()
    return one.reshape(-1) if isinstance(one, np.ndarray) else one


@pytest.mark.parametrize("more", [{}, {"model__extractor": "resnet18", "model__weights": "none"}])
def test_the_client_of_the_target_holds_no_labels(pictures, small_pictures, more):
    config = load_config(None, settings(pictures, **more))
    config = config.model_copy(update={"data": settle(config.data)})
    for name, expected in (("clinic", True), ("home", False)):
        client, labels = new_client(config, name)
        assert holds(client.score, None, labels), "the evaluator has them"
        assert holds(client, client.score, labels) == expected
        client.batch(1, 4)
        assert holds(client, client.score, labels) == expected


def test_labels_of_the_target_change_nothing_but_its_score(tmp_path):
    """Two runs that differ in the target's labels alone: the same weights, predictions and figures."""
    random = np.random.RandomState(0)
    for domain in ("a", "b", "t"):
        labels = random.randint(0, 3, 60)
        rows = random.randn(60, 12) + 2 * np.eye(12)[labels]
        for folder, shown in (("true", labels), ("wrong", (labels + 1) % 3 if domain == "t" else labels)):
            (tmp_path / folder).mkdir(exist_ok=True)
            np.savez(tmp_path / folder / f"{domain}.npz", X=rows, y=shown)
    runs = {}
    for folder in ("true", "wrong"):
        keys = {"data.name": "features", "data.target": "t", "model.extractor": "identity"}
        chosen = settings(tmp_path / folder) | keys
        chosen |= {"adapt.pseudo_labels": 0.3, "adapt.renew": 2, "train.rounds": 12}
        runs[folder] = fedrf.run(None, chosen, out=tmp_path / f"run-{folder}", local=True)
    assert final_weights(runs["true"]) == final_weights(runs["wrong"])
    texts = {folder: (run.folder / "predictions.csv").read_text() for folder, run in runs.items()}
    assert texts["true"] == texts["wrong"]
    without = [
        [
            {key: value for key, value in row.items() if key != "accuracy"}
            for row in figures(run)
            if row["client"] == "t"
        ]
        for run in runs.values()
    ]
    assert without[0] == without[1]
    assert runs["true"].target_accuracy > 0.6 > 0.3 > runs["wrong"].target_accuracy


def test_a_target_without_labels_gets_predictions(pictures, tmp_path):
    root = tmp_path / "root"
    for domain in ("clinic", "ward"):
        (root / domain).parent.mkdir(exist_ok=True)
        (root / domain).symlink_to(pictures / domain)
    (root / "home").mkdir()
    for path in sorted((pictures / "home").rglob("*.jpg")):
        (root / "home" / f"{path.parent.name}-{path.name}").write_bytes(path.read_bytes())
    result = fedrf.run(None, settings(root, train__rounds=40), out=tmp_path / "run", local=True)
    assert result.finished
    assert result.summary["target_accuracy"] == {"final": None, "selected": None, "oracle": None}
    assert (result.folder / "report.html").exists()
    assert result.summary["notes"] == [
        "home: no labels, so nobody knows the accuracy; what was predicted is in predictions.csv"
    ]
    with (result.folder / "predictions.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == 24
    assert all(0 <= float(row["confidence"]) <= 1 for row in table)
    right = [row["sample"].startswith(row["predicted"]) for row in table]
    assert np.mean(right) > 0.9


def test_a_source_without_labels_is_named(pictures, tmp_path):
    np.savez(tmp_path / "a.npz", X=np.eye(5), y=np.arange(5) % 2)
    for domain in ("b", "t"):
        np.savez(tmp_path / f"{domain}.npz", X=np.eye(5))
    keys = {"data.name": "features", "data.target": "t", "model.extractor": "identity", "data.classes": ["0", "1"]}
    with pytest.raises(ValueError, match=r"b\.npz: a source, and no labels found"):
        fedrf.run(None, settings(tmp_path) | keys, out=tmp_path / "run", local=True)


def test_corrupt_pictures_can_be_left_out_and_are_counted(tmp_path):
    root = write_pictures(tmp_path / "root", per_class=5)
    (root / "ward/red/2.jpg").write_bytes(b"")
    whole = (root / "home/blue/1.jpg").read_bytes()
    (root / "home/blue/1.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunFailedError, match=r"(2|1)\.jpg: cannot be decoded"):
        fedrf.run(None, settings(root), out=tmp_path / "stops", local=True)
    result = fedrf.run(None, settings(root, data__skip_corrupt=True), out=tmp_path / "goes", local=True)
    assert set(result.summary["notes"]) == {
        "ward: 1 corrupt images were left out",
        "home: 1 corrupt images were left out",
    }
    assert len((result.folder / "predictions.csv").read_text().splitlines()) == 15


def test_what_is_missing_is_said_before_anything_starts(tmp_path):
    keys = settings(tmp_path, data__name="office31", data__target="dslr")
    with pytest.raises(ValueError, match=r"office31: .* not found; looked for .*\. To be had from"):
        fedrf.run(None, keys, out=tmp_path / "run", local=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("extractor", ["resnet18", "efficientnet-lite0-small"])
def test_resuming_in_the_last_stage_goes_on_with_the_part_that_learns(extractor, pictures, tmp_path, small_pictures):
    """Interrupted after the rounds, while convolutions of the target adapt: the same end as without."""
    chosen = settings(
        pictures,
        model__extractor=extractor,
        model__weights="none",
        adapt__steps=6,
        adapt__consistency=1.0,
        train__rounds=2,
        federation__checkpoint_seconds=0,
    )
    straight = fedrf.run(None, chosen, out=tmp_path / "straight", local=True)
    with pytest.MonkeyPatch.context() as patch:
        from fedrf.adaptation.stage import TargetStage

        step = TargetStage.step

        def failing(self, model, batch, trunk, score, number):
            if number == 4:
                raise RuntimeError("the power is gone")
            return step(self, model, batch, trunk, score, number)

        patch.setattr(TargetStage, "step", failing)
        with pytest.raises(RunFailedError, match="the power is gone"):
            fedrf.run(None, chosen, out=tmp_path / "run", local=True)
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert final_weights(resumed) == final_weights(straight)


def test_consistency_is_for_small_pictures_and_only_at_the_target(pictures, tmp_path, small_pictures):
    """Warped maps change what the target ends with, and nothing of what sources do; flat rows have nothing to warp."""
    keys = {"model__weights": "none", "adapt__steps": 3, "train__rounds": 2}
    for extractor, differs in (("efficientnet-lite0-small", True), ("gradients", False)):
        own = keys if differs else {"adapt__steps": 3, "train__rounds": 2}
        ends = [
            final_weights(
                fedrf.run(
                    None,
                    settings(pictures, model__extractor=extractor, adapt__consistency=weight, **own),
                    out=tmp_path / f"{extractor}-{weight}",
                    local=True,
                )
            )
            for weight in (0.0, 1.0)
        ]
        assert (ends[0]["home"] != ends[1]["home"]) is differs
        assert {**ends[0], "home": b""} == {**ends[1], "home": b""}


class InterruptedBeforeTheFirstRound(LocalFederation):
    """Ctrl-C while two clients wait to begin and the third prepares its samples."""

    struck = False

    def wait(self, seconds):
        meeting = self._coordinator.meetings._open.get(("greet",))
        if not self.struck and meeting and len(meeting.entries) == 2:
            self.struck = True
            signal.raise_signal(signal.SIGINT)
        return super().wait(0.001)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_interruption_while_one_client_prepares_leaves_nothing_half_begun(pictures, tmp_path, mode, monkeypatch):
    config = load_config(None, settings(pictures, federation__mode=mode, federation__checkpoint_seconds=0))
    config = config.model_copy(update={"data": settle(config.data)})
    build = Client._build

    def slow(self, samples):
        while self.place.name == "home":
            self._progress(1, 2)
            time.sleep(0.02)
        return build(self, samples)

    monkeypatch.setattr(Client, "_build", slow)
    folder = RunFolder.create(config, tmp_path / "run")
    stopped = Experiment(config, folder, False).run(InterruptedBeforeTheFirstRound)
    assert stopped.summary["status"] == "interrupted"
    assert folder.rows() == []
    assert not list((tmp_path / "run").glob("checkpoints/*/*.ckpt"))
    monkeypatch.undo()
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert resumed.finished
    if mode == "sync":
        straight = Experiment(config, RunFolder.create(config, tmp_path / "straight"), False).run(LocalFederation)
        assert final_weights(resumed) == final_weights(straight)


def test_an_interruption_while_the_target_gets_ready_to_adapt(pictures, tmp_path, small_pictures, monkeypatch):
    """Rows from below layer4 are prepared after the rounds; stopped there, the run goes on from there."""
    chosen = settings(
        pictures,
        model__extractor="resnet18",
        model__weights="none",
        train__rounds=2,
        adapt__steps=2,
        align__step="gradient",
        federation__checkpoint_seconds=0,
    )
    straight = fedrf.run(None, chosen, out=tmp_path / "straight", local=True)
    released = Client._release_adapter

    def stopping(self):
        self._rows_below = lambda: self._progress(1, 2) or pytest.fail("not asked to stop")
        self.link("stop")
        released(self)

    monkeypatch.setattr(Client, "_release_adapter", stopping)
    stopped = fedrf.run(None, chosen, out=tmp_path / "run", local=True)
    assert stopped.summary["status"] == "interrupted"
    monkeypatch.setattr(Client, "_release_adapter", released)
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert final_weights(resumed) == final_weights(straight)
