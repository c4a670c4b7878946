"""FedRF-TCA, algorithms 2-5 of the paper (`fedrf-tca`), and the same protocol with additions (`fedrf-plus`).

A source minimises L_C + λ · L_MMD in rounds in which the target's Σℓ reaches it (i ∈ S_t), and L_C otherwise. The
target minimises L_MMD over the sources whose Σℓ arrived, by gradient steps on W and G (`align.step=gradient`).

`fedrf-plus` sends Σℓ of all local samples instead of a batch (`align.message=exact`), and its target takes no gradient
steps in the rounds: the coordinator moves the average of W by a closed-form proximal step (`align.step=proximal`,
`after_average`). After the last round the target trains its own extractor without communication
(`fedrf.adaptation.stage`).

Sent every round: Σℓ of all clients up, the target's down to each source and the sources' to the target, or only that it
has not changed. It changes with the batch or, if it is of all samples, every F rounds (`align.refresh`) at a client
that trains its extractor, and after averages of extractors. Every A rounds (`federation.aligner_interval`), and after
the last: W of each source up, and of the target if it trains, and the average down to all. G in the same way every E
rounds (`model.extractor_interval`), with `model.sharing=averaged`. Every T rounds: C of each source up, and the average
down to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrf.methods.base import PLAIN_STEPS, Inbox, Losses, Method, classification_loss, mean_mmd
from fedrf.methods.lazy_torch import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fedrf.config.schema import Config
    from fedrf.models.network import Batch, DomainModel


class FedRFTCA(Method):
    """The paper's protocol."""

    name = "fedrf-tca"
    summary = "the paper's protocol: align mean embeddings of random features"
    settings = {
        "align.message": "batch",
        "align.step": "gradient",
        "model.sharing": "averaged",
        "model.extractor_interval": 1,
        "model.classifier": "mlp",
        "adapt.when": "never",
        "adapt.pseudo_labels": 0.0,
        "adapt.views": "aligned",
        "adapt.consistency": 0.0,
        "train.label_smoothing": 0.0,
        "federation.aligner_interval": 1,
        "federation.aggregation": "mean",
    }
    target_trains = ("aligner", "extractor")
    target_steps = PLAIN_STEPS
    takes_statistics = True
    is_reference = True
    bytes_per_round = "4 * ((3*K + 1) * S + (2*K + 2) * (W / A + G / E) + (2*K + 1) * C / T)"

    def parts_trained_by_target(self, config: Config) -> tuple[str, ...]:
        """Return W and G, unless the coordinator takes the step against the discrepancy in closed form."""
        aligns = config.federation.embeddings_from != "none" and config.align.step == "gradient"
        return self.target_trains if aligns or config.adapt.when == "joint" else ()

    def source_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return the hybrid loss L_C + λ · L_MMD (eq. L_S)."""
        losses = classification_loss(model, batch, features, config)
        if inbox.peers:
            mmd = mean_mmd(model, inbox)
            losses |= {"loss": losses["loss"] + config.align.weight * mmd, "mmd": mmd.detach()}
        return losses

    def target_loss(self, model: DomainModel, batch: Batch, features: Tensor, inbox: Inbox, config: Config) -> Losses:
        """Return L_MMD; it is only recorded if the coordinator takes the step in closed form."""
        mmd = mean_mmd(model, inbox)
        losses: Losses = {"mmd": mmd.detach()}
        return losses | ({"loss": mmd} if config.align.step == "gradient" and inbox.peers else {})

    def after_average(
        self,
        part: str,
        average: NDArray[Any],
        source_embeddings: Sequence[NDArray[Any]],
        target_embedding: NDArray[Any] | None,
        config: Config,
    ) -> NDArray[Any]:
        """Move the average of W against the discrepancies by a proximal step, if `align.step=proximal`.

        The step is W ← W − V (γI + VᵀV)⁻¹ VᵀW. The columns of V are Σℓ_source − Σℓ_target, one for each source.
        """
        if part != "aligner" or config.align.step != "proximal":
            return average
        if target_embedding is None or not source_embeddings:
            return average
        from fedrf.tca.mmd import proximal_step

        discrepancies = np.stack([embedding - target_embedding for embedding in source_embeddings], axis=1)
        moved = proximal_step(torch.tensor(average), torch.from_numpy(discrepancies), config.align.gamma)
        return np.asarray(moved.numpy())


class FedRFPlus(FedRFTCA):
    """The paper's protocol with additions; its settings are the defaults of `fedrf.config.schema`."""

    name = "fedrf-plus"
    summary = "fedrf-tca with exact messages, a proximal step and adaptation at the target"
    settings = {}
    ingredients = FedRFTCA.settings
    bytes_per_round = (
        "2*K * (4*S + 8*(F - 1)) / F + (K + 1) * (4*S + 8*(E - 1)) / E + 4 * (2*K + 1) * (W / A + G / E + C / T)"
    )
