"""What one client sends, and when: the part of the protocol that everybody can tell from the configuration alone."""

from __future__ import annotations

from dataclasses import dataclass

from fedrf.config.participation import Membership, membership, reaches_nobody
from fedrf.config.presets import ALIGNING, TARGET_TRAINS
from fedrf.config.schema import PER_SAMPLE, Config


def members_of(config: Config, sources: tuple[str, ...], number: int) -> Membership:
    """Return whose messages pass in round t; the last W and C of a run are sent until they arrive."""
    federation, rounds = config.federation, config.train.rounds
    last = {"aligner": rounds, "classifier": rounds - rounds % (classifier_interval(config) or 1)}
    last["aligner"] = last["classifier"] if federation.together else rounds
    certain = frozenset(kind for kind, round_number in last.items() if round_number == number)
    return membership(
        sources, federation.participants, federation.messages, config.seed, number, federation.drop, certain
    )


def classifier_interval(config: Config) -> int | None:
    """T_C in rounds, or None for never; where everything is averaged together, at the latest after the last round."""
    interval, rounds = config.federation.classifier_interval, config.train.rounds
    if isinstance(interval, str):
        return rounds if interval == "last" else None
    return min(interval, rounds) if config.federation.together else interval


@dataclass(frozen=True)
class Schedule:
    """The messages of one client, round by round (rounds count from 1)."""

    config: Config
    name: str
    sources: tuple[str, ...]
    target: str

    @property
    def is_target(self) -> bool:
        """Whether this is the client without labels."""
        return self.name == self.target

    @property
    def uses_embeddings(self) -> bool:
        """Whether Σℓ is exchanged at all."""
        return not self.config.federation.messages.startswith("none/")

    @property
    def trains(self) -> bool:
        """Whether the client takes gradient steps in the rounds; sources always do."""
        return bool(self.trained)

    @property
    def trained(self) -> tuple[str, ...]:
        """The parts that the client trains in the rounds, and sends."""
        config = self.config
        aligns = self.uses_embeddings and config.align.step == "gradient" and config.method in ALIGNING
        if not self.is_target:
            parts: tuple[str, ...] = ("aligner", "classifier", "extractor")
        elif config.method in TARGET_TRAINS:
            parts = TARGET_TRAINS[config.method]
        else:
            parts = ("aligner", "extractor") if aligns or config.adapt.when == "joint" else ()
        return tuple(kind for kind in parts if kind != "extractor" or config.model.sharing != "frozen")

    @property
    def learns_extractor(self) -> bool:
        """Whether the client trains its own part of G in the rounds."""
        return "extractor" in self.trained

    def members(self, number: int) -> Membership:
        """Return whose messages pass in round t."""
        return members_of(self.config, self.sources, number)

    def sends_embedding(self, number: int) -> bool:
        """Tell whether the client sends Σℓ in round t; the target does if anybody could use it."""
        chosen = self.members(number).mean_embedding
        return bool(chosen) if self.is_target else self.name in chosen

    def parts_after(self, number: int) -> tuple[str, ...]:
        """Return the parts that are sent after the step of round t: W, C and G every T_W, T_C and T_G rounds."""
        if number < 1:
            return ()
        members = self.members(number)
        is_member = {
            "aligner": self.is_target or self.name in members.aligner,
            "classifier": self.is_target or self.name in members.classifier,
        }
        is_member["extractor"] = is_member["aligner"]
        is_due = {
            "aligner": self._moves_aligner(number),
            "classifier": self._moves_classifier(number) and self.config.federation.prediction == "average",
            "extractor": self.moves_extractor(number),
        }
        return tuple(kind for kind in is_due if kind in self.trained and is_due[kind] and is_member[kind])

    def _moves_classifier(self, number: int) -> bool:
        interval = classifier_interval(self.config)
        return interval is not None and number % interval == 0

    def _moves_aligner(self, number: int) -> bool:
        is_last = number == self.config.train.rounds and not self.config.federation.together
        return is_last or self._is_due(self.config.federation.aligner_interval, number)

    def _is_due(self, interval: int, number: int) -> bool:
        """Tell whether W or G is averaged after round t: at its own interval, or with C."""
        return self._moves_classifier(number) if self.config.federation.together else number % interval == 0

    def moves_extractor(self, number: int) -> bool:
        """Tell whether extractors are averaged between round t and the next."""
        model = self.config.model
        return number >= 1 and model.sharing == "averaged" and self._is_due(model.extractor_interval, number)

    def settles_first(self, number: int) -> bool:
        """Tell whether the averages after round t must be there before the next can begin: its messages need them."""
        needs_network = self.uses_embeddings and self.config.align.message in PER_SAMPLE
        moves = self._moves_aligner(number) or self._moves_classifier(number)
        return number >= 1 and (self.moves_extractor(number) or (needs_network and moves))

    @property
    def ballot(self) -> tuple[str, ...]:
        """What a source sends once at the end, for a vote: C, and its whole network if W was never shared."""
        if self.config.federation.prediction != "vote":
            return ()
        alone = reaches_nobody(self.config.federation.messages)[1]
        learned = ("extractor",) if self.config.model.sharing != "frozen" else ()
        return ("classifier", "aligner", *learned) if alone else ("classifier",)
