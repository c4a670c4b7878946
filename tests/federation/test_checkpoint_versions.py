"""Checkpoint versions, records, and the start and stop of a run, with toy clients."""

import asyncio
import threading
from itertools import product

import numpy as np
import pytest

from fedrf.archive import pack
from fedrf.config.loader import load_config
from fedrf.federation.checkpoints import ClientFiles, CoordinatorFiles
from fedrf.federation.coordinator import Coordinator
from fedrf.ownership import RunTakenOverError
from fedrf.protocol.messages import Greeting, Metrics
from tests.federation.toy_coordinator import BASE, A, B, T, coordinator, envelope, exchange_all, run


def write_file(run, client, version):
    """Write what stands for a client's checkpoint."""
    path = ClientFiles(run, client).path(version)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pack({"version": version}))


def test_a_client_that_was_away_keeps_the_file_that_a_valid_version_refers_to(tmp_path):
    async def main():
        server = coordinator(tmp_path, begun=True, federation__mode="async", federation__checkpoint_seconds=0)
        needed = []
        for number in range(1, 5):
            await server.exchange(envelope(A, number))
            reply = await server.exchange(envelope(T, number))
            for name in (A, T) if number > 1 else (A, B, T):
                await server.saved(name, reply.checkpoint_version)
            if number == 1:
                await server.leave(B, "gone")
        needed.append(server.versions.oldest_needed(B))
        await server.admit(B, 1)
        await server.exchange(envelope(B, 4, attempt=1))
        needed.append(await server.saved(B, server.versions.number))
        return needed, server.versions.saved

    needed, saved = run(main())
    assert needed == [1, 1]  # both valid versions refer to B's first file
    assert saved[B] == 4


def test_a_version_is_valid_when_all_clients_have_saved_and_can_be_resumed(tmp_path):
    async def main():
        server = coordinator(tmp_path, federation__checkpoint_seconds=0)
        replies = await exchange_all(server, envelope(A, 1, embedding=[0.1, 0]), envelope(B, 1), envelope(T, 1))
        counts = []
        for name in (A, B, T):
            write_file(tmp_path, name, replies[name].checkpoint_version)
            await server.saved(name, replies[name].checkpoint_version)
            counts.append(server.versions.files.newest)
        return counts

    assert run(main()) == [0, 0, 1]

    async def resumed():
        files = CoordinatorFiles(tmp_path)
        return Coordinator(load_config(None, BASE), (A, B), T, files, files.load())

    state, versions = run(resumed()).state, run(resumed()).versions
    assert state.rounds == {A: 1, B: 1, T: 1}
    assert (versions.number, versions.saved) == (1, {A: 1, B: 1, T: 1})
    np.testing.assert_allclose(state.aggregate.embeddings[A][0].values, [0.1, 0])


def test_only_two_versions_are_kept(tmp_path):
    async def main():
        server = coordinator(tmp_path, federation__checkpoint_seconds=0)
        for number in range(1, 6):
            replies = await exchange_all(server, *(envelope(name, number) for name in (A, B, T)))
            for name in (A, B, T):
                oldest = await server.saved(name, replies[name].checkpoint_version)
        return oldest

    assert run(main()) == 4
    assert sorted(path.name for path in (tmp_path / "checkpoints/coordinator").glob("*.*")) == [
        "000004.safetensors",
        "000005.safetensors",
    ]


def test_a_coordinator_whose_run_was_taken_over_can_no_longer_write(tmp_path):
    async def main():
        server = coordinator(tmp_path, federation__checkpoint_seconds=0)
        (tmp_path / "owner.json").write_text('{"token": "of another process"}')
        await exchange_all(server, *(envelope(name, 1) for name in (A, B, T)))

    with pytest.raises(RunTakenOverError):
        run(main())
    assert CoordinatorFiles(tmp_path).newest == 0


