"""Rounds with toy clients and numbers computed by hand."""

import asyncio

import numpy as np
import pytest

from fedrf.config.loader import load_config
from fedrf.federation.checkpoints import CoordinatorFiles, RunTakenOverError
from fedrf.federation.coordinator import Coordinator
from fedrf.protocol.messages import (
    Aligner,
    Classifier,
    Envelope,
    Extractor,
    Greeting,
    MeanEmbedding,
    Metrics,
    known_shapes,
)

BASE = {
    "model.num_features": 1,
    "model.dim": 2,
    "data.sources": ["rendered", "street"],
    "federation.mode": "sync",
    "align.step": "gradient",
    "federation.checkpoint_seconds": 1e9,
}
A, B, T = "rendered", "street", "handwritten"
ONES = np.ones((2, 2), np.float32)


def coordinator(tmp_path, **overrides):
    config = load_config(None, {**BASE, **{key.replace("__", "."): value for key, value in overrides.items()}})
    return Coordinator(config, (A, B), T, CoordinatorFiles.claim(tmp_path))


def envelope(sender, number, *, embedding=None, aligner=None, classifier=None, phase="round", attempt=0, version=0):
    messages = []
    if embedding is not None:
        messages.append(MeanEmbedding(sender, number, attempt, np.array(embedding, np.float32)))
    if aligner is not None:
        messages.append(Aligner(sender, number, attempt, np.asarray(aligner, np.float32)))
    if classifier is not None:
        messages.append(Classifier(sender, number, attempt, np.resize(np.array(classifier, np.float32), 30)))
    return Envelope(sender, number, attempt, phase, tuple(messages), version)


def play(main):
    return asyncio.run(asyncio.wait_for(main, 20))


async def together(one, *envelopes):
    replies = await asyncio.gather(*(one.exchange(envelope) for envelope in envelopes))
    return {envelope.sender: reply for envelope, reply in zip(envelopes, replies, strict=True)}


def test_embeddings_go_between_target_and_sources_and_never_from_source_to_source(tmp_path):
    async def main():
        return await together(
            coordinator(tmp_path),
            envelope(A, 1, embedding=[0.1, 0]),
            envelope(B, 1, embedding=[0.2, 0]),
            envelope(T, 1, embedding=[0.3, 0]),
        )

    replies = play(main())
    assert [(m.sender, m.values[0]) for m in replies[T].embeddings] == [(A, np.float32(0.1)), (B, np.float32(0.2))]
    assert [m.sender for m in replies[A].embeddings] == [T]
    assert [m.sender for m in replies[B].embeddings] == [T]


def test_a_source_outside_the_round_gets_nothing_and_gives_nothing(tmp_path):
    async def main():
        return await together(
            coordinator(tmp_path),
            envelope(A, 1, embedding=[0.1, 0]),
            envelope(B, 1),
            envelope(T, 1, embedding=[0.3, 0]),
        )

    replies = play(main())
    assert [m.sender for m in replies[T].embeddings] == [A]
    assert replies[B].embeddings == ()


def test_the_aggregate_is_the_mean_over_participants_and_target_and_goes_to_them_alone(tmp_path):
    async def main():
        return await together(
            coordinator(tmp_path),
            envelope(A, 2, aligner=1 * ONES, classifier=[5.0, 7.0]),
            envelope(B, 2),
            envelope(T, 2, aligner=4 * ONES),
        )

    replies = play(main())
    np.testing.assert_array_equal(replies[A].parts["aligner"], 2.5 * ONES)
    np.testing.assert_array_equal(replies[T].parts["aligner"], 2.5 * ONES)
    np.testing.assert_array_equal(replies[T].parts["classifier"], [5.0, 7.0] * 15)
    assert replies[B].parts == {}


