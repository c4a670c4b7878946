"""Which clients call the coordinator in which round, if a sample of the sources takes part in each.

With `federation.participants=8`, the 8 sources in S_t take part in round t. They send their parts in the phase `commit`
of round t + 1, in which the sources of the next sample receive the averages that are newer than those they have. All
other sources skip the round: they compute nothing and send nothing. The target takes part in every round, and all
clients take part in what follows the last round.
"""

from __future__ import annotations

from fedrf.config.participation import sample
from fedrf.config.schema import Config


class Attendance:
    """Who takes part in each round. Rounds count from 1.

    Parameters
    ----------
    config
        The configuration.
    sources, target
        All clients.

    Attributes
    ----------
    is_sampled
        Whether sources skip rounds.
    """

    def __init__(self, config: Config, sources: tuple[str, ...], target: str) -> None:
        self._seed, self._rounds, size = config.seed, config.train.rounds, config.federation.participants
        self._size = size if isinstance(size, int) else len(sources)
        self.is_sampled = isinstance(size, int)
        self._sources, self._clients = sources, frozenset((*sources, target))
        self._target, self._positions = target, {name: position for position, name in enumerate(sources)}

    def takes_part(self, name: str, number: int) -> bool:
        """Tell whether a client does its step of round t, or what follows the last round."""
        if not self.is_sampled or name == self._target or number > self._rounds:
            return True
        return number > 0 and self._positions[name] in self._sample(number)

    def joins(self, name: str, number: int) -> bool:
        """Tell whether a client takes part in round t and not in the one before."""
        return self.takes_part(name, number) and not self.takes_part(name, number - 1)

    def next_round(self, name: str, after: int) -> int:
        """Return the next round in which a client calls: it takes part, or sends the parts of the round before."""
        number = after + 1
        while not (self.takes_part(name, number) or self.takes_part(name, number - 1)):
            number += 1
        return number

    def expected(self, number: int, phase: str) -> frozenset[str]:
        """Return the clients that call in a phase of round t."""
        if not self.is_sampled or number > self._rounds:
            return self._clients
        positions = self._sample(number)
        if phase == "commit" and number > 1:
            positions |= self._sample(number - 1)
        return frozenset((self._target, *(self._sources[position] for position in positions)))

    def _sample(self, number: int) -> frozenset[int]:
        return sample(len(self._sources), self._size, self._seed, number)