def test_rows_are_returned_once(tmp_path):
    async def main():
        server = coordinator(tmp_path)
        await server.report(Metrics(A, 1, 0, {"loss": 1.0}))
        first = await server.poll(0)
        await server.report(Metrics(A, 2, 0, {"loss": 2.0}))
        second = await server.poll(1)
        return first.rows, second.rows, server.state.ledger.rows

    first, second, kept = run(main())
    assert first == [{"client": A, "round": 1, "loss": 1.0}]
    assert second == kept == [{"client": A, "round": 2, "loss": 2.0}]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_rounds_do_not_begin_without_a_client_that_was_lost_during_preparation(tmp_path, mode):
    async def main():
        server = coordinator(tmp_path, federation__mode=mode)
        waiting = [asyncio.ensure_future(server.greet(Greeting(name, 0, 1, 1.0, 5, 1))) for name in (A, B)]
        assert await server.prepare(T, 0.5) is False
        assert (await server.poll(0)).preparing == {T: 0.5}
        await server.leave(T, "its process is gone")
        await asyncio.sleep(0.05)
        assert not any(future.done() for future in waiting)
        await server.greet(Greeting(T, 0, 2, 4.0, 5, 1))
        return await asyncio.gather(*waiting), await server.poll(0)

    replies, status = run(main())
    assert [sigma for sigma, _ in replies] == [1.0, 1.0]
    assert status.preparing == {}
    assert status.failures == [f"{T} left before round 1: its process is gone"]


def test_waiting_clients_return_when_the_run_stops(tmp_path):
    async def main():
        server = coordinator(tmp_path)
        waiting = asyncio.ensure_future(server.greet(Greeting(A, 0, 1, 1.0, 5, 1)))
        await asyncio.sleep(0.05)
        await server.stop()
        late = await server.greet(Greeting(B, 0, 1, 1.0, 5, 1))
        return await waiting, late, await server.prepare(T, 0.5)

    waiting, late, asked = run(main())
    assert waiting[1].stop
    assert late[1].stop
    assert asked


class SlowStore:
    """Holds back each write of the coordinator's files until the test allows it."""

    def __init__(self, files):
        self.save, self.begun, self.allowed = files.save, [], threading.Semaphore(0)
        files.save = self.slow

    def slow(self, version, state, saved):
        self.begun.append(version)
        assert self.allowed.acquire(timeout=10)
        self.save(version, state, saved)


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


def test_calls_are_answered_while_a_version_is_written_and_it_is_valid_after_that(tmp_path):
    async def main():
        server = coordinator(tmp_path, begun=True, federation__mode="async", federation__checkpoint_seconds=0)
        store = SlowStore(server.versions.files)
        await server.exchange(envelope(A, 1))
        first = (await server.exchange(envelope(T, 1))).checkpoint_version
        for name in (A, B):
            await server.saved(name, first)
        last = asyncio.ensure_future(server.saved(T, first))
        await until(lambda: store.begun)
        await server.beat(A)
        await server.exchange(envelope(A, 2))
        reply = await server.exchange(envelope(T, 2))
        assert (reply.checkpoint_version, (await server.poll(0)).rounds[T]) == (first, 2)  # no version begins
        assert not last.done()
        assert server.versions.files.newest == 0
        store.allowed.release()
        await last
        return server.versions.files.newest, first

    newest, first = run(main())
    assert newest == first == 1


def test_versions_are_written_one_after_the_other(tmp_path):
    """The second begins while the first is written, because the run stops."""

    async def main():
        server = coordinator(tmp_path, begun=True, federation__mode="async", federation__checkpoint_seconds=0)
        store = SlowStore(server.versions.files)
        await server.exchange(envelope(A, 1))
        await server.exchange(envelope(T, 1))
        calls = [asyncio.ensure_future(server.saved(name, 1)) for name in (A, B, T)]
        await until(lambda: store.begun)
        await server.stop()
        calls += [asyncio.ensure_future(server.saved(name, 2)) for name in (A, B, T)]
        await asyncio.sleep(0.05)
        assert store.begun == [1]
        for number in (1, 2):
            store.allowed.release()
            await until(lambda number=number: server.versions.files.newest == number)
        await asyncio.gather(*calls)
        return store.begun, server.versions.files

    begun, files = run(main())
    assert begun == [1, 2]
    assert [path.name for path in sorted(files.folder.glob("*.safetensors"))] == [
        "000001.safetensors",
        "000002.safetensors",
    ]
    for number, client in product((1, 2), (A, B, T)):
        write_file(tmp_path, client, number)
    assert files.load().saved == {A: 2, B: 2, T: 2}