def test_the_proximal_step_uses_the_embeddings_of_the_aligners_own_round(tmp_path):
    """By hand: v = (1, 0) in round 1, so that γ(γI + vvᵀ)⁻¹ shrinks the first row by γ/(γ+1) = 1/2 for γ = 1."""

    async def main():
        one = coordinator(tmp_path, align__step="proximal", align__gamma=1.0)
        await together(one, envelope(A, 1, embedding=[1, 0]), envelope(B, 1), envelope(T, 1, embedding=[0, 0]))
        return await together(
            one,
            envelope(A, 2, embedding=[0, 1], aligner=2 * ONES),
            envelope(B, 2, aligner=4 * ONES),
            envelope(T, 2, embedding=[0, 0]),
        )

    replies = play(main())
    np.testing.assert_allclose(replies[T].parts["aligner"], [[1.5, 1.5], [3, 3]], rtol=1e-6)


def test_weighted_means_use_the_counts_that_clients_told(tmp_path):
    async def main():
        one = coordinator(tmp_path, federation__aggregation="weighted")
        await asyncio.gather(*(one.greet(Greeting(n, 0, 0, 1.0, 5, c)) for n, c in ((A, 3), (B, 1), (T, 1))))
        return await together(one, envelope(A, 2, aligner=0 * ONES), envelope(B, 2, aligner=4 * ONES), envelope(T, 2))

    np.testing.assert_allclose(play(main())[T].parts["aligner"], ONES)


def test_the_kernel_width_is_the_median_of_the_clients(tmp_path):
    async def main():
        one = coordinator(tmp_path, model__sigma="median")
        answers = await asyncio.gather(
            *(one.greet(Greeting(n, 0, 0, w, 5, 1)) for n, w in ((A, 1.0), (B, 5.0), (T, 2.0)))
        )
        return [sigma for sigma, _ in answers]

    assert play(main()) == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_bad_message_is_refused_counted_and_never_aggregated(tmp_path, mode):
    async def main():
        one = coordinator(tmp_path, federation__mode=mode)
        poison = envelope(A, 2, embedding=[3.0, 0.0], aligner=np.full((2, 2), np.nan))
        replies = await together(one, poison, envelope(B, 2, aligner=4 * ONES), envelope(T, 2, embedding=[0.1, 0]))
        return replies, await one.poll(0)

    replies, progress = play(main())
    np.testing.assert_array_equal(replies[T].parts["aligner"], 4 * ONES)
    assert replies[T].embeddings == ()
    assert len(replies[A].refused) == 2
    assert progress["refused"] == {"mean_embedding": 1, "aligner": 1}
    assert any("has length 3" in failure for failure in progress["failures"])


def test_a_part_of_another_size_is_refused_whoever_sends_first(tmp_path):
    async def main():
        one = coordinator(tmp_path)
        await asyncio.gather(*(one.greet(Greeting(name, 0, 0, 1.0, 9 if name == A else 4, 1)) for name in (A, B, T)))
        small = Envelope(A, 2, 0, "round", (Classifier(A, 2, 0, np.zeros(3, np.float32)), extractor(A, 9)))
        right = Envelope(B, 2, 0, "round", (extractor(B, 4),))
        return await together(one, small, right, envelope(T, 2))

    def extractor(name, size):
        return Extractor(name, 2, 0, np.ones(size, np.float32))

    replies = play(main())
    assert [reason.split(";")[0] for reason in replies[A].refused] == [
        f"classifier of {A} must have shape (30,)",
        f"extractor of {A} must have shape (4,)",
    ]
    assert replies[B].refused == ()


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_the_shapes_that_are_expected_are_those_of_the_model(kind):
    from fedrf.models.extractors.builders import make_extractor
    from fedrf.models.network import DomainModel
    from fedrf.tca.random_features import RandomFourierFeatures

    config = load_config(None, {**BASE, "model.classifier": kind})
    model = DomainModel(make_extractor("identity", (3,)).adapter, RandomFourierFeatures(3, 1), 2, 10, kind)
    shapes = known_shapes(config)
    for part in ("aligner", "classifier"):
        assert tuple(model.get_part(part).shape) == shapes[part]


