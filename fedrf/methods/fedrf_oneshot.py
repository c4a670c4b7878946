"""One-shot federated adaptation from additive statistics (`fedrf-oneshot`).

The extractor stays fixed, and random features are the same everywhere. Each source sends once its Σℓ and, after this
mean is removed, the covariance B_i of its random features with the classes and, compressed, their covariance matrix
A_i. Both add up over sources: the coordinator solves M = (Σ_i w_i A_i + λaI)⁻¹ Σ_i w_i B_i and sends M to the target
(`fedrf.tca.source_statistics`). The weights w_i are inverse to the distance between the Σℓ of source and target. The
target removes its own mean too, and adapts its extractor without communication (`fedrf.adaptation.stage`).

With `train.rounds` above 0, W, C and G are trained as in `fedrf-plus` first, and statistics are taken with the G that
results.
"""

from __future__ import annotations

from fedrf.methods.fedrf_tca import FedRFTCA


class FedRFOneShot(FedRFTCA):
    """Closed-form W and C from one message of each source."""

    name = "fedrf-oneshot"
    summary = "one message of each source: W and C from additive statistics, adaptation at the target"
    settings = {
        "align.statistics": "lowrank",
        "train.rounds": 0,
        "model.sharing": "frozen",
        "adapt.shares": "estimated",
    }
    ingredients = {
        "align.statistics": "means",
        "align.source_weights": "equal",
        "adapt.when": "never",
        "adapt.pseudo_labels": 0.0,
        "adapt.views": "aligned",
        "adapt.shares": "equal",
    }
    bytes_per_round = "8 * (3*K + 1) + 4 * (2*K + 1) * (W / A + C / T)"  # Σℓ itself in the first round alone
    bytes_once = "K * (S * (L + R) + 4 * (2*L + R) + 8) + 4 * (K + 1) * S + S * L + 4 * L"
