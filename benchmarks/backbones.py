"""Time of backbones, as ratios within one run: decoding with threads and processes, rounds with and without the cache.

The images are generated: JPEG, 256 × 320 pixels, blurred noise with about the detail of photographs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import mkdtemp

import numpy as np
import torch
from PIL import Image, ImageFilter

from benchmarks.rows import report
from fedrf.config.schema import ModelConfig
from fedrf.data.content import ImageFiles
from fedrf.data.samples import Samples
from fedrf.models.extractors.builders import make_extractor
from fedrf.models.extractors.extractor import CachedExtractor
from fedrf.models.extractors.preparation import Preparation
from fedrf.models.network import DomainModel
from fedrf.models.trunk_cache import used_bytes
from fedrf.models.trunk_rows import TrunkRows, trunk_rows
from fedrf.tca.random_features import RandomFourierFeatures

IMAGES, BATCH, CLASSES = 512, 64, 31
REQUIRED_SPEEDUP = 5.0  # of a round with a frozen extractor, by the cache


def make_images(folder: Path) -> Samples:
    random = np.random.RandomState(0)
    for number in range(IMAGES):
        noise = Image.fromarray(random.randint(0, 256, (256, 320, 3)).astype(np.uint8))
        noise.filter(ImageFilter.GaussianBlur(1.5)).save(folder / f"{number:04d}.jpg", quality=90)
    paths = [f"{number:04d}.jpg" for number in range(IMAGES)]
    return Samples.all_of(ImageFiles(folder, paths), np.arange(IMAGES) % CLASSES)


def prepared(content: ImageFiles, prepare: Preparation, row: int) -> np.ndarray:
    return prepare(content.image(row))


def milliseconds(action: Callable[[], object], count: int = 1, repeats: int = 1) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(1000 * (time.perf_counter() - start) / count)
    return median(times)


def decoding(samples: Samples, prepare: Preparation) -> None:
    """Compare threads with worker processes; JPEG decoding and resizing release the GIL, so threads should suffice."""
    assert isinstance(samples.content, ImageFiles)
    task, cores = partial(prepared, samples.content, prepare), os.cpu_count() or 1
    one_thread = milliseconds(lambda: [task(row) for row in range(IMAGES)], IMAGES)
    report("decode and prepare, one thread", one_thread, "ms", "per image")
    with ThreadPoolExecutor(cores) as pool:
        threads = milliseconds(lambda: list(pool.map(task, range(IMAGES))), IMAGES)
    report(
        f"decode and prepare, {cores} threads", threads, "ms", f"{one_thread / threads:.2f} x faster than one thread"
    )
    start = time.perf_counter()
    with ProcessPoolExecutor(cores) as workers:
        list(workers.map(task, range(IMAGES), chunksize=16))
    processes = 1000 * (time.perf_counter() - start) / IMAGES
    note = f"{one_thread / processes:.2f} x faster than one thread, {processes / threads:.2f} x the threads' time"
    report(f"decode and prepare, {cores} processes, with start-up", processes, "ms", note)


def rounds(name: str, weights: str, sharing: str, samples: Samples) -> None:
    """Time a source's computation in a round: read the batch, features, loss, gradients, step."""
    times: dict[str, float] = {}
    for cache in ("off", "disk"):
        torch.manual_seed(0)
        extractor = make_extractor(name, None, weights)
        settings = ModelConfig.model_validate({"cache": cache})
        layers = extractor.frozen_layers() if sharing == "frozen" else extractor.trunk
        start = time.perf_counter()
        rows = trunk_rows(layers, extractor.prepare, samples, settings, threads=torch.get_num_threads())
        if cache == "disk":
            seconds = time.perf_counter() - start
            note = f"once: {1000 * seconds / IMAGES:.1f} ms and {used_bytes() / IMAGES / 1000:.0f} kB per image"
            report(f"{name}, {sharing}: trunk outputs of {IMAGES} images", seconds, "s", note)
        width = extractor.out_features
        cached = CachedExtractor(extractor.adapter, width, adapter_is_applied=sharing == "frozen")
        model = DomainModel(cached, RandomFourierFeatures(width, 1000), 100, CLASSES)
        times[cache] = milliseconds(partial(play_round, model, rows, samples), repeats=3 if cache == "off" else 15)
    ratio = times["off"] / times["disk"]
    met = "met" if ratio >= REQUIRED_SPEEDUP else "NOT MET"
    report(f"{name}, {sharing}: a round without the cache", times["off"], "ms")
    requirement = f"required {REQUIRED_SPEEDUP:g} x: {met}" if sharing == "frozen" else "the adapter is not cached"
    report(f"{name}, {sharing}: a round with the cache", times["disk"], "ms", f"{ratio:.1f} x faster; {requirement}")


def play_round(model: DomainModel, rows: TrunkRows, samples: Samples) -> None:
    batch = np.random.permutation(IMAGES)[:BATCH]
    assert samples.labels is not None
    assert isinstance(model.extractor, CachedExtractor)
    with torch.set_grad_enabled(not model.extractor.adapter_is_applied):
        features = model.features(rows[batch])
    loss = torch.nn.functional.cross_entropy(model.logits(features), torch.from_numpy(samples.labels[batch]))
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 1e-3 * parameter.grad
                parameter.grad = None


def main() -> None:
    os.environ["FEDRF_CACHE"] = mkdtemp()
    samples = make_images(Path(mkdtemp()))
    prepare = make_extractor("efficientnet-lite0", None).prepare
    assert prepare is not None
    decoding(samples, prepare)
    rounds("efficientnet-lite0", "pretrained", "frozen", samples)
    os.environ["FEDRF_CACHE"] = mkdtemp()
    rounds("resnet18", "none", "frozen", samples)
    os.environ["FEDRF_CACHE"] = mkdtemp()
    rounds("resnet18", "none", "local", samples)


if __name__ == "__main__":
    main()
