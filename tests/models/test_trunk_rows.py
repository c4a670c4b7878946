"""Trunk outputs: the same bits, wherever they are stored."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from fedrf.config.schema import ModelConfig
from fedrf.data.content import Arrays, CorruptImageError, ImageFiles
from fedrf.data.samples import Samples
from fedrf.models import trunk_rows as module
from fedrf.models.devices import Device
from fedrf.models.extractors.preparation import Preparation
from fedrf.models.trunk_cache import used_bytes
from fedrf.models.trunk_rows import TrunkRows, trunk_rows

PREPARE = Preparation(resize=10, crop=8, resample="bilinear")


def all_of(rows):
    return rows[np.arange(len(rows))]


def rows_of(layers, samples, **settings):
    return trunk_rows(layers, PREPARE, samples, ModelConfig(**settings))


def test_every_way_of_storing_gives_the_same_bytes(layers, samples, monkeypatch):
    """In memory, on disk, read again, memory-mapped, not stored, and with images decoded for every batch."""
    expected = all_of(rows_of(layers, samples, cache="memory"))
    assert expected.shape == (70, 5)
    stored = {"disk": rows_of(layers, samples), "disk again": rows_of(layers, samples)}
    stored["off"] = rows_of(layers, samples, cache="off")
    monkeypatch.setattr(module, "MEMORY_LIMIT", 0)
    stored["mapped"] = rows_of(layers, samples)
    stored["off, decoded each time"] = rows_of(layers, samples, cache="off")
    random = np.random.RandomState(1)
    for name, rows in stored.items():
        assert torch.equal(all_of(rows), expected), name
        assert torch.equal(torch.cat(list(rows.split(33))), expected), name
        for _ in range(5):  # random batches
            batch = torch.from_numpy(random.permutation(70)[: random.randint(1, 40)])
            assert torch.equal(rows[batch], expected[batch]), name


def test_the_rows_are_the_outputs_of_the_layers(layers, samples):
    images = [torch.from_numpy(PREPARE(samples.content.image(row))) for row in range(70)]
    plain = nn.Sequential(*layers)(torch.stack(images).float())
    torch.testing.assert_close(all_of(rows_of(layers, samples)), plain, rtol=1e-4, atol=1e-4)


def test_rows_on_disk_are_not_computed_again(layers, samples):
    rows_of(layers, samples)
    assert layers.passes > 0
    layers.passes = 0
    rows_of(layers, samples)
    assert layers.passes == 0


def test_clients_with_parts_of_a_domain_share_a_file(layers, samples):
    part, overlapping = samples.take(np.arange(0, 50)), samples.take(np.arange(30, 70))
    first = all_of(rows_of(layers, part))
    before, layers.passes = used_bytes(), 0
    second = all_of(rows_of(layers, overlapping))
    assert layers.passes == 1
    assert used_bytes() <= before + 4096
    assert torch.equal(first[30:], second[:20])


def test_changed_images_weights_or_preparations_are_computed_anew(layers, samples, tmp_path):
    first = all_of(rows_of(layers, samples))
    Image.new("RGB", (12, 12), "red").save(tmp_path / "images/03.png")
    changed = Samples.all_of(ImageFiles(samples.content.folder, samples.content.paths), samples.labels)
    second = all_of(rows_of(layers, changed))
    assert [row for row in range(70) if not torch.equal(first[row], second[row])] == [3]
    with torch.no_grad():
        layers[0].bias += 1
    third = all_of(rows_of(layers, changed))
    assert not torch.equal(second, third)
    other = trunk_rows(layers, Preparation(resize=8, crop=8, resample="bilinear"), changed, ModelConfig())
    assert not torch.equal(all_of(other), third)


def test_half_precision_is_returned_as_single_precision(layers, samples):
    exact = all_of(rows_of(layers, samples))
    half = rows_of(layers, samples, cache_precision="float16")
    assert all_of(half).dtype == torch.float32
    assert torch.equal(all_of(half), exact.half().float())
    assert not torch.equal(all_of(half), exact)
    with torch.no_grad():
        layers[0].bias += 1e6
    with pytest.raises(ValueError, match=r"model\.cache_precision=float16: .* use float32"):
        rows_of(layers, samples, cache_precision="float16")


def test_images_without_trunk_layers_are_stored_as_bytes(samples):
    rows = rows_of(nn.Identity(), samples)
    assert all_of(rows).dtype == torch.uint8
    assert torch.equal(rows[np.array([9])][0], torch.from_numpy(PREPARE(samples.content.image(9))))


def test_a_full_cache_gives_a_warning_and_the_same_rows(layers, samples, monkeypatch):
    monkeypatch.setenv("FEDRF_CACHE_GB", "0")
    messages = []
    rows = trunk_rows(layers, PREPARE, samples, ModelConfig(), warn=messages.append)
    assert used_bytes() == 0
    assert "do not fit into FEDRF_CACHE_GB: they are kept in memory" in messages[0]
    assert torch.equal(all_of(rows), all_of(rows_of(layers, samples, cache="memory")))
    monkeypatch.setattr(module, "MEMORY_LIMIT", 0)
    again = trunk_rows(layers, PREPARE, samples, ModelConfig(), warn=messages.append)
    assert "computed again for every batch" in messages[1]
    assert torch.equal(all_of(again), all_of(rows))


def test_progress_reaches_the_total_and_an_interrupt_keeps_finished_rows(layers, samples, monkeypatch):
    monkeypatch.setattr(module, "REPORT_SECONDS", 0)
    reports = []
    trunk_rows(layers, PREPARE, samples, ModelConfig(), progress=lambda done, total: reports.append((done, total)))
    assert reports[-1] == (70, 70)
    assert reports == sorted(reports)
    assert len(set(reports)) >= 3

    def stop(done, total):
        if done:
            raise KeyboardInterrupt

    with torch.no_grad():
        layers[0].bias += 1
    with pytest.raises(KeyboardInterrupt):
        trunk_rows(layers, PREPARE, samples, ModelConfig(), progress=stop)
    layers.passes = 0
    rows_of(layers, samples)
    assert layers.passes == 2  # of three batches; the first is in the cache


def test_the_error_names_a_corrupt_image(layers, samples, tmp_path):
    (tmp_path / "images/41.png").write_bytes(b"not an image")
    for cache in ("disk", "memory", "off"):
        with pytest.raises(CorruptImageError, match=r"41\.png: cannot be decoded .* data\.skip_corrupt=true"):
            rows_of(layers, samples, cache=cache)
    decodable = samples.decodable()
    assert (len(decodable), decodable.skipped) == (69, 1)
    assert 41 not in decodable.rows
    assert list(decodable.labels) == [number % 4 for number in range(70) if number != 41]
    assert len(rows_of(layers, decodable)) == 69


def test_arrays_are_not_prepared_or_cached():
    values = np.random.RandomState(0).rand(50, 4).astype(np.float32)
    samples = Samples.all_of(Arrays(values), None).take(np.array([3, 1]))
    rows = trunk_rows(nn.Linear(4, 2), None, samples, ModelConfig())
    assert all_of(rows).shape == (2, 2)
    assert used_bytes() == 0
    assert torch.equal(
        all_of(trunk_rows(nn.Identity(), None, samples, ModelConfig())), torch.from_numpy(values[[3, 1]])
    )


def test_grey_and_float_arrays_are_prepared_as_images():
    grey = np.random.RandomState(0).randint(0, 256, (5, 1, 12, 12)).astype(np.uint8)
    as_bytes, as_floats = (Samples.all_of(Arrays(values), None) for values in (grey, grey.astype(np.float32) / 255))
    assert torch.equal(all_of(rows_of(nn.Identity(), as_bytes)), all_of(rows_of(nn.Identity(), as_floats)))


def test_concurrent_processes_share_the_work(cache, samples):
    """Each process skips rows that the other has written."""
    program = f"""
