"""The Lightning callback that saves a client when a checkpoint version has begun, and the format of the file."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer

from fedrf.archive import DamagedError, pack, unpack
from fedrf.federation.checkpoints import ClientFiles, files_root
from fedrf.federation.module import FederatedModule
from fedrf.federation.storage import Storage


class ArchiveIO(CheckpointIO):
    """Writes and reads Lightning checkpoints as archives (`fedrf.archive`) instead of pickles.

    Parameters
    ----------
    storage
        Where the client's files are; paths are names of files there.
    private
        Whether only the owner of the run may read them.
    """

    def __init__(self, storage: Storage, private: bool) -> None:
        self.storage, self.private = storage, private

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint."""
        self.storage.write(str(path), pack(checkpoint), self.private)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint; a `ValueError` if it is damaged."""
        try:
            content: dict[str, Any] = unpack(self.storage.read(str(path)))
        except DamagedError as error:
            raise ValueError(f"{path} is damaged: {error}") from None
        return content

    def remove_checkpoint(self, path: Any) -> None:
        """Do nothing: `Saver` deletes old checkpoints."""


class Saver(Callback):
    """Writes Lightning checkpoints that also keep how far the client is.

    Parameters
    ----------
    module
        The client's module.
    on_start
        Is called when the trainer has started and a checkpoint has been read.
    """

    def __init__(self, module: FederatedModule, on_start: Callable[[], None]) -> None:
        self.module, self.on_start, self.channel = module, on_start, module.channel
        self.files = ClientFiles(files_root(self.channel.info.run, module.config.track.storage), self.channel.info.name)
        self.saved_at = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps besides weights, optimisers and Lightning's loops."""
        stage, held_out = self.module.stage, self.module.samples.held_out
        return {
            "progress": self.channel.progress.state_dict(),
            "stage": stage.state_dict() if stage else None,
            "target_mean": held_out.target_mean if held_out else None,
            "secret": self.module.samples.draws.secret,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go back to a checkpoint."""
        stage, held_out = self.module.stage, self.module.samples.held_out
        self.channel.progress.load_state_dict(state_dict["progress"])
        self.channel.progress.saved_version = self.channel.progress.checkpoint_version
        module = self.module
        module.unit_norm = not (self.channel.progress.committed and module.schedule.takes_statistics)
        if stage:
            stage.load_state_dict(state_dict["stage"])
        if held_out:
            held_out.target_mean = state_dict["target_mean"]
        draws = module.samples.draws
        if draws.secret is not None:  # a checkpoint from before the key was set has none
            draws.secret = state_dict.get("secret") or draws.secret

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the client join the others; its file counts, also if it was lost before it could say so."""
        self.on_start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save if a version has begun, before rounds are skipped and, during adaptation, from time to time."""
        progress, pause = self.channel.progress, self.module.config.federation.checkpoint_seconds
        is_due = progress.stopped or time.monotonic() - self.saved_at >= pause
        if progress.checkpoint_version > progress.saved_version or (progress.committed and is_due):
            self._save(trainer, progress.checkpoint_version)
            progress.saved_version = progress.checkpoint_version
        elif not self.module.schedule.takes_part(batch.round):
            self._save(trainer, progress.checkpoint_version + 1)  # for versions that begin in the rounds to come

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Commit after the last round, and save the version that the reply asked for."""
        if not self.channel.progress.stopped:
            self.module.commit()
            if self.channel.progress.checkpoint_version > self.channel.progress.saved_version:
                self._save(trainer, self.channel.progress.checkpoint_version)

    def _save(self, trainer: Trainer, version: int) -> None:
        self.channel.beat()  # a process that was replaced does not write
        trainer.save_checkpoint(self.files.name(version))
        self.saved_at = time.monotonic()
        self.files.prune(self.channel.saved(version))