def test_an_unknown_sender_is_refused(tmp_path):
    async def main():
        one = coordinator(tmp_path)
        return await one.exchange(envelope("mallory", 1)), await one.poll(0)

    reply, progress = play(main())
    assert "unknown sender 'mallory'" in reply.refused[0]
    assert progress["refused"] == {"envelope": 1}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_repeated_call_changes_nothing_and_gets_the_same_answer(tmp_path, mode):
    async def main():
        one = coordinator(tmp_path, federation__mode=mode)
        first = envelope(A, 2, aligner=ONES)
        calls = [one.exchange(e) for e in (first, first, envelope(B, 2, aligner=3 * ONES), envelope(T, 2))]
        replies = await asyncio.gather(*calls)
        before = (await one.poll(0))["traffic"]
        again = await one.exchange(first)
        return replies, again, before, (await one.poll(0))["traffic"], one.state.model.version

    replies, again, before, after, version = play(main())
    assert replies[0] is replies[1] is again
    assert before == after
    assert before["up", "aligner"] == 32
    assert version == (0 if mode == "sync" else 2)


@pytest.mark.parametrize(("number", "attempt"), [(2, 1), (3, 0)])
def test_an_older_call_is_refused_and_changes_nothing(tmp_path, number, attempt):
    async def main():
        one = coordinator(tmp_path, federation__mode="async")
        await one.exchange(envelope(A, 2, aligner=0 * ONES, attempt=1))
        latest = await one.exchange(envelope(A, 3, aligner=ONES, attempt=1))
        again = await one.exchange(envelope(A, number, aligner=9 * ONES, attempt=attempt))
        return latest, again, one.state.model

    latest, again, model = play(main())
    assert "repeats round" in again.refused[0]
    np.testing.assert_array_equal(model.current["aligner"], latest.parts["aligner"])
    assert model.version == 2


@pytest.mark.parametrize(("number", "phase"), [(0, "round"), (10**6, "round"), (1, "party")])
def test_a_call_for_no_round_or_phase_is_refused(tmp_path, number, phase):
    async def main():
        return await coordinator(tmp_path).exchange(Envelope(A, number, 0, phase))

    assert f"calls for {phase!r} of round {number}" in play(main()).refused[0]


def test_in_async_mode_the_target_downloads_only_what_changed(tmp_path):
    async def main():
        one = coordinator(tmp_path, federation__mode="async", federation__classifier_interval=2)
        await one.exchange(envelope(A, 2, aligner=ONES, classifier=[1.0]))
        first = await one.exchange(envelope(T, 1))
        await one.exchange(envelope(A, 3, aligner=2 * ONES))
        second = await one.exchange(envelope(T, 2))
        third = await one.exchange(envelope(T, 3))
        return [set(reply.parts) for reply in (first, second, third)]

    assert play(main()) == [{"aligner", "classifier"}, {"aligner"}, set()]


def test_in_async_mode_only_the_members_of_a_round_count(tmp_path):
    """Ordered: in round 1 the first source, in round 2 the second; parts that come in round 3 belong to round 2."""

    async def main():
        one = coordinator(tmp_path, federation__mode="async", federation__messages="ordered/same/same")
        await one.exchange(envelope(A, 1, embedding=[0.1, 0]))
        await one.exchange(envelope(A, 2, aligner=8 * ONES, version=one.state.model.version))
        await one.exchange(envelope(B, 2, embedding=[0.2, 0], version=one.state.model.version))
        reply = await one.exchange(envelope(B, 3, aligner=2 * ONES, version=one.state.model.version))
        target = await one.exchange(envelope(T, 2, embedding=[0.3, 0], version=one.state.model.version))
        return reply, target

    reply, target = play(main())
    np.testing.assert_array_equal(reply.parts["aligner"], 2 * ONES)
    assert [message.sender for message in target.embeddings] == [B]


def test_a_client_that_was_away_keeps_the_file_that_a_generation_asks_for(tmp_path):
    async def main():
        one = coordinator(tmp_path, federation__mode="async", federation__checkpoint_seconds=0)
        needed = []
        for number in range(1, 5):
            await one.exchange(envelope(A, number))
            reply = await one.exchange(envelope(T, number))
            for name in (A, T) if number > 1 else (A, B, T):
                await one.saved(name, reply.generation)
            if number == 1:
                await one.leave(B, "gone")
        needed.append(one.generations.oldest_needed(B))
        await one.exchange(envelope(B, 4, attempt=1))
        needed.append(await one.saved(B, one.generations.number))
        return needed, one.generations.saved

    needed, saved = play(main())
    assert needed == [1, 1]  # both generations that count name B's first file
    assert saved[B] == 4


