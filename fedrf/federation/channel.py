"""A client's connection to the coordinator: one method for each call, with typed arguments and results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrf.federation.client_info import ClientInfo
from fedrf.federation.progress import Progress
from fedrf.protocol.envelope import Envelope, Reply
from fedrf.protocol.message import ArrayMessage, Message
from fedrf.protocol.messages import Greeting, Metrics, Product, Statistics
from fedrf.protocol.place import MAX_MEMORY, MAX_NAME
from fedrf.protocol.repeats import Repeats
from fedrf.protocol.wire import pack_call

if TYPE_CHECKING:
    from fedrf.federation.resting import ArrayStore
    from fedrf.federation.warm_start import WarmStartReply

Send = Callable[[bytes], Any]
WAITING_CALLS = ("greet", "warm_start", "exchange")  # whose answer can depend on other clients


class StoppedError(Exception):
    """The coordinator asked the client to stop before its first round."""


class Channel:
    """What a client sends goes through here.

    Parameters
    ----------
    info
        The client.
    send
        Sends a call to the coordinator and returns the answer.
    last_round
        T, the number of rounds.
    wait
        Sends a call whose answer can depend on other clients, and returns the answer; default `send`.
    store
        Where the client keeps arrays while it skips rounds; None: in its memory.

    Attributes
    ----------
    progress
        How far the client is, kept up to date with every reply.
    waited
        Seconds in which the client waited for replies.
    """

    def __init__(
        self,
        info: ClientInfo,
        send: Send,
        last_round: int,
        wait: Send | None = None,
        store: ArrayStore | None = None,
    ) -> None:
        self.info, self._send, self.last_round, self._wait = info, send, last_round, wait or send
        self.store = store
        self.progress = Progress()
        self.waited = 0.0
        self._sent, self._received = Repeats(), Repeats()

    def _call(self, name: str, *arguments: Any) -> Any:
        send = self._wait if name in WAITING_CALLS else self._send
        return send(pack_call(name, self.info.name, self.info.attempt, *arguments))

    def now(self) -> float:
        """Return the time in seconds, since any moment."""
        return time.perf_counter()

    def begin(self, number: int, delay: float = 0.0) -> None:
        """Begin round `number`, or a step of adaptation after the rounds, with a delay in seconds."""
        time.sleep(delay)

    def moment(self) -> dict[str, float]:
        """Return figures that say when others are reported; there are some where time is simulated."""
        return {}

    def beat(self) -> None:
        """Show that the client is alive; raise `SupersededError` if another process has replaced this one."""
        self._call("beat")

    def beat_for(self, attempts: dict[str, int]) -> None:
        """Show that clients of this process are alive; this client is one of them."""
        self._call("beat_for", attempts)

    def place(self, node: str, device: str, model: str, memory: int) -> None:
        """Tell where the client runs."""
        self._call("place", node[:MAX_NAME], device, model[:MAX_NAME], min(memory, MAX_MEMORY))

    def note(self, text: str) -> None:
        """Send a note for the summary."""
        self._call("note", text)

    def report_preparation(self, done: int, total: int) -> None:
        """Report how many samples are prepared."""
        if self._call("prepare", done / total):
            raise StoppedError

    def count_samples(self, nbytes: int) -> None:
        """Report the size of samples that were moved here, for references that pool data."""
        self._call("count_samples", nbytes)

    def greet(
        self, width: float, count: int, *, features: int, extractor: int, auxiliary: int = 0
    ) -> tuple[float, Reply]:
        """Greet, wait for all clients, and return σ and the current model, if there is one."""
        info = self.info
        greeting = Greeting(info.name, 0, info.attempt, width, extractor, count, features, auxiliary)
        answer: tuple[float, Reply] = self._call("greet", greeting)
        if answer[1].stop:
            raise StoppedError
        return answer

    def warm_start(self, step: int, kind: type[Statistics] | type[Product], values: Any, count: int) -> WarmStartReply:
        """Send this client's part of one step of the warm start."""
        message = kind(self.info.name, 0, self.info.attempt, values, count)
        reply: WarmStartReply = self._call("warm_start", step, message)
        return reply

    def message(self, kind: type[ArrayMessage], values: Tensor, number: int) -> ArrayMessage:
        """Return a message of round `number` with a copy of the values."""
        # A copy: NumPy would share memory with weights that go on changing.
        array = values.detach().to("cpu", torch.float32).numpy().copy()
        return kind(self.info.name, number, self.info.attempt, array)

    def exchange(self, phase: str, number: int, messages: Sequence[Message]) -> Reply:
        """Send messages, with the figures that are due, and return the reply."""
        info, progress = self.info, self.progress
        if progress.figures:
            messages = [*messages, Metrics(info.name, number, info.attempt, progress.figures)]
            progress.figures = {}
        shortened = tuple(self._sent.shorten(message) if _may_repeat(message) else message for message in messages)
        envelope = Envelope(
            info.name, number, info.attempt, phase, shortened, progress.model_version, dict(progress.held)
        )
        began = self.now()
        reply: Reply = self._call("exchange", envelope)
        self.waited += self.now() - began
        if reply.refused:
            self._sent.forget()
        reply = replace(reply, embeddings=tuple(self._received.restore(message) for message in reply.embeddings))
        progress.round = max(progress.round, min(reply.round, self.last_round))
        progress.checkpoint_version = max(progress.checkpoint_version, reply.checkpoint_version)
        progress.stopped = progress.stopped or reply.stop
        return reply

    def report(self, figures: dict[str, float]) -> None:
        """Send figures outside of a round."""
        if figures:
            info, number = self.info, min(self.progress.round, self.last_round)
            metrics = Metrics(info.name, number, info.attempt, figures | self.moment())
            self.progress.stopped |= self._call("report", metrics)

    def saved(self, version: int) -> int:
        """Report that a checkpoint version is saved; return the oldest that must be kept."""
        oldest: int = self._call("saved", version)
        return oldest

    def upload(self, name: str, start: int, size: int, digest: str, piece: NDArray[np.uint8]) -> None:
        """Send a piece of a file, from byte `start` on."""
        self._call("upload", name, start, size, digest, piece)

    def download(self, name: str, start: int) -> tuple[int, bytes]:
        """Return the size of a file and a piece of it, from byte `start` on."""
        answer: tuple[int, bytes] = self._call("download", name, start)
        return answer

    def finish(self) -> None:
        """Report that the client has ended."""
        self._call("finish")


def _may_repeat(message: Message) -> TypeGuard[ArrayMessage]:
    return isinstance(message, ArrayMessage) and message.may_repeat
