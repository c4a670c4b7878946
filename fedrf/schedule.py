"""What one client sends, and when: the part of the protocol that everybody can tell from the configuration alone."""

from __future__ import annotations

from dataclasses import dataclass

from fedrf.config import Config
from fedrf.membership import Membership, membership, reaches_nobody


def members_of(config: Config, sources: tuple[str, ...], number: int) -> Membership:
    """Return whose messages pass in round t; the last W and C of a run are sent until they arrive."""
    federation, rounds, interval = config.federation, config.train.rounds, config.federation.classifier_interval
    last = {"aligner": rounds, "classifier": rounds - (0 if interval == "never" else rounds % interval)}
    certain = frozenset(kind for kind, round_number in last.items() if round_number == number)
    return membership(
        sources, federation.participants, federation.messages, config.seed, number, federation.drop, certain
    )


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
        aligns = self.uses_embeddings and self.config.align.step == "gradient"
        return not self.is_target or aligns or self.config.adapt.when == "joint"

    @property
    def learns_extractor(self) -> bool:
        """Whether the client trains its own part of G in the rounds."""
        return self.trains and self.config.model.sharing != "frozen"

    def members(self, number: int) -> Membership:
        """Return whose messages pass in round t."""
        return members_of(self.config, self.sources, number)

    def sends_embedding(self, number: int) -> bool:
        """Tell whether the client sends Σℓ in round t; the target does if anybody could use it."""
        chosen = self.members(number).mean_embedding
        return bool(chosen) if self.is_target else self.name in chosen

    def parts_after(self, number: int) -> tuple[str, ...]:
        """Return the parts that are sent after the step of round t: W, C every T_C and G every T_G rounds."""
        if number < 1:
            return ()
        members, federation = self.members(number), self.config.federation
        sends_aligner = self.trains if self.is_target else self.name in members.aligner
        interval = federation.classifier_interval
        sends_classifier = (
            self.name in members.classifier
            and federation.prediction == "average"
            and interval != "never"
            and number % interval == 0
        )
        sends_extractor = sends_aligner and self.moves_extractor(number)
        due = {"aligner": sends_aligner, "classifier": sends_classifier, "extractor": sends_extractor}
        return tuple(kind for kind, is_due in due.items() if is_due)

    def moves_extractor(self, number: int) -> bool:
        """Tell whether extractors are averaged between round t and the next, so that Σℓ must wait for it."""
        model = self.config.model
        return number >= 1 and model.sharing == "averaged" and number % model.extractor_interval == 0

    @property
    def ballot(self) -> tuple[str, ...]:
        """What a source sends once at the end, for a vote: C, and its whole network if W was never shared."""
        if self.config.federation.prediction != "vote":
            return ()
        alone = reaches_nobody(self.config.federation.messages)[1]
        learned = ("extractor",) if self.config.model.sharing != "frozen" else ()
        return ("classifier", "aligner", *learned) if alone else ("classifier",)
