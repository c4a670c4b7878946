"""What the coordinator does before round 1: clients greet, agree on σ and sizes, and may warm-start W together."""

from __future__ import annotations

from collections.abc import Callable
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


class Startup:
    """Greetings and warm start of one run.

    Attributes
    ----------
    rounds_began
        When the last client greeted.
    """

    def __init__(self, config: Config, roster: Roster, state: State, now: Callable[[], float]) -> None:
        self.config, self.roster, self.state, self._now = config, roster, state, now
        self.rounds_began = now()
        # No deadlines: clients may take as long as they show signs of life, and the driver restarts those that do not.
        self._greetings = Barrier(lambda key: set(roster.clients), self._agree)
        self._warm_starts = Barrier(lambda key: set(roster.clients), self._advance)
        self._warm_start: WarmStart
        self._basis_shape: tuple[int, ...]

    async def greet(self, greeting: Greeting) -> bool:
        """Wait until all clients have greeted; tell whether the rounds can begin."""
        self.state.aggregate.counts[greeting.sender] = greeting.count
        if not self.roster.begun and not self.roster.stopping:
            await self._greetings.wait((0,), greeting.sender, greeting)
        return self.roster.begun

    @property
    def needs_all(self) -> bool:
        """Whether the warm start has begun and not ended."""
        return self.config.align.warm_start != "none" and "aligner" not in self.state.aggregate.current

    async def warm_start(self, step: int, message: Statistics | Product) -> WarmStartReply:
        """Solve for W together; a bad message here ends the run."""
        if step:
            expected = self._basis_shape
        else:
            expected = type(message).shape(self.state.sizes) or ()
            expected = expected[:1] if isinstance(message, Product) else expected
        if message.values.shape != expected:
            raise BadMessageError(f"{message.kind} of {message.sender} must have shape {expected}")
        reply: WarmStartReply = await self._warm_starts.wait((step,), message.sender, message)
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
        sigma, self.roster.begun, self.rounds_began = self.config.model.sigma, True, self._now()
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
            self.state.received = {name: dict(self.state.aggregate.changes) for name in self.roster.sources}
            self.state.informative_gamma = self._warm_start.informative_gamma
        return reply