def test_bytes_are_counted_both_ways(tmp_path):
    async def main():
        one = coordinator(tmp_path)
        await together(
            one,
            envelope(A, 2, embedding=[0.1, 0], aligner=ONES),
            envelope(B, 2, embedding=[0.1, 0], aligner=ONES),
            envelope(T, 2, embedding=[0.1, 0]),
        )
        return (await one.poll(0))["traffic"]

    assert play(main()) == {
        ("up", "mean_embedding"): 3 * 8,
        ("down", "mean_embedding"): 4 * 8,
        ("up", "aligner"): 2 * 16,
        ("down", "aligner"): 3 * 16,
    }


def test_in_sync_mode_a_silent_client_is_left_out_after_the_deadline_and_can_come_back(tmp_path):
    async def main():
        one = coordinator(tmp_path, federation__deadline=0.1)
        await together(one, envelope(A, 1, aligner=ONES), envelope(T, 1))
        late = await one.exchange(envelope(B, 1, aligner=9 * ONES))
        joined = await together(
            one, envelope(B, late.round + 1, aligner=3 * ONES), envelope(A, 2, aligner=ONES), envelope(T, 2)
        )
        return late, joined, await one.poll(0)

    late, joined, progress = play(main())
    np.testing.assert_array_equal(late.parts["aligner"], ONES)  # where the others are, not the late one's own
    assert progress["failures"] == ["street left in round 0: silent for 0.1 s"]
    assert progress["present"] == [T, A, B]
    np.testing.assert_array_equal(joined[T].parts["aligner"], 2 * ONES)


def test_in_async_mode_sources_never_wait(tmp_path):
    async def main():
        one = coordinator(tmp_path, federation__mode="async")
        for number in range(1, 6):
            reply = await one.exchange(envelope(A, number, aligner=number * ONES, version=one.state.model.version))
        return reply

    np.testing.assert_array_equal(play(main()).parts["aligner"], 5 * ONES)


def test_in_async_mode_the_target_waits_for_the_fastest_source_only(tmp_path):
    async def main():
        one = coordinator(tmp_path, federation__mode="async")
        waiting = asyncio.ensure_future(one.exchange(envelope(T, 2)))
        await one.exchange(envelope(A, 1))
        await asyncio.sleep(0.05)
        early = waiting.done()
        await one.exchange(envelope(A, 2))
        await asyncio.wait_for(waiting, 1)
        return early

    assert play(main()) is False


def test_stale_messages_are_discounted_and_too_old_ones_left_out(tmp_path):
    """A's W grew from version 0; after 2 updates of B it is one round old: weight 1/2 with a = 1."""

    async def main(limit):
        one = coordinator(
            tmp_path, federation__mode="async", federation__staleness_exponent=1.0, federation__max_staleness=limit
        )
        await one.exchange(envelope(A, 2, aligner=0 * ONES, version=0))
        for number in (2, 3):
            reply = await one.exchange(envelope(B, number, aligner=3 * ONES, version=one.state.model.version))
        return reply, await one.poll(0)

    reply, progress = play(main(5))
    np.testing.assert_allclose(reply.parts["aligner"], 2 * ONES, rtol=1e-6)  # (0 · 1/2 + 3 · 1) / (1/2 + 1)
    assert progress["staleness"] == {0: 3}
    reply, _ = play(main(1))
    np.testing.assert_allclose(reply.parts["aligner"], 2 * ONES, rtol=1e-6)


def test_fedasync_mixes_and_fedbuff_waits_for_a_full_buffer(tmp_path):
    async def main(rule, **more):
        one = coordinator(tmp_path, federation__mode="async", federation__aggregation=rule, **more)
        replies = []
        for number, sender in enumerate((A, B, A), start=2):
            values = number * ONES
            replies.append(
                await one.exchange(envelope(sender, number, aligner=values, version=one.state.model.version))
            )
        return [reply.parts.get("aligner", np.zeros((1, 1)))[0, 0] for reply in replies]

    assert play(main("fedasync", federation__mixing=0.5)) == [2.0, 2.5, 3.25]
    assert play(main("fedbuff", federation__buffer=3)) == [0.0, 0.0, 3.0]


