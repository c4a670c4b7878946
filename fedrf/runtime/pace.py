"""How fast simulated clients compute and communicate, and when they are online: drawn from the seed."""

from __future__ import annotations

import math

import numpy as np

from fedrf.config.schema import SimulationConfig

CLIENTS, ROUNDS, SLOW, ONLINE = 0x51A0, 0x51A1, 0x51A2, 0x51A3  # what is drawn
BITS_PER_BYTE, MEGA = 8, 1e6


class Pace:
    """The times of one client.

    Parameters
    ----------
    settings
        The distributions.
    seed
        The seed of the run.
    position
        The position of the client among all clients, of which the target is the last.
    num_sources
        The number of sources.

    Attributes
    ----------
    seconds
        Median of the computing time of a round.
    latency
        Seconds before the first byte arrives.
    upload, download
        Seconds that a byte takes.
    """

    def __init__(self, settings: SimulationConfig, seed: int, position: int, num_sources: int) -> None:
        self._settings, self._seed, self._position = settings, seed, position
        speed, latency, upload, download = np.random.RandomState([seed, position, CLIENTS]).randn(4).tolist()
        slowness = settings.slow_factor if position in slow_sources(settings, seed, num_sources) else 1.0
        self.seconds = settings.seconds * slowness * math.exp(settings.spread * speed)
        self.latency = settings.latency * math.exp(settings.network_spread * latency)
        self.upload = BITS_PER_BYTE / (MEGA * settings.upload) * math.exp(settings.network_spread * upload)
        self.download = BITS_PER_BYTE / (MEGA * settings.download) * math.exp(settings.network_spread * download)
        self._online = _Online(settings, np.random.RandomState([seed, position, ONLINE]))

    def computing(self, number: int) -> float:
        """Return the computing time of a round, or of a step after the rounds."""
        jitter = float(np.random.RandomState([self._seed, self._position, number, ROUNDS]).randn())
        return self.seconds * math.exp(self._settings.jitter * jitter)

    def sent(self, start: float, computing: float, nbytes: int) -> float:
        """Return when a message arrives whose client has begun to compute at `start`."""
        return self._online.after(start, computing + self.latency + nbytes * self.upload)

    def received(self, start: float, nbytes: int) -> float:
        """Return when an answer arrives that was sent at `start`."""
        return self._online.after(start, self.latency + nbytes * self.download)


def slow_sources(settings: SimulationConfig, seed: int, num_sources: int) -> set[int]:
    """Return the positions of the sources that `slow_factor` slows down."""
    order = np.random.RandomState([seed, SLOW]).permutation(num_sources)
    return {int(position) for position in order[: round(settings.slow_share * num_sources)]}


class _Online:
    """The intervals in which a client is online; the lengths of these and of the gaps are exponential."""

    def __init__(self, settings: SimulationConfig, random: np.random.RandomState) -> None:
        self._random, self._online = random, settings.availability * settings.cycle
        self._offline = settings.cycle - self._online
        self._begin, self._end = 0.0, math.inf
        if self._offline:  # begins offline as often as it is offline later
            self._begin = self._gap() if random.rand() >= settings.availability else 0.0
            self._end = self._begin + random.exponential(self._online)

    def _gap(self) -> float:
        return float(self._random.exponential(self._offline))

    def after(self, start: float, seconds: float) -> float:
        """Return when the client has been online for so many seconds since `start`, which never decreases."""
        while (begin := max(start, self._begin)) + seconds > self._end:
            seconds -= max(0.0, self._end - begin)
            self._begin = self._end + self._gap()
            self._end = self._begin + self._random.exponential(self._online)
        return begin + seconds
