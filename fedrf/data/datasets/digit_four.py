"""Digit-Four: three domains of Digit-Five, and `rendered`, whose digits are generated from fonts.

`rendered` replaces Synthetic Digits, which are drawn from fonts too. Its digits are in 21 fonts and random colours, on
a uniform, shaded or patchy background, rotated, sheared and shifted, sharp or blurred, often with parts of other digits
to the left and right. Results on `rendered` and on Synthetic Digits cannot be compared.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps

from fedrf.config.schema import DataConfig
from fedrf.data.content import Arrays
from fedrf.data.datasets.digit_five import COUNTS, DOMAINS, DigitFive
from fedrf.data.datasets.digit_readers import NUM_CLASSES, SIZE
from fedrf.data.datasets.drawing import SANS_FONTS, SERIF_FONTS, balanced, blur, glyphs, place
from fedrf.data.samples import Samples

RENDERED = "rendered"
RENDERED_COUNTS = (6_000, 1_000)
FROM_FILES = ("mnist", "mnist-m", "usps")
SEEDS = {"train": 4, "test": 5}
BRUSHES = (None, ImageFilter.MinFilter(3), ImageFilter.MaxFilter(3), ImageFilter.MaxFilter(7))


class DigitFour(DigitFive):
    """MNIST, MNIST-M and USPS from files, and rendered digits."""

    name = "digit-four"
    about = "the ten digits in 4 domains, one of them drawn from fonts, images of 32 × 32"
    domain_names = {name: DOMAINS[name] for name in FROM_FILES} | {RENDERED: ()}
    counts = {name: COUNTS[name] for name in FROM_FILES} | {RENDERED: RENDERED_COUNTS}

    def locate(self, config: DataConfig, domain: str) -> Path | None:
        """Return the folder of one domain; None for `rendered`."""
        return None if domain == RENDERED else super().locate(config, domain)

    def load(self, config: DataConfig, domain: str) -> Samples:
        """Read or draw one domain: uint8 of shape (n, 3, 32, 32)."""
        if domain != RENDERED:
            return super().load(config, domain)
        counts = dict(zip(self.splits, RENDERED_COUNTS, strict=True))
        drawn = [_draw(counts[split], np.random.RandomState(SEEDS[split])) for split in self.selected_splits(config)]
        images, labels = (np.concatenate(arrays) for arrays in zip(*drawn, strict=True))
        return Samples.all_of(Arrays(images), labels)


def _draw(count: int, rng: np.random.RandomState) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (n, 3, 32, 32) and labels."""
    labels, fonts = balanced(rng, count), _brushed_fonts()
    images = np.empty((count, 3, SIZE, SIZE), dtype=np.uint8)
    for row, digit in enumerate(labels):
        paper = _paper(rng)
        # A random colour, or the inverted background.
        colour = rng.uniform(0, 255, (3, 1, 1)) if rng.uniform() < 0.5 else 255 - paper
        ink = _ink(fonts[rng.randint(len(fonts))], digit, rng)
        coloured = (1 - ink) * paper + ink * colour + rng.uniform(0, 8) * rng.standard_normal(paper.shape)
        images[row] = coloured.clip(0, 255)
    return images, labels.astype(np.int64)


@cache
def _brushed_fonts() -> list[list[Image.Image]]:
    """Return the digits of each font with each width of strokes."""
    fonts = glyphs(SERIF_FONTS + SANS_FONTS)
    return [[_brushed(glyph, brush) for glyph in font] for brush in BRUSHES for font in fonts]


def _brushed(glyph: Image.Image, brush: ImageFilter.Filter | None) -> Image.Image:
    return ImageOps.expand(glyph, border=3).filter(brush) if brush else glyph


def _ink(font: list[Image.Image], digit: int, rng: np.random.RandomState) -> NDArray[np.float32]:
    """Return strokes (32, 32) from 0 to 1: rotated, sheared, sometimes blurred or between two other digits."""
    height, (x, y) = rng.uniform(0.55, 0.9), rng.uniform(-0.08, 0.08, 2)
    shape = {"width": rng.uniform(0.8, 1.3), "angle": rng.uniform(-20, 20), "shear": rng.uniform(-0.3, 0.3)}
    drawn = [(digit, x)]
    if rng.uniform() < 0.3:
        drawn += [(rng.randint(NUM_CLASSES), x + side * rng.uniform(0.7, 0.9)) for side in (-1, 1)]
    inks = [place(font[number], height, offset=(centre, y), **shape) for number, centre in drawn]
    ink: NDArray[np.float32] = np.max(inks, axis=0)
    return blur(ink[None])[0] if rng.uniform() < 0.5 else ink


def _paper(rng: np.random.RandomState) -> NDArray[np.float32]:
    """Return a background (3, 32, 32) of 1 to 1,024 colours, blended or with sharp edges."""
    cells = rng.choice([1, 2, 4, 8, 16, 32])
    middle, spread = rng.uniform(0, 255, 3), rng.uniform(0, 80)
    colours = (middle + spread * rng.standard_normal((cells, cells, 3))).clip(0, 255).astype(np.uint8)
    resampling = rng.choice([Image.Resampling.BICUBIC, Image.Resampling.NEAREST])
    return np.asarray(Image.fromarray(colours).resize((SIZE, SIZE), resampling), dtype=np.float32).transpose(2, 0, 1)
