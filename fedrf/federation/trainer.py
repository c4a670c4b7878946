"""Lightning's trainer of a client."""

from __future__ import annotations

from collections.abc import Callable

from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies import SingleDeviceStrategy

from fedrf.federation.module import FederatedModule
from fedrf.federation.saver import ArchiveIO, Saver
from fedrf.federation.storage import Storage
from fedrf.models.devices import Device
from fedrf.models.precision import precision_plugins


def make_trainer(module: FederatedModule, device: Device, storage: Storage, on_start: Callable[[], None]) -> Trainer:
    """Return a trainer that calls `on_start` when it has started and has read its checkpoint."""
    config, info = module.config, module.channel.info
    archives = ArchiveIO(storage, config.federation.private_batches)
    logs = TensorBoardLogger(info.run, name="tensorboard", version=info.name) if config.track.tensorboard else False
    return Trainer(
        max_epochs=1,
        accelerator=device.accelerator,
        strategy=SingleDeviceStrategy(device.torch),
        devices=1,
        logger=logs,
        callbacks=[Saver(module, on_start)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        plugins=[LightningEnvironment(), archives, *precision_plugins(config, device.torch)],
    )


def release(trainer: Trainer) -> None:
    """Empty a trainer that has ended: its parts and the module hold each other, and the memory of the device."""
    vars(trainer).clear()
