"""Runs that are interrupted by a signal or a failure, and continued."""

import signal
import time

import pytest

import fedrf
from fedrf.adaptation.stage import TargetStage
from fedrf.config.loader import load_config
from fedrf.data import draws
from fedrf.data.domains import resolve_data
from fedrf.errors import RunFailedError
from fedrf.experiment.driver import Experiment
from fedrf.experiment.results import RunFolder
from fedrf.federation import round_batches
from fedrf.federation.client import Client
from fedrf.runtime.local import LocalFederation
from tests.conftest import SYNC, final_weights
from tests.experiment.conftest import image_settings

pytestmark = pytest.mark.filterwarnings("ignore:model.weights=none")


class InterruptedOnce(LocalFederation):
    """Raises a signal, as Ctrl-C does, when `is_time` is true for the first time."""

    number = signal.SIGINT
    is_done = False

    def is_time(self):
        raise NotImplementedError

    def wait(self, seconds):
        if not self.is_done and self.is_time():
            self.is_done = True
            signal.raise_signal(self.number)
        return super().wait(0.001)


def run_interrupted(settings, out, federation):
    """Run with a federation that raises a signal; return the result, whose status must be "interrupted"."""
    config = load_config(None, settings)
    config = config.model_copy(update={"data": resolve_data(config.data)})
    with RunFolder.create(config, out) as folder:
        stopped = Experiment(config, folder, False).run(federation)
    assert stopped.summary["status"] == "interrupted"
    return stopped


def run_undisturbed(settings, folder):
    """Run without an interruption, and with few checkpoints, which take time and change no result."""
    return fedrf.run(None, {**settings, "federation.checkpoint_seconds": 60}, out=folder / "undisturbed", local=True)


class InterruptedInARound(InterruptedOnce):
    def is_time(self):
        return max(self.call("poll", 0).rounds.values()) >= 3


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_interrupted_run_is_saved_and_continued(tmp_path, mode):
    delays = {"street": 0.05, "rendered": 0.05}
    slow = {**SYNC, "federation.mode": mode, "train.rounds": 8, "federation.delays": delays}
    stopped = run_interrupted(slow, tmp_path / "run", InterruptedInARound)
    assert stopped.summary["target_accuracy"]["final"] is None
    assert 2 <= stopped.summary["rounds"] < 8
    assert not (tmp_path / "run/checkpoints/handwritten/final.safetensors").exists()
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert resumed.finished
    assert resumed.summary["rounds"] == 8
    if mode == "sync":
        undisturbed = run_undisturbed({**slow, "federation.delays": {}}, tmp_path)
        assert final_weights(resumed) == final_weights(undisturbed)


def test_private_batches_continue_with_the_secret_of_the_checkpoint(tmp_path, monkeypatch):
    """The resumed clients draw another secret at first: only that of their checkpoints gives the same bits."""
    private = {**SYNC, "federation.private_batches": True, "train.rounds": 8}
    monkeypatch.setattr(draws, "new_secret", lambda: b"a" * 32)
    undisturbed = run_undisturbed(private, tmp_path)
    slow = {**private, "federation.delays": {"street": 0.05, "rendered": 0.05}}
    assert run_interrupted(slow, tmp_path / "run", InterruptedInARound).summary["rounds"] < 8
    monkeypatch.setattr(draws, "new_secret", lambda: b"b" * 32)
    assert final_weights(fedrf.run(resume=tmp_path / "run", local=True)) == final_weights(undisturbed)
    assert final_weights(run_undisturbed(private, tmp_path / "b")) != final_weights(undisturbed)


def test_a_second_signal_ends_the_run_at_once(tmp_path):
    class Twice(LocalFederation):
        def wait(self, seconds):
            if max(self.call("poll", 0).rounds.values()) >= 2:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)
            return super().wait(0.001)

    config, before = load_config(None, {**SYNC, "federation.delays": {"street": 0.1}}), signal.getsignal(signal.SIGINT)
    with RunFolder.create(config, tmp_path / "run") as folder, pytest.raises(KeyboardInterrupt):
        Experiment(config, folder, False).run(Twice)
    assert RunFolder(tmp_path / "run").read_summary()["status"] == "interrupted"
    assert signal.getsignal(signal.SIGINT) is before  # in a background job, that it is ignored


class InterruptedVote(InterruptedOnce):
    """The signal comes while the target waits for the model of a slow source."""

    def is_time(self):
        return self.call("poll", 0).rounds["handwritten"] > self.config.train.rounds


def test_an_interrupted_vote_is_repeated(tmp_path):
    settings = {
        "method": "source-only",
        "data.samples": 300,
        "train.rounds": 30,
        "model.num_features": 100,
        "model.dim": 16,
        "federation.delays": {"street": 1},
    }
    run_interrupted(settings, tmp_path / "run", InterruptedVote)
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert resumed.finished
    assert resumed.target_accuracy > 0.3  # without any votes it is 0.1


