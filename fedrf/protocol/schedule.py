"""Which messages one client sends, and when: all that follows from the configuration alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fedrf.config.participation import Participants, is_empty, participants, senders
from fedrf.config.registry import METHODS
from fedrf.config.schema import Config
from fedrf.protocol.attendance import Attendance


def participants_of(config: Config, sources: tuple[str, ...], number: int) -> Participants:
    """Return whose messages are used in round t; the last W and C of a run are never lost."""
    federation, rounds = config.federation, config.train.rounds
    last_classifier = rounds - rounds % (classifier_interval(config) or 1)
    last = {"aligner": last_classifier if federation.together else rounds, "classifier": last_classifier}
    certain = frozenset(kind for kind, round_number in last.items() if round_number == number)
    return participants(
        sources, federation.participants, senders(federation), config.seed, number, federation.drop, certain
    )


def statistics_senders(config: Config, sources: tuple[str, ...]) -> frozenset[str]:
    """Return the sources whose additive statistics are not lost; if all would be lost, none is."""
    number, drop = config.train.rounds + 1, config.federation.drop
    arrived = participants(sources, "all", ("all", "all", "all"), config.seed, number, drop).classifier
    return arrived or frozenset(sources)


def all_save_after(phase: str, config: Config, stopping: bool) -> bool:
    """Tell whether all clients save after a phase: what was sent in it is not sent again after a crash.

    Clients that are asked to stop have not set W and C yet, and send their statistics again after a resume.
    """
    if config.align.statistics == "none":
        return phase == "final"
    return phase == "statistics" and not stopping


def classifier_interval(config: Config) -> int | None:
    """Return T_C in rounds, or None for never; if all parts are averaged together, at most the number of rounds."""
    interval, rounds = config.federation.classifier_interval, config.train.rounds
    if isinstance(interval, str):
        return rounds if interval == "last" else None
    return min(interval, rounds) if config.federation.together else interval


@dataclass(frozen=True)
class Schedule:
    """The messages of one client in each round. Rounds count from 1."""

    config: Config
    name: str
    sources: tuple[str, ...]
    target: str

    @property
    def is_target(self) -> bool:
        """Whether this is the client without labels."""
        return self.name == self.target

    @property
    def num_peers(self) -> int:
        """Number of clients whose messages arrive here: all sources, or the target."""
        return len(self.sources) if self.is_target else 1

    @cached_property
    def attendance(self) -> Attendance:
        """Who takes part in which round."""
        return Attendance(self.config, self.sources, self.target)

    def takes_part(self, number: int) -> bool:
        """Tell whether the client does its step of round t."""
        return self.attendance.takes_part(self.name, number)

    def joins(self, number: int) -> bool:
        """Tell whether the client takes part in round t and not in the one before."""
        return self.attendance.joins(self.name, number)

    def next_round(self, after: int) -> int:
        """Return the next round in which the client calls the coordinator."""
        return self.attendance.next_round(self.name, after)

    @property
    def compares(self) -> bool:
        """Whether clients send messages that their peers compare with their own, such as Σℓ."""
        return self.config.federation.embeddings_from != "none"

    @cached_property
    def trained(self) -> tuple[str, ...]:
        """The parts that the client trains in the rounds, and sends."""
        is_frozen = self.config.model.sharing == "frozen"
        if self.is_target:
            parts = METHODS.find(self.config.method).parts_trained_by_target(self.config)
        else:
            parts = ("aligner", "classifier", "extractor")
        return tuple(part for part in parts if part != "extractor" or not is_frozen)

    @property
    def learns_extractor(self) -> bool:
        """Whether the client trains its own part of G in the rounds."""
        return "extractor" in self.trained

    def participants(self, number: int) -> Participants:
        """Return whose messages are used in round t."""
        return participants_of(self.config, self.sources, number)

    def sends_embedding(self, number: int) -> bool:
        """Tell whether the client sends Σℓ in round t; the target does if any source takes part."""
        chosen = self.participants(number).mean_embedding
        return bool(chosen) if self.is_target else self.name in chosen

    def parts_after(self, number: int) -> tuple[str, ...]:
        """Return the parts that are sent after the step of round t: W, C and G every T_W, T_C and T_G rounds."""
        if number < 1:
            return ()
        chosen = self.participants(number)
        takes_part = {
            "aligner": self.is_target or self.name in chosen.aligner,
            "classifier": self.is_target or self.name in chosen.classifier,
        }
        takes_part["extractor"] = takes_part["aligner"]
        is_due = {
            "aligner": self._averages_aligner(number),
            "classifier": self._averages_classifier(number) and self.config.federation.prediction == "average",
            "extractor": self.averages_extractor(number),
        }
        return tuple(part for part in is_due if part in self.trained and is_due[part] and takes_part[part])

    def averages_extractor(self, number: int) -> bool:
        """Tell whether extractors are averaged between round t and the next."""
        model = self.config.model
        return number >= 1 and model.sharing == "averaged" and self._is_due_or_last(model.extractor_interval, number)

    def averages_first(self, number: int) -> bool:
        """Tell whether averages after round t come before the next: its messages or its sample of sources need them."""
        needs_network = self.compares and METHODS.find(self.config.method).message.needs_aligner
        averages = self._averages_aligner(number) or self._averages_classifier(number)
        is_needed = self.averages_extractor(number) or (needs_network and averages) or self.attendance.is_sampled
        return number >= 1 and is_needed

    @property
    def takes_statistics(self) -> bool:
        """Whether W and C come from additive statistics that are sent after the last round."""
        return self.config.align.statistics != "none"

    @property
    def parts_for_vote(self) -> tuple[str, ...]:
        """What a source sends once at the end for a majority vote: C, and its whole network if W was never shared."""
        if self.config.federation.prediction != "vote":
            return ()
        learned = ("extractor",) if self.config.model.sharing != "frozen" else ()
        return ("classifier", "aligner", *learned) if is_empty(self.config.federation).aligner else ("classifier",)

    def _averages_classifier(self, number: int) -> bool:
        interval = classifier_interval(self.config)
        return interval is not None and number % interval == 0

    def _averages_aligner(self, number: int) -> bool:
        return self._is_due_or_last(self.config.federation.aligner_interval, number)

    def _is_due_or_last(self, interval: int, number: int) -> bool:
        """Tell whether W or G is averaged after round t: at its own interval and after the last round, or with C."""
        if self.config.federation.together:
            return self._averages_classifier(number)
        return number % interval == 0 or number == self.config.train.rounds
