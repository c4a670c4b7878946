"""What the coordinator can compute from the messages of batches, with batches from the seed and from a secret."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.decomposition import FastICA

import fedrf
from fedrf.config.loader import load_config
from fedrf.data import draws
from fedrf.federation import local_samples
from fedrf.federation.saver import Saver
from tests.conftest import final_weights
from tests.federation.recording import SYNC, exchanges, new_client, run_recorded

CLIENT, POSITION = "street", 0
SAMPLES, BATCH = 24, 5
MEANS_OF_BATCHES = {
    **SYNC,
    "method": "fedrf-tca",
    "align.message": "batch",
    "model.sharing": "frozen",
    "model.sigma": 1.0,
    "data.sources": [CLIENT],
    "data.samples": SAMPLES,
    "train.batch_size": BATCH,
    "train.rounds": 80,
    "track.evaluate_every": 80,
}
SECRET = b"thirty-two letters of a secret.."


def random_features(config, folder):
    """Return the random features of the client's samples, which the coordinator should not know."""
    return torch.cat(list(new_client(config, CLIENT, folder).module.all_features())).double().numpy()


def observed(overrides, folder):
    """Run a federation; return the messages of the client, as the coordinator sees them, and the truth."""
    result, calls = run_recorded(overrides, folder / "run")
    envelopes = [
        envelope for envelope, _ in exchanges(calls) if envelope.sender == CLIENT and envelope.phase == "round"
    ]
    assert [envelope.round for envelope in envelopes] == list(range(1, 81))
    sent = [message for envelope in envelopes for message in envelope.messages if message.kind == "mean_embedding"]
    return np.stack([message.values for message in sent]).astype(float), random_features(result.config, folder)


