"""The target's client never holds labels of the target, and they change nothing but its accuracy."""

import gc

import numpy as np
import pytest
import torch

import fedrf
from fedrf.config.loader import load_config
from fedrf.data.domains import load_samples, resolve_data
from fedrf.federation import worker
from fedrf.federation.client import Client
from fedrf.federation.client_info import ClientInfo
from fedrf.protocol.envelope import Reply
from fedrf.protocol.wire import unpack_call
from tests.conftest import final_weights
from tests.experiment.conftest import figures, image_settings

pytestmark = pytest.mark.filterwarnings("ignore:model.weights=none")


class InspectedClient(Client):
    """A client that is inspected instead of being run."""

    def run(self):
        labels = load_samples(self.config, self.info.name).labels
        assert holds(self.accuracy, None, labels), "the evaluator has them"
        before = holds(self, self.accuracy, labels)
        self.module.samples.batch(1, 4)
        self.channel.note(f"{before} {holds(self, self.accuracy, labels)}")


def reachable(start, stop):
    """Yield everything that can be reached from an object, but not through `stop`, classes, modules or globals."""
    seen, left = {id(stop)}, [start]
    while left:
        item = left.pop()
        if id(item) in seen or isinstance(item, type) or type(item).__name__ in ("module", "function", "frame"):
            if type(item).__name__ == "function" and id(item) not in seen:
                left += [cell.cell_contents for cell in item.__closure__ or () if cell is not None]
            seen.add(id(item))
            continue
        seen.add(id(item))
        yield item
        left += gc.get_referents(item)
        if isinstance(item, dict):
            left += item.values()


def holds(start, stop, labels):
    """Tell whether an array or list with the values of `labels` can be reached."""
    for item in reachable(start, stop):
        if isinstance(item, (np.ndarray, torch.Tensor, list, tuple)) and len(values := _flat(item)) == len(labels):
            try:
                if np.array_equal(np.asarray(values, dtype=np.float64), labels):
                    return True
            except (TypeError, ValueError, RuntimeError):
                continue
    return False


def _flat(item):
    if isinstance(item, torch.Tensor):
        return item.detach().reshape(-1).numpy() if item.dtype != torch.bfloat16 else ()
    return item.reshape(-1) if isinstance(item, np.ndarray) else item


@pytest.mark.parametrize("more", [{}, {"model__extractor": "resnet18", "model__weights": "none"}])
def test_the_target_client_has_no_labels(images, small_images, monkeypatch, more):
    """Clients are made by the worker, as in a run: it is the worker that takes the labels away."""
    monkeypatch.setattr(worker, "Client", InspectedClient)
    config = load_config(None, image_settings(images, **more))
    config = config.model_copy(update={"data": resolve_data(config.data)})
    for name, expected in (("clinic", True), ("home", False)):
        calls = []

        def send(content, calls=calls):
            call = unpack_call(content, 10**6)
            calls.append((call.name, *call.arguments))
            return {"greet": (1.0, Reply()), "prepare": False}.get(call.name)

        worker.run_client(config, ClientInfo(name, ("clinic", "ward"), config.data.target, images), send)
        assert [call for call in calls if call[0] == "note"][-1] == ("note", f"{expected} {expected}")


def test_labels_of_the_target_change_nothing_but_its_accuracy(tmp_path):
    """Two runs that differ only in the target's labels have the same weights, predictions and figures."""
    random = np.random.RandomState(0)
    for domain in ("a", "b", "t"):
        labels = random.randint(0, 3, 60)
        rows = random.randn(60, 12) + 2 * np.eye(12)[labels]
        for folder, given in (("true", labels), ("wrong", (labels + 1) % 3 if domain == "t" else labels)):
            (tmp_path / folder).mkdir(exist_ok=True)
            np.savez(tmp_path / folder / f"{domain}.npz", X=rows, y=given)
    runs = {}
    for folder in ("true", "wrong"):
        keys = {"data.name": "features", "data.target": "t", "model.extractor": "identity"}
        chosen = image_settings(tmp_path / folder) | keys
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
