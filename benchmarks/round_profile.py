"""Where the time of a round goes: each step of the exchange, measured in all processes on the clock that they share.

Four sources and a target in actors of their own, sync mode, synthetic data, W of 0.8 MB in every round. "Waiting for
others' work" ends when the last client's messages have been read; all steps besides it and the client's own work are
overhead. `python -m benchmarks.round_profile --draw` also draws a round to ``docs/figures/round_profile.svg``.
"""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from threading import current_thread
from time import perf_counter
from typing import Any, NamedTuple

import benchmarks.round_profile as this  # Ray copies what a main module has
from benchmarks.rows import report
from benchmarks.synthetic import (
    CLIENTS,
    SOURCES,
    TARGET,
    SyntheticActor,
    SyntheticSession,
    finish,
    make_config,
    new_fence,
)
from fedrf.protocol.envelope import Envelope, Reply
from fedrf.runtime.ray import RayFederation
from fedrf.runtime.ray.actors import CoordinatorActor

SIZE, WARM_UP = "0.8 MB", 10
FIGURE = Path(__file__).parents[1] / "docs/figures/round_profile.svg"
WORK, WAIT = "own work: features, loss, step", "waiting for others' work"
STEPS = (
    WORK,
    "serialise",
    "send: copy into shared memory",
    "way to the coordinator",
    "read and check",
    WAIT,
    "aggregate",
    "put: aggregate into shared memory",
    "way back",
    "get: shared memory",
    "load",
)
COLOURS = (
    "#566072",
    "#7c3aed",
    "#2563eb",
    "#93c5fd",
    "#0891b2",
    "#e5e7eb",
    "#b45309",
    "#f59e0b",
    "#93c5fd",
    "#16a34a",
    "#86efac",
)


class Span(NamedTuple):
    """A piece of work of one process.

    Attributes
    ----------
    what
        The work.
    begin, end
        Seconds of the machine's monotonic clock.
    """

    what: str
    begin: float
    end: float


SPANS: list[Span] = []  # of this process
ARRIVALS: list[tuple[str, int, float]] = []  # at the coordinator: sender, round, and when its messages were read


def record(what: str, owner: Any, name: str) -> None:
    """Let a function or method of `owner` record its calls as spans."""
    function: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(function)
    def timed(*arguments: Any, **keys: Any) -> Any:
        begin = perf_counter()
        try:
            return function(*arguments, **keys)
        finally:
            if current_thread().name != "heartbeat":
                SPANS.append(Span(what, begin, perf_counter()))

    setattr(owner, name, timed)


