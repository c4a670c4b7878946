"""What backbones cost, as ratios within one run: decoding by threads and processes, rounds with and without a cache.

Pictures are made on the spot: 256 × 320 pixels, JPEG, as many details as photographs have.
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

from fedrf.config.schema import ModelConfig
from fedrf.data.samples import ImageFiles, Samples
from fedrf.models.extractors import Preparation, make_extractor
from fedrf.models.network import DomainModel
from fedrf.models.trunk_rows import TrunkRows, trunk_rows
from fedrf.models.trunk_cache import used_bytes
from fedrf.tca.random_features import RandomFourierFeatures

PICTURES, BATCH, CLASSES = 512, 64, 31
FLOOR = 5.0  # a round from the cache must be so many times faster, or the cache is not worth its code


def pictures(folder: Path) -> Samples:
    random = np.random.RandomState(0)
    for number in range(PICTURES):
        noise = Image.fromarray(random.randint(0, 256, (256, 320, 3)).astype(np.uint8))
        noise.filter(ImageFilter.GaussianBlur(1.5)).save(folder / f"{number:04d}.jpg", quality=90)
    paths = [f"{number:04d}.jpg" for number in range(PICTURES)]
    return Samples.all_of(ImageFiles(folder, paths), np.arange(PICTURES) % CLASSES)


def prepared(content: ImageFiles, prepare: Preparation, row: int) -> np.ndarray:
    return prepare(content.image(row))


def milliseconds(action: Callable[[], object], count: int = 1, repeats: int = 1) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        times.append(1000 * (time.perf_counter() - began) / count)
    return median(times)


def report(name: str, value: float, unit: str, note: str = "") -> None:
    print(f"{name:64} {value:8.3g} {unit:4} {note}", flush=True)


def decoding(samples: Samples, prepare: Preparation) -> None:
    """Whether worker processes pay: JPEG decoding and scaling leave Python's lock alone, so threads do as well."""
    assert isinstance(samples.content, ImageFiles)
    task, cores = partial(prepared, samples.content, prepare), os.cpu_count() or 1
    alone = milliseconds(lambda: [task(row) for row in range(PICTURES)], PICTURES)
    report("decode and prepare, one thread", alone, "ms", "a picture")
    with ThreadPoolExecutor(cores) as threads:
        together = milliseconds(lambda: list(threads.map(task, range(PICTURES))), PICTURES)
    report(f"decode and prepare, {cores} threads", together, "ms", f"{alone / together:.2f} x faster than one")
    began = time.perf_counter()
    with ProcessPoolExecutor(cores) as processes:
        list(processes.map(task, range(PICTURES), chunksize=16))
    apart = 1000 * (time.perf_counter() - began) / PICTURES
    note = f"{alone / apart:.2f} x faster than one, {apart / together:.2f} x the threads' time"
    report(f"decode and prepare, {cores} processes, with their start", apart, "ms", note)


def rounds(name: str, weights: str, sharing: str, samples: Samples) -> None:
    """Time a source's own share of a round: fetch the batch, features, loss, gradients, step."""
    times: dict[str, float] = {}
    for cache in ("off", "disk"):
        torch.manual_seed(0)
        extractor = make_extractor(name, None, weights)
        settings = ModelConfig.model_validate({"cache": cache})
        layers = extractor.settled() if sharing == "frozen" else extractor.trunk
        began = time.perf_counter()
        rows = trunk_rows(layers, extractor.prepare, samples, settings, threads=torch.get_num_threads())
        if cache == "disk":
            seconds = time.perf_counter() - began
            note = f"once: {1000 * seconds / PICTURES:.1f} ms a picture, {used_bytes() / PICTURES / 1000:.0f} kB each"
            report(f"{name}, {sharing}: the fixed part of {PICTURES} pictures", seconds, "s", note)
        model = DomainModel(extractor.adapter, RandomFourierFeatures(extractor.out_features, 1000), 100, CLASSES)
        model.adapter_is_applied = sharing == "frozen"
        times[cache] = milliseconds(partial(play, model, rows, samples), repeats=3 if cache == "off" else 15)
    ratio = times["off"] / times["disk"]
    met = "met" if ratio >= FLOOR or sharing != "frozen" else "NOT MET"
    report(f"{name}, {sharing}: a round without the cache", times["off"], "ms")
    wanted = f"floor {FLOOR:g} x: {met}" if sharing == "frozen" else "what learns has to be computed"
    report(f"{name}, {sharing}: a round with it", times["disk"], "ms", f"{ratio:.1f} x faster; {wanted}")


def play(model: DomainModel, rows: TrunkRows, samples: Samples) -> None:
    chosen = np.random.permutation(PICTURES)[:BATCH]
    assert samples.labels is not None
    with torch.set_grad_enabled(not model.adapter_is_applied):
        features = model.features(rows[chosen])
    loss = torch.nn.functional.cross_entropy(model.logits(features), torch.from_numpy(samples.labels[chosen]))
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 1e-3 * parameter.grad
                parameter.grad = None


def main() -> None:
    os.environ["FEDRF_CACHE"] = mkdtemp()
    samples = pictures(Path(mkdtemp()))
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
