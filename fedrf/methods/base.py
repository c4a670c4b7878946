"""What a method is: the settings, networks, losses and messages that differ from one method to the other.

Everything that defines a method is in its class; no other package has a table of methods. A class can be read without
PyTorch, which its functions import through `fedrf.methods.lazy_torch`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fedrf.methods.lazy_torch import functional, nn, torch
from fedrf.protocol.message import ArrayMessage
from fedrf.protocol.messages import Features, MeanEmbedding, Moments

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fedrf.config.schema import Config
    from fedrf.federation.module import FederatedModule
    from fedrf.models.network import Batch, DomainModel

Losses = dict[str, "Tensor"]
Models = Mapping[str, Mapping[str, "Tensor"]]
Distance = Callable[["Tensor", "Tensor"], "Tensor"]

TRAINABLE_PARTS = ("aligner", "classifier", "extractor")
POOLING = ("none", "sources", "all", "oracle")
# Factors of `train.lr` for plain gradient steps, by part. Inputs of C are long and its labels at the target are
# guesses, so that steps as long as the others' would follow the first, bad guesses.
PLAIN_STEPS: Mapping[str, float] = {"aligner": 100, "extractor": 100, "classifier": 10}


@dataclass(frozen=True)
class Inbox:
    """What a loss may use besides the client's own batch.

    Attributes
    ----------
    own
        What the client sends to its peers in this round, with its gradient: Σℓ, or what `Method.message` says.
    peers
        What the peers sent, as constants.
    positions
        The position of each peer among the sources, or 0 for the target. Messages may be missing.
    models
        At the target, if `Method.shows_sources`: the parts of every source, by its name.
    is_target
        Whether the client is the target.
    """

    own: Tensor
    peers: tuple[Tensor, ...] = ()
    positions: tuple[int, ...] = ()
    models: Models = field(default_factory=dict)
    is_target: bool = False


class Method:
    """Base class of all methods.

    Attributes
    ----------
    name
        What run directories and records call it; default the name of the class.
    summary
        One line for `fedrf methods`.
    settings
        Defaults of configuration keys that differ from those of `fedrf.config.schema`.
    target_trains
        The parts that the target trains in the rounds and sends: `TRAINABLE_PARTS` or some of them, or none. Required.
    target_steps
        Factors of `train.lr` for plain gradient steps at the target, by part. None: `train.optimizer`, as at the
        sources. Adam rescales the gradient of a loss without labels to full-size steps, whatever the loss's weight.
    message
        The class of the message that clients compare in a round, whose values `own_message` computes: `MeanEmbedding`
        (Σℓ, see `align.message`), or another class of `fedrf.protocol.messages`, or a custom one.
    source_message
        The class of the message that sources send, if it differs.
    normalizes
        Whether aligned features are standardised, at each client with its own statistics.
    shares_auxiliary
        Whether the auxiliary networks are averaged together with W; otherwise they stay at their clients.
    balances_auxiliary
        Whether the target counts as much as all sources together in these averages.
    shows_sources
        Whether the target receives the parts of every source besides their average. Needs `federation.mode=sync`.
    weighs_sources
        Whether `weigh_sources` says how much each source counts, for `federation.aggregation=chosen`.
    takes_statistics
        Whether W and C can come from additive statistics of the sources (`align.statistics`).
    asynchronous
        Whether the method can run in `federation.mode=async`.
    pooling
        For references that are not federated: one client has the samples of all sources (`sources`), those of the
        target too, without labels (`all`), or half of the target's with their labels (`oracle`).
    is_reference
        Whether comparisons show the method if no methods are named.
    is_baseline
        Whether comparisons report tasks on which another method is worse than this one.
    ingredients
        Settings that switch the ingredients of the method off, one each, for ablations.
    bytes_per_round
        What is sent in a round, in bytes, as a formula that a test evaluates. K sources; G, W, C and D are the numbers
        of values in extractor, aligner, classifier and auxiliary network, S = 2N those in Σℓ, m those in an aligned
        sample; B samples are in a batch; P bytes are in a ciphertext; C is averaged every T rounds, W every
        A and G every E; Σℓ of all samples changes every F at a client that trains its extractor.
    bytes_once
        What is sent besides, once in a run. L classes; R components of the second moments (`align.rank`).
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    settings: ClassVar[Mapping[str, Any]] = {}
    target_trains: ClassVar[tuple[str, ...]]
    target_steps: ClassVar[Mapping[str, float] | None] = None
    message: ClassVar[type[ArrayMessage]] = MeanEmbedding
    source_message: ClassVar[type[ArrayMessage] | None] = None
    normalizes: ClassVar[bool] = False
    shares_auxiliary: ClassVar[bool] = False
    balances_auxiliary: ClassVar[bool] = False
    shows_sources: ClassVar[bool] = False
    weighs_sources: ClassVar[bool] = False
    takes_statistics: ClassVar[bool] = False
    asynchronous: ClassVar[bool] = True
    pooling: ClassVar[Literal["none", "sources", "all", "oracle"]] = "none"
    is_reference: ClassVar[bool] = False
    is_baseline: ClassVar[bool] = False
    ingredients: ClassVar[Mapping[str, Any]] = {}
    bytes_per_round: ClassVar[str | None] = None
    bytes_once: ClassVar[str] = "0"

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            cls.name = cls.__name__

    def parts_trained_by_target(self, config: Config) -> tuple[str, ...]:
        """Return the parts that the target trains in the rounds with this configuration."""
        return self.target_trains or (("aligner", "extractor") if config.adapt.when == "joint" else ())

    def rate_factor(self, number: int, rounds: int) -> float:
        """Return the factor of all learning rates in round t of T."""
        return 1.0

    def auxiliary_network(self, config: Config, num_peers: int, width: int) -> nn.Module:
        """Return what the method adds to a client's network.

        Parameters
        ----------
        num_peers
            Number of clients whose messages arrive: all sources at the target, 1 at a source.
        width
            Number of random features, 2N.
        """
        return nn.Identity()

    def message_of(self, is_target: bool) -> type[ArrayMessage]:
        """Return the class of the message that the target, or a source, sends to its peers."""
        return self.message if is_target else self.source_message or self.message

    def own_message(self, model: FederatedModule, features: Tensor) -> Tensor:
        """Return the values of the message, from the random features of the batch, with their gradient."""
        return model.mean_embedding(features)

    def source_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return named terms of a source's loss; `loss` is minimised, the others are recorded."""
        return classification_loss(model, batch, features, config)

    def target_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return named terms of the target's loss; without `loss` the target takes no step."""
        return {}

    def after_average(
        self,
        part: str,
        average: NDArray[Any],
        source_embeddings: Sequence[NDArray[Any]],
        target_embedding: NDArray[Any] | None,
        config: Config,
    ) -> NDArray[Any]:
        """Return an average as it is handed out, given the newest Σℓ of the participants and of the target."""
        return average

    def weigh_sources(self, model: DomainModel, inputs: Tensor, models: Models) -> tuple[Mapping[str, float], float]:
        """Return how much each source counts, by name, and the target, judged by samples of the target."""
        raise TypeError(f"{type(self).__name__} sets weighs_sources and does not define weigh_sources")


