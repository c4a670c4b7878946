"""FedRF-TCA, algorithms 2-5 of the paper; with the preset `fedrf-plus`, the same protocol and what makes it work.

Sources minimise L_C + λ · L_MMD while the target's message reaches them (i ∈ S_t), L_C alone otherwise. The target
minimises L_MMD over the sources whose messages arrived. With `align.step=proximal` the target's part of that is not a
gradient step but the closed form of `fedrf.tca.mmd.proximal_step`, taken where W is aggregated; the target then
trains nothing in the rounds unless `adapt.when=joint`.

Sent every round: Σℓ of all clients up, the target's down to each source and the sources' to the target. Every A rounds
(`federation.aligner_interval`), and after the last: W of each source up, and of the target where it trains, and the
average down to all.
Every T rounds: C of each source, and its average down. Bytes a round:
``4 * ((3*K + 1) * S + (2*K + 1) * (W / A + C / T))``, and 4 · W/A more for `fedrf-tca`, whose target trains. Nothing is
sent while the target adapts in the end. Asynchronous: yes.
"""

from __future__ import annotations

from torch import Tensor

from fedrf.config.schema import Config
from fedrf.methods.base import Inbox, Losses, Method, classification_loss, mean_mmd
from fedrf.models.network import Batch, DomainModel


def source_loss(model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
    """Hybrid loss L_C + λ · L_MMD (eq. L_S)."""
    losses = classification_loss(model, batch, features, inbox, config)
    if inbox.peers:
        mmd = mean_mmd(model, inbox)
        losses |= {"loss": losses["loss"] + config.align.weight * mmd, "mmd": mmd.detach()}
    return losses


def target_loss(model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
    """L_MMD, as a figure only where the closed form takes the step."""
    mmd = mean_mmd(model, inbox)
    losses: Losses = {"mmd": mmd.detach()}
    return losses | ({"loss": mmd} if config.align.step == "gradient" and inbox.peers else {})


METHODS = (Method("fedrf-tca", source_loss, target_loss), Method("fedrf-plus", source_loss, target_loss))
