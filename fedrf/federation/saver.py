"""The Lightning callback that saves a client when the coordinator has begun a generation."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback, LightningModule, Trainer

from fedrf.federation.checkpoints import ClientFiles
from fedrf.files import write_atomically

if TYPE_CHECKING:
    from fedrf.federation.client import Client


class Saver(Callback):
    """Writes Lightning checkpoints, with where the client is in the federation."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.files = ClientFiles(client.place.run, client.place.name)
        self.saved, self.saved_at = 0, time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint has besides weights, optimisers and Lightning's loops."""
        client = self.client
        return {
            "round": client.round,
            "model_version": client.model_version,
            "committed": client.committed,
            "generation": client.generation,
            "figures": client.figures,
            "ballots": client.ballots,
            "anchor": client.anchor,
            "stage": client.stage.state_dict() if client.stage else None,
            "target_mean": client.held_out.target_mean if client.held_out else None,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go back to where a checkpoint was written."""
        client = self.client
        client.round, client.model_version = state_dict["round"], state_dict["model_version"]
        client.committed, client.figures = state_dict["committed"], state_dict["figures"]
        client.generation = self.saved = state_dict["generation"]
        client.ballots, client.anchor = state_dict["ballots"], state_dict.get("anchor", {})
        if client.stage:
            client.stage.load_state_dict(state_dict["stage"])
        if client.held_out:
            client.held_out.target_mean = state_dict["target_mean"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Join the others, now that a checkpoint has been read."""
        self.client.has_started()
        self.client.join()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save when a generation has begun and, in the stage after the rounds, from time to time."""
        client = self.client
        pause = client.config.federation.checkpoint_seconds
        is_due = client.stopped or time.monotonic() - self.saved_at >= pause
        if client.generation > self.saved or (client.committed and is_due):
            self._save(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Commit after the last round, and save what the last reply asked for: such a checkpoint trains no further."""
        if not self.client.stopped:
            self.client.commit()
            if self.client.generation > self.saved:
                self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        generation = self.client.generation
        write_atomically(self.files.path(generation), trainer.save_checkpoint)
        self.saved, self.saved_at = generation, time.monotonic()
        self.files.prune(self.client.link("saved", self.client.place.name, generation))
