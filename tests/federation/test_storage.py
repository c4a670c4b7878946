"""Files of clients that do not see the run directory: they cross in pieces, are checked, and are read back."""

import asyncio
import hashlib

import numpy as np
import pytest

import fedrf
from fedrf.archive import pack
from fedrf.errors import RunFailedError
from fedrf.federation import storage, worker
from fedrf.federation.channel import Channel
from fedrf.federation.client_info import ClientInfo
from fedrf.federation.coordinator import Coordinator
from fedrf.federation.storage import SharedFolder, ThroughCoordinator, storage_of
from fedrf.federation.uploads import Uploads
from fedrf.protocol.message import BadMessageError
from tests.conftest import SYNC, TINY, final_weights
from tests.federation.toy_coordinator import A, B, T, coordinator, envelope

VERSION = "checkpoints/rendered/000003.safetensors"
FINAL = "checkpoints/rendered/final.safetensors"


@pytest.fixture
def uploads(tmp_path):
    return coordinator(tmp_path).uploads


def send(uploads, name, content, sender=A, pieces=3, **changes):
    """Send a file in pieces of equal size."""
    values, step = np.frombuffer(content, np.uint8), -(-len(content) // pieces)
    for start in range(0, len(content), step):
        entry = {"start": start, "size": len(content), "digest": hashlib.sha256(content).hexdigest()} | changes
        uploads.add(sender, name, piece=values[start : start + step], **entry)


@pytest.mark.parametrize(("name", "sender"), [(VERSION, A), (FINAL, A), ("predictions.csv", T)])
def test_a_file_arrives_whole_and_can_be_read_back_in_pieces(uploads, monkeypatch, tmp_path, name, sender):
    content = pack({"weights": np.arange(1000.0)})
    send(uploads, name, content, sender)
    assert (tmp_path / name).read_bytes() == content
    assert (tmp_path / name).stat().st_mode & 0o077 == 0
    monkeypatch.setattr("fedrf.federation.uploads.PIECE_BYTES", 1000)
    size, first = uploads.read(sender, name, 0)
    assert (size, first) == (len(content), content[:1000])
    assert uploads.read(sender, name, 7000) == (len(content), content[7000:8000])


@pytest.mark.parametrize(
    ("name", "sender"),
    [
        ("predictions.csv", A),
        ("config.yaml", A),
        ("../elsewhere", T),
        ("checkpoints/rendered/../street/000001.safetensors", A),
        ("checkpoints/street/000001.safetensors", A),
        ("checkpoints/rendered/1.safetensors", A),
        ("checkpoints/rendered/0000000000001.safetensors", A),
        ("checkpoints/coordinator/000001.safetensors", T),
    ],
)
def test_a_client_has_only_its_own_files(uploads, tmp_path, name, sender):
    with pytest.raises(BadMessageError, match=f"is no file of {sender}"):
        send(uploads, name, b"content", sender)
    with pytest.raises(BadMessageError, match=f"is no file of {sender}"):
        uploads.read(sender, name, 0)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["owner.json"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"digest": "0" * 64}, "does not match its digest"),
        ({"size": 2**40}, "pieces of bytes are expected"),
        ({"size": 5}, "expected from 0 on, 5 in all"),
        ({"start": 5}, "a piece of another file"),
    ],
)
def test_what_is_not_the_file_that_was_announced_is_refused(uploads, tmp_path, changes, reason):
    with pytest.raises(BadMessageError, match=reason):
        send(uploads, FINAL, b"some content of a file", **changes)
    assert not (tmp_path / FINAL).exists()


def test_a_damaged_checkpoint_is_refused_and_the_older_file_stays(uploads, tmp_path):
    content = pack({"weights": np.arange(1000.0)})
    send(uploads, VERSION, content)
    with pytest.raises(BadMessageError, match="is damaged"):
        send(uploads, VERSION, content[:-8] + bytes(8))
    assert (tmp_path / VERSION).read_bytes() == content
    assert len(list((tmp_path / VERSION).parent.iterdir())) == 1