def batches_by_seed(rounds, count, seed=0):
    """Return the share of each of `count` samples in the mean of each round, as docs/protocol.md defines batches."""
    shares = np.zeros((rounds, count))
    for number in range(rounds):
        epoch, index = divmod(number, count // BATCH)
        order = np.random.RandomState([seed, POSITION, epoch, 0xDA7A]).permutation(count)
        shares[number, order[index * BATCH : (index + 1) * BATCH]] = 1 / BATCH
    return shares


def solve(messages, count):
    """Return the random features of `count` samples by least squares, and the share of the messages they leave over."""
    shares = batches_by_seed(len(messages), count)
    solution = np.linalg.lstsq(shares, messages, rcond=None)[0]
    left = np.linalg.norm(shares @ solution - messages) / np.linalg.norm(messages - messages.mean(0))
    return solution, left


def error(solution, truth):
    """Return the error of a solution; 1 is that of the mean of all samples."""
    return np.linalg.norm(solution - truth) / np.linalg.norm(truth - truth.mean(0))


@pytest.mark.parametrize("message", ["batch", "running"])
def test_the_seed_tells_the_random_features_of_every_sample_and_their_number(tmp_path, message):
    messages, truth = observed({**MEANS_OF_BATCHES, "align.message": message}, tmp_path)
    if message == "running":  # means over the past, with a memory of 0.9
        sums = messages * (1 - 0.9 ** np.arange(1, 81))[:, None]
        messages = (sums - 0.9 * np.vstack([np.zeros_like(sums[:1]), sums[:-1]])) / 0.1
    count = next(count for count in range(BATCH, 40) if solve(messages, count)[1] < 1e-3)
    assert count == SAMPLES
    assert error(solve(messages, count)[0], truth) < 1e-3


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """The messages of private batches, and the truth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "new_secret", lambda: SECRET)  # one secret, so that the test always has the same result
        return observed({**MEANS_OF_BATCHES, "federation.private_batches": True}, tmp_path_factory.mktemp("private"))


def test_with_a_secret_the_seed_tells_nothing(private):
    messages, truth = private
    assert min(solve(messages, count)[1] for count in range(BATCH, 40)) > 0.5
    assert error(solve(messages, SAMPLES)[0], truth) > 0.9


def test_the_number_of_samples_is_the_rank_of_the_messages_even_with_a_secret(private):
    """A limit that SECURITY.md states, for more rounds and random features than samples."""
    messages, _ = private
    assert np.linalg.matrix_rank(messages, tol=1e-5 * np.linalg.norm(messages)) == SAMPLES


def test_very_many_messages_tell_the_batches_even_with_a_secret(tmp_path, monkeypatch):
    """A limit that SECURITY.md states: independent components of the messages, with 50 rounds for each sample."""
    monkeypatch.setattr(draws, "new_secret", lambda: SECRET)
    samples, size, rounds = 30, 15, 1500
    keys = {**MEANS_OF_BATCHES, "data.samples": samples, "federation.private_batches": True}
    client = new_client(load_config(None, keys), CLIENT, tmp_path)
    features = torch.cat(list(client.module.all_features())).numpy()
    shares = np.zeros((rounds, samples), dtype=np.float32)
    for number in range(rounds):
        shares[number, client.module.samples.batch(number + 1, size).rows] = 1 / size
    separation = FastICA(samples - 1, whiten="unit-variance", fun="cube", max_iter=1000, random_state=0)
    components = separation.fit_transform((shares @ features).astype(float))
    is_high = (components > (components.max(0) + components.min(0)) / 2).T
    found = {column.tobytes() for column in (*is_high, *~is_high)}
    assert sum((column > 0).tobytes() in found for column in shares.T) >= samples - 3


def test_private_runs_differ_from_each_other_and_from_the_run_with_the_seed(tmp_path):
    settings = {**SYNC, "train.rounds": 2, "adapt.when": "never"}
    private = {**settings, "federation.private_batches": True}
    runs = {"seed": settings, "one": private, "two": private}
    weights = [final_weights(fedrf.run(None, keys, out=tmp_path / name, local=True)) for name, keys in runs.items()]
    for client in ("rendered", "textured", "street", "handwritten"):
        assert len({each[client] for each in weights}) == 3


def test_the_secret_is_in_checkpoints_of_clients_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setattr(draws, "new_secret", lambda: SECRET)
    keys = {**SYNC, "federation.private_batches": True, "federation.checkpoint_seconds": 0, "track.tensorboard": True}
    _, calls = run_recorded(keys, tmp_path / "run")
    assert not any(SECRET in pickle.dumps(arguments) or SECRET.hex() in str(arguments) for _, arguments, _ in calls)
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    holders = {path for path in files if SECRET in path.read_bytes() or SECRET.hex().encode() in path.read_bytes()}
    assert holders == {path for path in files if path.stem.isdigit() and path.parent.name != "coordinator"}
    assert {path.parent.name for path in holders} == {"rendered", "textured", "street", "handwritten"}


def test_a_checkpoint_without_a_secret_does_not_take_that_of_a_client_away(tmp_path):
    """As after an interruption in which the user sets federation.private_batches in config.yaml."""
    config = load_config(None, {**SYNC, "model.sigma": 1.0, "federation.private_batches": True})
    module = new_client(config, CLIENT, tmp_path).module
    saver, secret = Saver(module, lambda: None), module.samples.draws.secret
    saver.load_state_dict(saver.state_dict() | {"secret": None})
    assert module.samples.draws.secret == secret


def test_the_samples_for_the_kernel_width_are_drawn_from_the_secret(tmp_path, monkeypatch):
    monkeypatch.setattr(local_samples, "PIECE", 50)
    keys = {**SYNC, "model.sigma": 1.0}
    known = new_client(load_config(None, keys), CLIENT, tmp_path).module.samples.some_positions()
    np.testing.assert_array_equal(known, np.linspace(0, 119, 50).astype(int))
    private = load_config(None, {**keys, "federation.private_batches": True})
    chosen = [new_client(private, CLIENT, tmp_path).module.samples.some_positions() for _ in range(2)]
    assert [len(set(positions)) for positions in chosen] == [50, 50]
    assert set(chosen[0]) != set(chosen[1])
