"""A custom method: match mean and variance of the aligned features.

Sources minimise cross-entropy + λ · distance to the target's moments, the target the mean distance to the sources'.

Run it with `fedrf run method=moment_matching:MomentMatching`.
"""

from fedrf.methods.averaging import NETWORK_AND_MESSAGES
from fedrf.methods.base import PLAIN_STEPS, MomentMethod, classification_loss, mean_distance


def moment_distance(own, peer):
    """Return the squared distance of means and variances; each argument is 2 × m."""
    return (own - peer).square().sum()


class MomentMatching(MomentMethod):  # clients exchange mean and variance of a batch, 2m numbers
    """Match the first two moments of every aligned feature."""

    name = "moment-matching"
    summary = "match mean and variance of the aligned features"
    settings = NETWORK_AND_MESSAGES  # whole networks are averaged every five rounds, and messages are exchanged
    target_trains = ("aligner", "extractor")
    target_steps = PLAIN_STEPS
    bytes_per_round = "4 * (3*K + 1) * 2*m + 4 * ((2*K + 2) * (G + W) + (2*K + 1) * C) / T"

    def source_loss(self, model, batch, features, inbox, config):
        """Return cross-entropy + λ · distance to the target's moments."""
        losses = classification_loss(model, batch, features, config)
        if inbox.peers:
            distance = mean_distance(moment_distance, inbox)
            losses |= {"loss": losses["loss"] + config.align.weight * distance, "moments": distance.detach()}
        return losses

    def target_loss(self, model, batch, features, inbox, config):
        """Return λ · mean distance to the sources' moments."""
        distance = mean_distance(moment_distance, inbox)
        return {"loss": config.align.weight * distance, "moments": distance.detach()} if inbox.peers else {}
