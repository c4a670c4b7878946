"""Samples behind the fixed part of a network: the same bits, wherever they are kept."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from fedrf.config.schema import ModelConfig
from fedrf.data.samples import Arrays, CorruptImageError, ImageFiles, Samples
from fedrf.models import trunk as trunk_module
from fedrf.models.extractors import Preparation
from fedrf.models.trunk import PIECE, trunk_rows
from fedrf.models.trunk_cache import used_bytes

PREPARE = Preparation(resize=10, crop=8, resample="bilinear")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDRF_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def layers():
    class Counting(nn.Sequential):
        seen = 0

        def forward(self, x):
            self.seen += 1
            assert len(x) == PIECE
            return super().forward(x.float())

    torch.manual_seed(0)
    return Counting(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()


@pytest.fixture
def samples(tmp_path):
    random = np.random.RandomState(0)
    (tmp_path / "images").mkdir()
    for number in range(70):
        picture = random.randint(0, 256, (12, 9 + number % 5, 3)).astype(np.uint8)
        Image.fromarray(picture).save(tmp_path / f"images/{number:02d}.png")
    content = ImageFiles(tmp_path / "images", [f"{number:02d}.png" for number in range(70)])
    return Samples.all_of(content, np.arange(70) % 4)


def all_of(rows):
    return rows[np.arange(len(rows))]


def rows_of(layers, samples, **more):
    return trunk_rows(layers, PREPARE, samples, ModelConfig(**more))


def test_every_way_of_keeping_gives_the_same_bytes(layers, samples, monkeypatch):
    """In memory, on disk, read again, mapped, not kept, and with pictures decoded for every batch."""
    expected = all_of(rows_of(layers, samples, cache="memory"))
    assert expected.shape == (70, 5)
    kept = {"disk": rows_of(layers, samples), "disk again": rows_of(layers, samples)}
    kept["off"] = rows_of(layers, samples, cache="off")
    monkeypatch.setattr(trunk_module, "IN_MEMORY", 0)
    kept["mapped"] = rows_of(layers, samples)
    kept["off, decoded each time"] = rows_of(layers, samples, cache="off")
    random = np.random.RandomState(1)
    for name, rows in kept.items():
        assert torch.equal(all_of(rows), expected), name
        assert torch.equal(torch.cat(list(rows.split(33))), expected), name
        for _ in range(5):  # whatever the company
            some = random.permutation(70)[: random.randint(1, 40)]
            assert torch.equal(rows[torch.from_numpy(some)], expected[torch.from_numpy(some)]), name


def test_the_rows_are_those_of_a_plain_loop(layers, samples):
    pictures = [torch.from_numpy(PREPARE(samples.content.image(row))) for row in range(70)]
    plain = nn.Sequential(*layers)(torch.stack(pictures).float())
    torch.testing.assert_close(all_of(rows_of(layers, samples)), plain, rtol=1e-4, atol=1e-4)


def test_what_is_on_disk_is_not_computed_again(layers, samples):
    rows_of(layers, samples)
    assert layers.seen > 0
    layers.seen = 0
    rows_of(layers, samples)
    assert layers.seen == 0


def test_clients_with_parts_of_a_domain_share_a_file(layers, samples):
    some, more = samples.take(np.arange(0, 50)), samples.take(np.arange(30, 70))
    first = all_of(rows_of(layers, some))
    before, layers.seen = used_bytes(), 0
    second = all_of(rows_of(layers, more))
    assert layers.seen == 1
    assert used_bytes() <= before + 4096
    assert torch.equal(first[30:], second[:20])


def test_another_picture_weight_or_preparation_is_another_entry(layers, samples, tmp_path):
    first = all_of(rows_of(layers, samples))
    Image.new("RGB", (12, 12), "red").save(tmp_path / "images/03.png")
    fresh = Samples.all_of(ImageFiles(samples.content.folder, samples.content.paths), samples.labels)
    second = all_of(rows_of(layers, fresh))
    assert [row for row in range(70) if not torch.equal(first[row], second[row])] == [3]
    with torch.no_grad():
        layers[0].bias += 1
    third = all_of(rows_of(layers, fresh))
    assert not torch.equal(second, third)
    other = trunk_rows(layers, Preparation(resize=8, crop=8, resample="bilinear"), fresh, ModelConfig())
    assert not torch.equal(all_of(other), third)


def test_half_precision_takes_half_the_room_and_comes_back_as_single(layers, samples):
    exact = all_of(rows_of(layers, samples))
    half = rows_of(layers, samples, cache_precision="float16")
    assert all_of(half).dtype == torch.float32
    assert torch.equal(all_of(half), exact.half().float())
    assert not torch.equal(all_of(half), exact)
    with torch.no_grad():
        layers[0].bias += 1e6
    with pytest.raises(ValueError, match=r"model\.cache_precision=float16: .* take float32"):
        rows_of(layers, samples, cache_precision="float16")


def test_pictures_without_a_trunk_are_kept_as_they_are(samples):
    rows = rows_of(nn.Identity(), samples)
    assert all_of(rows).dtype == torch.uint8
    assert torch.equal(rows[np.array([9])][0], torch.from_numpy(PREPARE(samples.content.image(9))))


def test_no_room_on_disk_is_told_and_nothing_else_changes(layers, samples, monkeypatch):
    monkeypatch.setenv("FEDRF_CACHE_GB", "0")
    told = []
    rows = trunk_rows(layers, PREPARE, samples, ModelConfig(), note=told.append)
    assert used_bytes() == 0
    assert "FEDRF_CACHE_GB has no room for them: they are kept in memory" in told[0]
    assert torch.equal(all_of(rows), all_of(rows_of(layers, samples, cache="memory")))
    monkeypatch.setattr(trunk_module, "IN_MEMORY", 0)
    again = trunk_rows(layers, PREPARE, samples, ModelConfig(), note=told.append)
    assert "computed again for every batch" in told[1]
    assert torch.equal(all_of(again), all_of(rows))


def test_progress_ends_at_the_end_and_can_stop_it(layers, samples, monkeypatch):
    monkeypatch.setattr(trunk_module, "REPORT_SECONDS", 0)
    told = []
    trunk_rows(layers, PREPARE, samples, ModelConfig(), progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (70, 70)
    assert told == sorted(told)
    assert len(set(told)) >= 3

    def stop(done, total):
        if done:
            raise KeyboardInterrupt

    with torch.no_grad():
        layers[0].bias += 1
    with pytest.raises(KeyboardInterrupt):
        trunk_rows(layers, PREPARE, samples, ModelConfig(), progress=stop)
    layers.seen = 0
    rows_of(layers, samples)
    assert layers.seen == 2  # of three pieces: what was done stays done


def test_a_corrupt_picture_is_named(layers, samples, tmp_path):
    (tmp_path / "images/41.png").write_bytes(b"not a picture")
    for cache in ("disk", "memory", "off"):
        with pytest.raises(CorruptImageError, match=r"41\.png: cannot be decoded .* data\.skip_corrupt=true"):
            rows_of(layers, samples, cache=cache)
    sound = samples.decodable()
    assert (len(sound), sound.skipped) == (69, 1)
    assert 41 not in sound.rows
    assert list(sound.labels) == [number % 4 for number in range(70) if number != 41]
    assert len(rows_of(layers, sound)) == 69


def test_arrays_go_in_as_they_are():
    values = np.random.RandomState(0).rand(50, 4).astype(np.float32)
    samples = Samples.all_of(Arrays(values), None).take(np.array([3, 1]))
    rows = trunk_rows(nn.Linear(4, 2), None, samples, ModelConfig())
    assert all_of(rows).shape == (2, 2)
    assert used_bytes() == 0
    assert torch.equal(
        all_of(trunk_rows(nn.Identity(), None, samples, ModelConfig())), torch.from_numpy(values[[3, 1]])
    )


def test_grey_and_float_arrays_become_pictures(layers):
    grey = np.random.RandomState(0).randint(0, 256, (5, 1, 12, 12)).astype(np.uint8)
    as_bytes, as_floats = (Samples.all_of(Arrays(values), None) for values in (grey, grey.astype(np.float32) / 255))
    assert torch.equal(all_of(rows_of(nn.Identity(), as_bytes)), all_of(rows_of(nn.Identity(), as_floats)))


def test_processes_that_start_together_share_the_work(tmp_path, samples):
    """Each looks what is still missing: together they compute little more than once."""
    program = f"""