class ProfiledCoordinator(CoordinatorActor):
    """A coordinator that records what it does."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        this.record("read and check", self.reception, "open")
        this.record("read and check", self.reception, "accept")
        this.record("aggregate", self.rounds._barrier, "_close")  # type: ignore[union-attr]
        this.record("put: aggregate into shared memory", self, "_share")

    async def _answer(self, envelope: Envelope) -> Reply:
        if envelope.phase == "round":
            this.ARRIVALS.append((envelope.sender, envelope.round, perf_counter()))
        return await super()._answer(envelope)

    async def spans(self) -> Any:
        """Return what was recorded."""
        return this.SPANS, this.ARRIVALS


class ProfiledActor(SyntheticActor):
    """A client that records what it does."""

    def run(self, *arguments: Any) -> None:
        """Run one client."""
        import fedrf.federation.channel as channel
        import fedrf.runtime.ray.actors as actors
        from fedrf.federation.module import FederatedModule

        this.SPANS.clear()
        this.record("serialise", channel, "pack_call")
        this.record("send: copy into shared memory", actors, "_submit")
        this.record("answer", actors, "_answer")
        this.record("get: shared memory", actors, "_with_arrays")
        this.record("load", FederatedModule, "load")
        this.record("exchange", channel.Channel, "exchange")
        this.record("step", FederatedModule, "training_step")
        super().run(*arguments)

    def spans(self) -> list[Span]:
        """Return what was recorded."""
        return this.SPANS


class ProfiledSession(SyntheticSession):
    """A session whose actors record what they do."""

    actor_class = ProfiledActor


class ProfiledFederation(RayFederation):
    """A federation whose coordinator records what it does."""

    coordinator_class = ProfiledCoordinator

    def close(self) -> None:
        """Keep what all processes recorded, and when messages arrived."""
        import ray

        self.spans = {name: ray.get(self._actor(name).spans.remote()) for name in CLIENTS}
        self.spans["coordinator"], self.arrivals = ray.get(self._coordinator.spans.remote())
        super().close()


def parts_of_rounds(
    spans: dict[str, list[Span]], arrivals: list[tuple[str, int, float]], client: str
) -> list[list[Span]]:
    """Return the steps of each round of a client with one exchange, in the order of time."""
    rounds = []
    for step in (span for span in spans[client] if span.what == "step"):
        own = [span for span in spans[client] if step.begin <= span.begin and span.end <= step.end]
        arrived = [moment for sender, _, moment in arrivals if sender == client and step.begin <= moment <= step.end]
        if sum(span.what == "exchange" for span in own) == 1:  # in some rounds, averages are exchanged first
            rounds.append(_parts(step, {span.what: span for span in own}, arrived[0], spans["coordinator"]))
    return rounds


def _parts(step: Span, own: dict[str, Span], arrival: float, coordinator: list[Span]) -> list[Span]:
    """Return the steps of one round from what the client and the coordinator recorded."""
    answer = own["answer"]
    reading = [span for span in coordinator if span.what == "read and check"]
    opened = max((span for span in reading if span.end <= arrival), key=lambda span: span.end)
    checked = min((span for span in reading if span.begin >= arrival), key=lambda span: span.begin)
    closed = min((s for s in coordinator if s.what == "aggregate" and s.end >= checked.end), key=lambda s: s.begin)
    puts = [s for s in coordinator if s.what.startswith("put") and closed.end <= s.begin <= answer.end]
    put = Span(STEPS[7], closed.end, closed.end + sum(span.end - span.begin for span in puts))
    sent, exchange, load = own[STEPS[2]], own["exchange"], own["load"]
    return [
        Span(WORK, step.begin, exchange.begin),
        own["serialise"],
        sent,
        Span(STEPS[3], sent.end, max(sent.end, opened.begin)),
        Span(STEPS[4], max(sent.end, opened.begin), checked.end),
        Span(WAIT, checked.end, max(checked.end, closed.begin)),
        closed,
        put,
        Span(STEPS[8], put.end, max(put.end, answer.end)),
        own[STEPS[9]],
        load,
        Span(WORK, load.end, step.end),
    ]


def draw(rounds: dict[str, list[Span]], path: Path) -> None:
    """Draw one round of all clients."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "fedrf"
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    first = min(spans[0].begin for spans in rounds.values())
    for row, spans in enumerate(rounds.values()):
        for what, begin, end in spans:
            axes.barh(row, 1000 * (end - begin), left=1000 * (begin - first), color=COLOURS[STEPS.index(what)])
    axes.set_yticks(range(len(rounds)), list(rounds))
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds")
    axes.spines[["top", "right"]].set_visible(False)
    handles = [axes.barh(0, 0, color=colour, label=name) for name, colour in zip(STEPS, COLOURS, strict=True)]
    figure.legend(handles=handles, loc="outside right center", fontsize=7, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Report the median time of each step of a source's round; draw one with ``--draw``."""
    with this.ProfiledSession() as session:
        federation = this.ProfiledFederation(
            session, make_config(SIZE, federation__mode="sync"), SOURCES, TARGET, new_fence(), None
        )
        finish(federation)
    rounds = {name: parts_of_rounds(federation.spans, federation.arrivals, name) for name in CLIENTS}
    times: dict[str, list[float]] = defaultdict(list)
    for name in SOURCES:
        for parts in rounds[name][WARM_UP:]:
            for what in STEPS:
                times[what].append(1000 * sum(span.end - span.begin for span in parts if span.what == what))
    for what in STEPS:
        report(f"a source's round: {what}", median(times[what]), "ms")
    overhead = [
        sum(values) for values in zip(*(times[what] for what in STEPS if what not in (WORK, WAIT)), strict=True)
    ]
    whole = [sum(values) for values in zip(*times.values(), strict=True)]
    report("a source's round: all steps besides work and waiting", median(overhead), "ms")
    report("a source's round: in all", median(whole), "ms")
    if "--draw" in sys.argv:
        lengths = [sum(span.end - span.begin for span in parts) for parts in rounds[SOURCES[0]]]
        middle = sorted(range(len(lengths)), key=lengths.__getitem__)[len(lengths) // 2]
        draw({name: rounds[name][middle] for name in CLIENTS}, FIGURE)


if __name__ == "__main__":
    main()
