"""Digit-Four: three data sets of Digit-Five, and digits drawn on the spot in place of those that are hard to get.

`rendered` stands in for Synthetic Digits, which are drawn from fonts too: 21 fonts in any colour on any other, plain,
shaded or in patches, turned, sheared and moved, sharp or soft, often with parts of other digits beside them. It is
not that data set, and figures of the two do not compare.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps

from fedrf.config.schema import DataConfig
from fedrf.data.datasets.digit_five import COUNTS, DIGITS, DOMAINS, SIZE, DigitFive
from fedrf.data.datasets.digits import SANS_FONTS, SERIF_FONTS, balanced, blur, glyphs, place
from fedrf.data.samples import Arrays, Samples

RENDERED = "rendered"
RENDERED_COUNTS = (6_000, 1_000)
READ = ("mnist", "mnist-m", "usps")
SEEDS = {"train": 4, "test": 5}
BRUSHES = (None, ImageFilter.MinFilter(3), ImageFilter.MaxFilter(3), ImageFilter.MaxFilter(7))


class DigitFour(DigitFive):
    """MNIST, MNIST-M and USPS from files, and rendered digits."""

    name = "digit-four"
    about = "the ten digits in 4 domains, one of them drawn from fonts, images of 32 × 32"
    domain_names = {name: DOMAINS[name] for name in READ} | {RENDERED: ()}
    counts = {name: COUNTS[name] for name in READ} | {RENDERED: RENDERED_COUNTS}

    def locate(self, config: DataConfig, domain: str) -> Path | None:
        """Return the folder of one domain; None for what is drawn."""
        return None if domain == RENDERED else super().locate(config, domain)

    def load(self, config: DataConfig, domain: str) -> Samples:
        """Read or draw one domain: uint8 of shape (n, 3, 32, 32)."""
        if domain != RENDERED:
            return super().load(config, domain)
        counts = dict(zip(self.splits, RENDERED_COUNTS, strict=True))
        drawn = [_draw(counts[part], np.random.RandomState(SEEDS[part])) for part in self.parts(config)]
        images, labels = (np.concatenate(arrays) for arrays in zip(*drawn, strict=True))
        return Samples.all_of(Arrays(images), labels)


def _draw(count: int, rng: np.random.RandomState) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    labels, fonts = balanced(rng, count), _brushed_fonts()
    images = np.empty((count, 3, SIZE, SIZE), dtype=np.uint8)
    for row, digit in enumerate(labels):
        paper = _paper(rng)
        # A colour of its own, or what is under it turned to its opposite.
        colour = rng.uniform(0, 255, (3, 1, 1)) if rng.uniform() < 0.5 else 255 - paper
        ink = _ink(fonts[rng.randint(len(fonts))], digit, rng)
        coloured = (1 - ink) * paper + ink * colour + rng.uniform(0, 8) * rng.standard_normal(paper.shape)
        images[row] = coloured.clip(0, 255)
    return images, labels.astype(np.int64)


@cache
def _brushed_fonts() -> list[list[Image.Image]]:
    """Return the digits of each font, written with each brush."""
    fonts = glyphs(SERIF_FONTS + SANS_FONTS)
    return [[_brushed(glyph, brush) for glyph in font] for brush in BRUSHES for font in fonts]


def _brushed(glyph: Image.Image, brush: ImageFilter.Filter | None) -> Image.Image:
    return ImageOps.expand(glyph, border=3).filter(brush) if brush else glyph


def _ink(font: list[Image.Image], digit: int, rng: np.random.RandomState) -> NDArray[np.float32]:
    """Return the strokes (32, 32), from 0 to 1: thin or thick, leaning either way, sometimes between others."""
    height, (x, y) = rng.uniform(0.55, 0.9), rng.uniform(-0.08, 0.08, 2)
    shape = {"width": rng.uniform(0.8, 1.3), "angle": rng.uniform(-20, 20), "shear": rng.uniform(-0.3, 0.3)}
    drawn = [(digit, x)]
    if rng.uniform() < 0.3:
        drawn += [(rng.randint(DIGITS), x + side * rng.uniform(0.7, 0.9)) for side in (-1, 1)]
    inks = [place(font[one], height, offset=(across, y), **shape) for one, across in drawn]
    ink: NDArray[np.float32] = np.max(inks, axis=0)
    return blur(ink[None])[0] if rng.uniform() < 0.5 else ink


def _paper(rng: np.random.RandomState) -> NDArray[np.float32]:
    """Return a background (3, 32, 32): from one colour to a thousand, blended into each other or with sharp edges."""
    cells = rng.choice([1, 2, 4, 8, 16, 32])
    middle, spread = rng.uniform(0, 255, 3), rng.uniform(0, 80)
    colours = (middle + spread * rng.standard_normal((cells, cells, 3))).clip(0, 255).astype(np.uint8)
    way = rng.choice([Image.Resampling.BICUBIC, Image.Resampling.NEAREST])
    return np.asarray(Image.fromarray(colours).resize((SIZE, SIZE), way), dtype=np.float32).transpose(2, 0, 1)
