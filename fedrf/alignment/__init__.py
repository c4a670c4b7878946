"""Public import path of MMD and its proximal step; `fedrf.tca.mmd` has the code."""

from fedrf.tca.mmd import mean_embedding, mmd_loss, proximal_step

__all__ = ["mean_embedding", "mmd_loss", "proximal_step"]
