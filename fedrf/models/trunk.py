"""The trunk of an extractor: image preparation and the layers that are never trained."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.backends import cudnn

from fedrf.data.content import Content
from fedrf.models.devices import model_name
from fedrf.models.extractors.preparation import Preparation

# Every forward pass has this many samples; smaller batches are padded. The output of a sample is then bitwise the same,
# whichever samples share its batch.
BATCH_SIZE = 32
ACCELERATOR_BATCH_SIZE = 128
CACHE_VERSION = 1  # of the cached outputs; part of the key

Indices = NDArray[np.int64]


class Trunk:
    """Computes the trunk's outputs for samples of one domain.

    Parameters
    ----------
    layers
        The fixed layers.
    prepare
        Resizes and crops a decoded image.
    content
        The samples of the domain.
    threads
        Number of threads that decode images.
    """

    def __init__(
        self, layers: nn.Module, prepare: Preparation, content: Content, device: torch.device, threads: int = 1
    ) -> None:
        self.layers, self.prepare, self.content, self.device = layers.to(device).eval(), prepare, content, device
        self.batch_size = BATCH_SIZE if device.type == "cpu" else ACCELERATOR_BATCH_SIZE
        # Threads are enough: decoding and resizing release the GIL (see benchmarks/backbones.py).
        self._pool = ThreadPoolExecutor(threads)

    @property
    def key(self) -> str:
        """Return a hash of everything that the outputs depend on."""
        digest = hashlib.blake2b(digest_size=16)
        versions: tuple[Any, ...] = (CACHE_VERSION, torch.__version__, PIL.__version__, self.device.type)
        if self.device.type != "cpu":
            products = torch.get_float32_matmul_precision()
            versions += (model_name(self.device), self.batch_size, cudnn.allow_tf32, products)
        digest.update(repr((versions, self.content.fingerprint, self.prepare, self.layers)).encode())
        for name, weights in self.layers.state_dict().items():
            digest.update(name.encode())
            digest.update(weights.detach().cpu().contiguous().numpy().data.cast("B"))
        return digest.hexdigest()

    def images(self, rows: Indices) -> Tensor:
        """Decode and prepare the images of some rows."""
        images = torch.from_numpy(np.stack(list(self._pool.map(self._image, rows))))
        return images.pin_memory() if self.device.type == "cuda" else images

    def _image(self, row: int) -> NDArray[np.uint8]:
        return self.prepare(self.content.image(row))

    @torch.no_grad()
    def outputs(self, images: Tensor) -> Tensor:
        """Apply the layers to prepared images; the outputs are on the device."""
        if isinstance(self.layers, nn.Identity):
            return images
        outputs = []
        for batch in images.split(self.batch_size):
            moved = batch.to(self.device, non_blocking=True)
            padded = torch.cat([moved, moved[-1:].expand(self.batch_size - len(moved), *moved.shape[1:])])
            outputs.append(self.layers(padded)[: len(moved)])
        return torch.cat(outputs)

    def __call__(self, rows: Indices) -> Tensor:
        """Return the outputs for some rows."""
        return self.outputs(self.images(rows))

    def batches(self, rows: Indices, missing: Callable[[Indices], Indices]) -> Iterator[tuple[Indices, Tensor]]:
        """Yield batches of rows with their outputs, while a thread decodes the next batch.

        Before each batch, `missing` returns those of the remaining rows that still have to be computed.
        """
        with ThreadPoolExecutor(1) as decoder:
            upcoming: tuple[Indices, Future[Tensor]] | None = None
            while len(rows) or upcoming:
                current, upcoming = upcoming, None
                if len(rows := missing(rows)):
                    batch, rows = rows[: self.batch_size], rows[self.batch_size :]
                    upcoming = (batch, decoder.submit(self.images, batch))
                if current:
                    yield current[0], self.outputs(current[1].result())