import sys, time, numpy as np, torch
from pathlib import Path
from torch import nn
from fedrf.config.schema import ModelConfig
from fedrf.data.samples import ImageFiles, Samples
from fedrf.models.extractors import Preparation
from fedrf.models import trunk
trunk.PIECE = 4
torch.set_num_threads(1)
class Slow(nn.Flatten):
    seen = 0
    def forward(self, x):
        self.seen += 1
        time.sleep(0.1)
        return super().forward(x.float())
folder = Path({str(samples.content.folder)!r})
content = ImageFiles(folder, {samples.content.paths!r})
layers = Slow()
print("ready", flush=True)
sys.stdin.readline()
rows = trunk.trunk_rows(layers, Preparation(10, 8), Samples.all_of(content, None), ModelConfig())
print(layers.seen, float(rows[np.arange(70)].double().sum()))
"""
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0].split() for process in started]
    assert answers[0][1] == answers[1][1]
    assert sum(int(seen) for seen, _ in answers) < 2 * 18  # what both would need without each other
    assert len(list((tmp_path / "cache").glob("*.rows"))) == 1


def test_equal_files_in_another_folder_are_other_samples(layers, tmp_path):
    """Same names, sizes and times: what reproducible archives unpack to."""
    samples = []
    for domain, colour in (("source", "red"), ("target", "blue")):
        path = tmp_path / domain / "1.bmp"
        path.parent.mkdir()
        Image.new("RGB", (12, 12), colour).save(path)
        os.utime(path, times=(0, 0))
        samples.append(Samples.all_of(ImageFiles(path.parent, ["1.bmp"]), None))
    source, target = (all_of(rows_of(layers, one)) for one in samples)
    assert not torch.equal(source, target)


def test_half_precision_is_the_same_wherever_rows_are_kept(layers, samples, monkeypatch):
    expected = all_of(rows_of(layers, samples, cache_precision="float16"))
    for cache in ("memory", "off"):
        assert torch.equal(all_of(rows_of(layers, samples, cache=cache, cache_precision="float16")), expected)


def test_large_rows_are_handed_out_in_small_pieces(monkeypatch):
    monkeypatch.setattr(trunk_module, "AT_ONCE", 4 * 1000 * 3)
    rows = trunk_module.TrunkRows.of(torch.randn(10, 1000))
    assert [len(piece) for piece in rows.split(1024)] == [3, 3, 3, 1]
    assert [len(piece) for piece in rows.split(2)] == [2] * 5