def test_repeated_pieces_are_written_once_and_missing_ones_are_noticed(uploads, tmp_path):
    content = bytes(range(30))
    values, digest = np.frombuffer(content, np.uint8), hashlib.sha256(content).hexdigest()

    def add(start, end):
        uploads.add(A, FINAL, start, len(content), digest, values[start:end])

    add(0, 10)
    with pytest.raises(BadMessageError, match="bytes from 20 on; expected from 10 on"):
        add(20, 30)
    add(10, 20)
    add(10, 20)
    add(20, 30)
    add(20, 30)
    assert (tmp_path / FINAL).read_bytes() == content


def test_checkpoints_that_have_crossed_are_deleted_when_no_version_needs_them(tmp_path):
    async def main():
        server = coordinator(tmp_path, begun=True, federation__checkpoint_seconds=0, federation__mode="async")
        for number in range(1, 6):
            for name in (A, B):
                await server.exchange(envelope(name, number))
            version = (await server.exchange(envelope(T, number))).checkpoint_version
            send(server.uploads, f"checkpoints/{A}/{version:06d}.safetensors", pack({"version": version}))
            for name in (A, B, T):
                await server.saved(name, version)

    asyncio.run(main())
    kept = sorted(path.name for path in (tmp_path / f"checkpoints/{A}").iterdir())
    # When it sends the fifth, the third and the fourth version are valid.
    assert kept == [f"00000{version}.safetensors" for version in (3, 4, 5)]


def test_the_directory_of_another_run_on_this_node_is_not_used(tmp_path):
    (tmp_path / "owner.json").write_text('{"token": "of a run that crashed here"}')
    channel = Channel(ClientInfo(A, (A,), T, tmp_path, token="mine"), lambda content: None, 1)
    assert isinstance(storage_of(channel), ThroughCoordinator)


def test_a_client_that_sees_the_run_directory_writes_there_itself(tmp_path):
    channel = Channel(ClientInfo(A, (A,), T, tmp_path, token="mine"), lambda content: None, 1)
    assert isinstance(storage_of(channel), ThroughCoordinator)
    (tmp_path / "owner.json").write_text('{"token": "mine"}')
    assert isinstance(storage_of(channel), SharedFolder)


@pytest.fixture
def without_shared_folder(monkeypatch):
    """Clients of runs in threads do not use the run directory; pieces are small. Returns the files that crossed."""
    crossed, add = [], Uploads.add

    def counted(self, sender, name, start, *rest):
        crossed.append(name)
        return add(self, sender, name, start, *rest)

    monkeypatch.setattr(worker, "storage_of", lambda channel, url: ThroughCoordinator(channel))
    monkeypatch.setattr(storage, "PIECE_BYTES", 20_000)
    monkeypatch.setattr(Uploads, "add", counted)
    return crossed


@pytest.mark.parametrize("settings", [SYNC, {**TINY, "method": "fedrf-oneshot", "train.rounds": 0}])
def test_a_run_without_a_shared_folder_leaves_the_same_files(tmp_path, request, settings):
    settings = {**settings, "federation.mode": "sync"}
    shared = fedrf.run(None, settings, out=tmp_path / "shared", local=True)
    crossed = request.getfixturevalue("without_shared_folder")
    result = fedrf.run(None, settings, out=tmp_path / "run", local=True)
    assert final_weights(result) == final_weights(shared)
    assert (result.folder / "predictions.csv").read_bytes() == (shared.folder / "predictions.csv").read_bytes()
    assert crossed.count("predictions.csv") == 1
    assert result.summary["communication"] == shared.summary["communication"]  # files are no messages


def test_such_a_run_is_resumed_with_the_same_bits(tmp_path, without_shared_folder, monkeypatch):
    expected = final_weights(fedrf.run(None, SYNC, out=tmp_path / "whole", local=True))
    answer, calls = Coordinator.saved, []

    async def failing(self, sender, version):
        calls.append(sender)
        if len(calls) == 14:
            raise OSError("stopped by the test")
        return await answer(self, sender, version)

    with monkeypatch.context() as patch:
        patch.setattr(Coordinator, "saved", failing)
        with pytest.raises(RunFailedError, match="stopped by the test"):
            fedrf.run(None, SYNC, out=tmp_path / "run", local=True)
    assert final_weights(fedrf.run(resume=tmp_path / "run", local=True)) == expected
