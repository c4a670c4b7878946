"""What the coordinator does before round 1: clients greet, agree on σ and sizes, and may warm-start W together."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import TYPE_CHECKING, Any

from fedrf.config.registry import METHODS
from fedrf.config.schema import Config
from fedrf.federation.barrier import Barrier, Key
from fedrf.federation.roster import Roster
from fedrf.federation.state import State
from fedrf.protocol.message import BadMessageError
from fedrf.protocol.messages import Greeting, Product, Statistics

if TYPE_CHECKING:
    from fedrf.federation.warm_start import WarmStart, WarmStartReply

Leave = Callable[[str, str], Awaitable[None]]


class Startup:
    """Greetings and warm start of one run.

    Attributes
    ----------
    rounds_began
        When the last client greeted, on the monotonic clock.
    """

    def __init__(self, config: Config, roster: Roster, state: State, leave: Leave) -> None:
        self.config, self.roster, self.state = config, roster, state
        self.rounds_began = time.monotonic()
        self._greetings = Barrier(roster.expected, self._agree, leave)
        self._warm_starts = Barrier(roster.expected, self._advance, leave)
        self._warm_start: WarmStart
        self._basis_shape: tuple[int, ...]

    async def greet(self, greeting: Greeting) -> bool:
        """Wait until all clients have greeted; tell whether the rounds can begin."""
        self.state.aggregate.counts[greeting.sender] = greeting.count
        if not self.roster.begun and not self.roster.stopping:
            # No deadline: imports and loading take as long as they take, and the driver notices when a client dies.
            await self._greetings.wait((0,), greeting.sender, greeting, None)
        return self.roster.begun

    async def warm_start(self, step: int, message: Statistics | Product) -> WarmStartReply:
        """Solve for W together; a bad message here ends the run."""
        if step and message.values.shape != self._basis_shape:
            raise BadMessageError(f"product of {message.sender} must have shape {self._basis_shape}")
        deadline = self.config.federation.deadline
        reply: WarmStartReply = await self._warm_starts.wait((step,), message.sender, message, deadline)
        self.state.ledger.count_bytes("down", "aligner" if reply.done else "product", reply.values.nbytes)
        return reply

    def recheck(self) -> None:
        """Check again whether all expected clients have arrived."""
        self._greetings.recheck()
        self._warm_starts.recheck()

    def release(self) -> None:
        """End the calls of clients that wait for others to greet."""
        self._greetings.release()

    def _agree(self, key: Key, greetings: dict[str, Greeting]) -> None:
        """Take the median of the clients' widths for σ, unless it is given, and agree on sizes."""
        sigma, self.roster.begun, self.rounds_began = self.config.model.sigma, True, time.monotonic()
        if self.state.sigma is None:
            widths = (greeting.width for greeting in greetings.values())
            self.state.sigma = median(widths) if sigma == "median" else sigma
            for kind, number in METHODS.find(self.config.method).message_of(is_target=False).setup_bytes.items():
                for direction in ("up", "down"):
                    self.state.ledger.count_bytes(direction, kind, len(self.roster.sources) * number)
        self.state.sizes = self.state.sizes.agreed(greetings.values())

    def _advance(self, key: Key, messages: dict[str, Any]) -> WarmStartReply:
        """Do one step of the warm start with the messages of all clients."""
        # Imported here: a coordinator without a warm start starts seconds sooner without torch.
        from fedrf.federation.warm_start import WarmStart

        (step,) = key
        if messages.keys() != set(self.roster.clients):
            raise ValueError(f"the warm start needs all clients; only {', '.join(sorted(messages))} took part")
        in_order = {name: messages[name] for name in self.roster.clients}
        if step == 0:
            self._warm_start = WarmStart(self.config, self.roster.target)
            is_whole = self.config.align.warm_start == "statistics"
            reply = self._warm_start.solve(in_order) if is_whole else self._warm_start.begin(in_order)
        else:
            reply = self._warm_start.advance(in_order, step)
        self._basis_shape = reply.values.shape
        if reply.done:
            self.state.aggregate.start_from(reply.values)
            self.state.informative_gamma = self._warm_start.informative_gamma
        return reply