import sys, time, numpy as np, torch
from pathlib import Path
from torch import nn
from fedrf.config.schema import ModelConfig
from fedrf.data.content import ImageFiles
from fedrf.data.samples import Samples
from fedrf.models.extractors.preparation import Preparation
from fedrf.models import trunk, trunk_rows
trunk.BATCH_SIZE = trunk_rows.BATCH_SIZE = 4
torch.set_num_threads(1)
class Slow(nn.Flatten):
    passes = 0
    def forward(self, x):
        self.passes += 1
        time.sleep(0.05)
        return super().forward(x.float())
folder = Path({str(samples.content.folder)!r})
content = ImageFiles(folder, {samples.content.paths!r})
layers = Slow()
print("ready", flush=True)
sys.stdin.readline()
rows = trunk_rows.trunk_rows(layers, Preparation(10, 8), Samples.all_of(content, None), ModelConfig())
print(layers.passes, float(rows[np.arange(70)].double().sum()))
"""
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0].split() for process in processes]
    assert answers[0][1] == answers[1][1]
    assert sum(int(passes) for passes, _ in answers) < 2 * 18  # without sharing
    assert len(list(cache.glob("*.rows"))) == 1


def test_equal_files_in_another_folder_are_other_samples(layers, tmp_path):
    """With the same names, sizes and times, as from reproducible archives."""
    samples = []
    for domain, colour in (("source", "red"), ("target", "blue")):
        path = tmp_path / domain / "1.bmp"
        path.parent.mkdir()
        Image.new("RGB", (12, 12), colour).save(path)
        os.utime(path, times=(0, 0))
        samples.append(Samples.all_of(ImageFiles(path.parent, ["1.bmp"]), None))
    source, target = (all_of(rows_of(layers, domain)) for domain in samples)
    assert not torch.equal(source, target)


def test_half_precision_is_the_same_wherever_rows_are_stored(layers, samples):
    expected = all_of(rows_of(layers, samples, cache_precision="float16"))
    for cache in ("memory", "off"):
        assert torch.equal(all_of(rows_of(layers, samples, cache=cache, cache_precision="float16")), expected)


def test_large_rows_are_split_into_small_pieces(monkeypatch):
    monkeypatch.setattr(module, "MAX_PIECE_BYTES", 4 * 1000 * 3)
    rows = TrunkRows.of([torch.randn(10, 1000)], 10)
    assert [len(piece) for piece in rows.split(1024)] == [3, 3, 3, 1]
    assert [len(piece) for piece in rows.split(2)] == [2] * 5


class Accelerator(Device):
    """A device whose free memory is as given, one value for each time that it is asked; it computes on the host."""

    @property
    def room(self):
        return self.free.pop(0)

    def release(self):
        self.releases += 1


@pytest.fixture
def accelerator():
    device = Accelerator(torch.device("cpu"), "cpu")
    device.free, device.releases = [], 0
    return device


def test_domains_in_different_memories_are_joined_on_the_accelerator():
    small = TrunkRows.of([torch.ones(5, 4)], 5, torch.device("meta"))
    joined = TrunkRows.joined([small, TrunkRows.of([torch.ones(500, 4)], 500)])
    for rows in ([0, 7], [7, 0]):
        assert (joined[np.array(rows)].device.type, joined[np.array(rows)].shape) == ("meta", (2, 4))


def test_the_free_memory_is_read_once_after_unused_memory_is_given_back(layers, samples, accelerator, monkeypatch):
    """If it is read again after others have filled it, features that are too large for the host would go there."""
    expected = all_of(rows_of(layers, samples))
    monkeypatch.setattr(module, "MEMORY_LIMIT", 0)
    for cache in ("disk", "memory"):
        accelerator.free, accelerator.releases = [10**6, 0], 0
        rows = trunk_rows(layers, PREPARE, samples, ModelConfig(cache=cache), accelerator)
        assert torch.equal(all_of(rows), expected)
        assert (accelerator.free, accelerator.releases) == ([0], 1)


@pytest.mark.parametrize(("limit", "in_memory"), [(1 << 30, 1), (0, 0)])
def test_if_the_memory_of_a_device_does_not_suffice_features_are_on_the_host_or_in_the_file(
    layers, samples, accelerator, monkeypatch, limit, in_memory
):
    expected = all_of(rows_of(layers, samples))
    calls, of = [], TrunkRows.of

    def failing(pieces, count, *place):
        calls.append(place)
        if len(calls) == 1:
            raise torch.OutOfMemoryError("out of memory")
        return of(pieces, count, *place)

    monkeypatch.setattr(TrunkRows, "of", failing)
    monkeypatch.setattr(module, "MEMORY_LIMIT", limit)
    accelerator.free.append(10**6)
    layers.passes = 0
    rows = trunk_rows(layers, PREPARE, samples, ModelConfig(), accelerator)
    assert torch.equal(all_of(rows), expected)
    assert (len(calls), layers.passes) == (1 + in_memory, 0)