def test_a_generation_counts_when_all_have_saved_and_can_be_resumed(tmp_path):
    async def main():
        one = coordinator(tmp_path, federation__checkpoint_seconds=0)
        replies = await together(one, envelope(A, 1, embedding=[0.1, 0]), envelope(B, 1), envelope(T, 1))
        counts = []
        for name in (A, B, T):
            await one.saved(name, replies[name].generation)
            counts.append(one.files.newest)
        return counts

    assert play(main()) == [0, 0, 1]

    async def resumed():
        return Coordinator(load_config(None, BASE), (A, B), T, CoordinatorFiles(tmp_path), resume=True)

    state, generations = play(resumed()).state, play(resumed()).generations
    assert state.rounds == {A: 1, B: 1, T: 1}
    assert (generations.number, generations.saved) == (1, {A: 1, B: 1, T: 1})
    np.testing.assert_allclose(state.model.embeddings[A][0].values, [0.1, 0])


def test_only_two_generations_are_kept(tmp_path):
    async def main():
        one = coordinator(tmp_path, federation__checkpoint_seconds=0)
        for number in range(1, 6):
            replies = await together(one, *(envelope(name, number) for name in (A, B, T)))
            for name in (A, B, T):
                oldest = await one.saved(name, replies[name].generation)
        return oldest

    assert play(main()) == 4
    assert sorted(path.name for path in (tmp_path / "checkpoints/coordinator").glob("*.*")) == [
        "000004.pickle",
        "000005.pickle",
    ]


def test_a_coordinator_whose_run_was_taken_over_can_no_longer_write(tmp_path):
    async def main():
        one = coordinator(tmp_path, federation__checkpoint_seconds=0)
        CoordinatorFiles.claim(tmp_path)
        await together(one, *(envelope(name, 1) for name in (A, B, T)))

    with pytest.raises(RunTakenOverError):
        play(main())
    assert CoordinatorFiles(tmp_path).newest == 0


def test_figures_are_handed_out_once(tmp_path):
    async def main():
        one = coordinator(tmp_path)
        await one.report(Metrics(A, 1, 0, {"loss": 1.0}))
        first = await one.poll(0)
        await one.report(Metrics(A, 2, 0, {"loss": 2.0}))
        second = await one.poll(1)
        return first["rows"], second["rows"], one.state.ledger.rows

    first, second, kept = play(main())
    assert first == [{"client": A, "round": 1, "loss": 1.0}]
    assert second == kept == [{"client": A, "round": 2, "loss": 2.0}]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_nobody_begins_without_a_client_that_was_lost_while_it_prepared(tmp_path, mode):
    async def main():
        one = coordinator(tmp_path, federation__mode=mode)
        waiting = [asyncio.ensure_future(one.greet(Greeting(name, 0, 1, 1.0, 5, 1))) for name in (A, B)]
        assert await one.prepare(T, 0.5) is False
        assert (await one.poll(0))["preparing"] == {T: 0.5}
        await one.leave(T, "its process is gone")
        await asyncio.sleep(0.05)
        assert not any(future.done() for future in waiting)
        await one.greet(Greeting(T, 0, 2, 4.0, 5, 1))
        return await asyncio.gather(*waiting), await one.poll(0)

    replies, progress = play(main())
    assert [sigma for sigma, _ in replies] == [1.0, 1.0]
    assert progress["preparing"] == {}
    assert progress["failures"] == [f"{T} left before round 1: its process is gone"]


def test_who_waits_to_begin_is_let_go_when_the_run_stops(tmp_path):
    async def main():
        one = coordinator(tmp_path)
        waiting = asyncio.ensure_future(one.greet(Greeting(A, 0, 1, 1.0, 5, 1)))
        await asyncio.sleep(0.05)
        await one.stop()
        late = await one.greet(Greeting(B, 0, 1, 1.0, 5, 1))
        return await waiting, late, await one.prepare(T, 0.5)

    waiting, late, asked = play(main())
    assert waiting[1].stop
    assert late[1].stop
    assert asked