class InterruptedAdaptation(InterruptedOnce):
    """SIGTERM comes while the target adapts after the last round."""

    number = signal.SIGTERM

    def is_time(self):
        return any("step" in row for row in self.call("poll", 0).rows)


def test_an_interruption_of_the_adaptation_after_the_rounds(tmp_path):
    steps = 60
    long = {**SYNC, "train.rounds": 2, "adapt.steps": steps, "adapt.pseudo_labels": 0.3, "adapt.renew": 7}
    stopped = run_interrupted(long, tmp_path / "run", InterruptedAdaptation)
    done = [row["step"] for row in RunFolder(stopped.folder).rows() if "step" in row]
    assert 0 < max(done) < steps
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert resumed.finished
    undisturbed = run_undisturbed(long, tmp_path)
    assert final_weights(resumed) == final_weights(undisturbed)
    done = [row["step"] for row in RunFolder(resumed.folder).rows() if "step" in row]
    assert done == list(range(2, steps + 1, 2))


@pytest.mark.parametrize("extractor", ["resnet18", "efficientnet-lite0-small"])
def test_a_run_that_failed_during_adaptation_is_continued(extractor, images, tmp_path, small_images, monkeypatch):
    """While convolutions of the target adapt; the result is that of an undisturbed run."""
    chosen = image_settings(
        images,
        model__extractor=extractor,
        model__weights="none",
        adapt__steps=4,
        adapt__consistency=1.0,
        train__rounds=1,
        federation__checkpoint_seconds=0,
    )
    undisturbed = run_undisturbed(chosen, tmp_path)
    loss, computed = TargetStage.loss, []

    def failing_loss(self, model, batch, features, number):
        computed.append(number)
        if computed == [1, 2, 3]:
            raise RuntimeError("power failure")
        return loss(self, model, batch, features, number)

    monkeypatch.setattr(TargetStage, "loss", failing_loss)
    with pytest.raises(RunFailedError, match="power failure"):
        fedrf.run(None, chosen, out=tmp_path / "run", local=True)
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert computed == [1, 2, 3, 3, 4]
    assert final_weights(resumed) == final_weights(undisturbed)


class InterruptedBeforeTheFirstRound(InterruptedOnce):
    """The signal comes while two clients wait to begin and the third prepares its samples."""

    def is_time(self):
        greetings = self._coordinator.startup._greetings._open.values()
        return any(len(waiting.entries) == 2 for waiting in greetings)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_interruption_while_a_client_prepares_its_samples(images, tmp_path, mode, monkeypatch):
    settings = image_settings(images, federation__mode=mode, federation__checkpoint_seconds=0, train__rounds=2)
    build = Client._build

    def build_slowly(self, samples, target_samples):
        while self.info.name == "home":
            self.channel.report_preparation(1, 2)
            time.sleep(0.02)
        return build(self, samples, target_samples)

    with monkeypatch.context() as patch:
        patch.setattr(Client, "_build", build_slowly)
        stopped = run_interrupted(settings, tmp_path / "run", InterruptedBeforeTheFirstRound)
    assert RunFolder(stopped.folder).rows() == []
    assert not list((tmp_path / "run").glob("checkpoints/*/*.safetensors"))
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert resumed.finished
    if mode == "sync":
        undisturbed = run_undisturbed(settings, tmp_path)
        assert final_weights(resumed) == final_weights(undisturbed)


def test_an_interruption_while_the_target_prepares_for_adaptation(images, tmp_path, small_images, monkeypatch):
    """Rows from below layer4 are computed after the rounds; a run that is stopped there continues there."""
    chosen = image_settings(
        images,
        model__extractor="resnet18",
        model__weights="none",
        model__sharing="frozen",
        train__rounds=1,
        adapt__steps=1,
        align__step="gradient",
        federation__checkpoint_seconds=0,
    )
    undisturbed = run_undisturbed(chosen, tmp_path)
    uncache_adapter = round_batches.uncache_adapter

    make_coordinator, coordinators = LocalFederation._make_coordinator, []

    async def remember_coordinator(federation, version):
        coordinators.append(await make_coordinator(federation, version))
        return coordinators[-1]

    def stop_while_preparing(module):
        channel = module.channel
        module.samples.trunk_outputs = lambda: channel.report_preparation(1, 2) or pytest.fail("not asked to stop")
        if module.schedule.is_target:
            coordinators[-1].roster.stopping = True
        uncache_adapter(module)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFederation, "_make_coordinator", remember_coordinator)
        patch.setattr(round_batches, "uncache_adapter", stop_while_preparing)
        stopped = fedrf.run(None, chosen, out=tmp_path / "run", local=True)
    assert stopped.summary["status"] == "interrupted"
    resumed = fedrf.run(resume=tmp_path / "run", local=True)
    assert final_weights(resumed) == final_weights(undisturbed)
