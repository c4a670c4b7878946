"""The averages of one part as all clients receive them: numbered, and each coded as a change of the one before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fedrf.protocol.compression import Array, Code, Codec, Difference, rounded, size_of


@dataclass
class Published:
    """What the coordinator hands out of one part, if parts are compressed.

    Attributes
    ----------
    number
        The number of the newest average; they count from 1.
    arrays
        The newest average, and those that clients may still hold, by number.
    codes
        How an average differs from the one before, by number; the last ones.
    residual
        What rounding has left out of the newest average, and of those before.
    held
        The numbers of the averages that each client may hold.
    """

    number: int = 0
    arrays: dict[int, Array] = field(default_factory=dict)
    codes: dict[int, Code] = field(default_factory=dict)
    residual: Array | None = None
    held: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def publish(self, average: Array, codec: Codec, feeds_back: bool) -> Array:
        """Add an average and return it as clients get it.

        `feeds_back` says whether all parts in it were trained from the average before: then nothing else makes up for
        what rounding has left out of that. In an average of older parts, it is in the difference already.
        """
        before = self.arrays.get(self.number)
        self._forget_unused()
        self.number += 1
        if before is None:
            self.arrays[self.number] = average
            return average
        wanted = average - before
        if feeds_back and self.residual is not None:
            wanted += self.residual
        code, change = rounded(codec, wanted)
        self.residual = wanted - change
        self.codes[self.number] = code
        self.arrays[self.number] = before + change
        return self.arrays[self.number]

    def since(self, base: int) -> Array | Difference:
        """Return the newest average for a client that holds number `base`: the changes since, or all if that is less.

        0 stands for no average.
        """
        whole, numbers = self.arrays[self.number], range(base + 1, self.number + 1)
        if not 0 < base <= self.number or any(number not in self.codes for number in numbers):
            return whole
        changes = Difference(base, tuple(self.codes[number] for number in numbers))
        return changes if changes.nbytes < whole.nbytes else whole

    def is_held_by(self, clients: Iterable[str]) -> bool:
        """Tell whether clients have said last that they hold the newest average."""
        return all(self.held.get(client) == (self.number,) for client in clients)

    def note_held(self, client: str, base: int) -> None:
        """Note which average a client says that it holds; 0 for none."""
        self.held[client] = (base,)

    def note_sent(self, client: str) -> None:
        """Note that a client is sent the newest average."""
        self.held[client] = (*self.held.get(client, ()), self.number)

    def _forget_unused(self) -> None:
        """Keep arrays that a client may hold, and as many codes as are fewer bytes than a whole array."""
        used = {number for numbers in self.held.values() for number in numbers} | {self.number}
        self.arrays = {number: array for number, array in self.arrays.items() if number in used}
        size, room = 0, max((array.nbytes for array in self.arrays.values()), default=0)
        for number in sorted(self.codes, reverse=True):
            size += size_of(self.codes[number])
            if size > room:
                del self.codes[number]