class FeatureMethod(Method):
    """A method that compares the aligned features of the samples in a batch."""

    message = Features

    def own_message(self, model: FederatedModule, features: Tensor) -> Tensor:
        """Return the aligned features."""
        return model.align(features)


class MomentMethod(Method):
    """A method that compares mean and variance of the aligned features of a batch."""

    message = Moments

    def own_message(self, model: FederatedModule, features: Tensor) -> Tensor:
        """Return mean and variance of each aligned feature before it is normalised, 2 × m."""
        from fedrf.models.normalization import moments

        return moments(features @ model.aligner)


def classification_loss(model: DomainModel, batch: Batch, features: Tensor, config: Config) -> Losses:
    """Return L_C: cross-entropy on the client's labels."""
    if batch.labels is None:
        raise ValueError("classification_loss needs labels, which the target does not have")
    loss = functional.cross_entropy(model.logits(features), batch.labels, label_smoothing=config.train.label_smoothing)
    return {"loss": loss, "classification": loss.detach()}


def mean_mmd(model: DomainModel, inbox: Inbox) -> Tensor:
    """Return L_MMD as the mean over the peers whose message arrived; 0 if none did."""
    from fedrf.tca.mmd import mmd_loss

    return mean_distance(lambda own, peer: mmd_loss(own, peer, model.aligner), inbox)


def mean_distance(distance: Distance, inbox: Inbox) -> Tensor:
    """Return the mean distance to the peers whose message arrived; 0 if none did."""
    if not inbox.peers:
        return inbox.own.new_zeros(())
    return torch.stack([distance(inbox.own, peer) for peer in inbox.peers]).mean()


def predictions_of_sources(model: DomainModel, inputs: Tensor, models: Models) -> Tensor:
    """Return the class probabilities that every source's network predicts, K × n × classes."""
    from fedrf.models.parts import outputs_with

    return torch.stack([outputs_with(model, parts, inputs).softmax(1) for parts in models.values()])
