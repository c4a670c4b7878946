"""What a method is: a preset (`fedrf.config.presets`), two losses, for sources and for the target, and what it adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedrf.config.schema import Config
from fedrf.models.network import Batch, DomainModel
from fedrf.tca.mmd import mmd_loss


@dataclass(frozen=True)
class Inbox:
    """What a loss may use besides the client's own batch.

    Attributes
    ----------
    own, peers
        What the client sends to its peers, and what they sent, as constants: Σℓ, or what `align.message` says.
    places
        Which of its peers each of them is: sources may be silent, or their messages lost.
    models
        At the target, where `federation.shows=each`: the parts of every source, by its name.
    is_target
        Whether the client is the one without labels.
    """

    own: Tensor
    peers: tuple[Tensor, ...] = ()
    places: tuple[int, ...] = ()
    models: Models = field(default_factory=dict)
    is_target: bool = False


Models = Mapping[str, Mapping[str, Tensor]]
Losses = dict[str, Tensor]
Distance = Callable[[Tensor, Tensor], Tensor]
Loss = Callable[[DomainModel, Batch, Tensor, Inbox, Config], Losses]


@dataclass(frozen=True)
class Method:
    """A way to train: each loss returns named terms, of which `loss` is minimised; without it nothing is trained.

    Attributes
    ----------
    companion
        Makes what the method adds to a network, for a client with so many peers and features so wide.
    shares_companion
        Whether companions are averaged with W, or stay at home.
    weigh
        How much each source's parts are to count, by name, and the target's own, as some of its samples tell it.
    """

    name: str
    source_loss: Loss
    target_loss: Loss
    companion: Callable[[Config, int, int], nn.Module] = lambda config, peers, width: nn.Identity()
    shares_companion: bool = False
    weigh: Callable[[DomainModel, Tensor, Models], tuple[Mapping[str, float], float]] | None = None


def classification_loss(model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
    """L_C alone: cross-entropy on the client's labels."""
    assert batch.labels is not None
    loss = cross_entropy(model.logits(features), batch.labels, label_smoothing=config.train.label_smoothing)
    return {"loss": loss, "classification": loss.detach()}


def mean_mmd(model: DomainModel, inbox: Inbox) -> Tensor:
    """L_MMD as a mean over the pairs whose message arrived; 0 if none did."""
    return mean_distance(lambda own, peer: mmd_loss(own, peer, model.aligner), inbox)


def mean_distance(distance: Distance, inbox: Inbox) -> Tensor:
    """Mean over the pairs whose message arrived; 0 if none did."""
    if not inbox.peers:
        return inbox.own.new_zeros(())
    return torch.stack([distance(inbox.own, peer) for peer in inbox.peers]).mean()


def opinions(model: DomainModel, inputs: Tensor, models: Models) -> Tensor:
    """Class probabilities that every source's network gives, K × n × classes."""
    return torch.stack([model.seen_with(parts, inputs).softmax(1) for parts in models.values()])


def no_loss(model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
    """Nothing to train here."""
    return {}
