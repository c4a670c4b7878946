"""The embedded data set `digits`: four domains of the ten digits, generated from scikit-learn's digits and from fonts.

All images are greyscale, 16 × 16 pixels.

=========== ======= ============================================================================================
domain      samples description
=========== ======= ============================================================================================
handwritten 1,198   two thirds of scikit-learn's `load_digits`, 8 × 8 pixels, enlarged and otherwise unchanged
rendered    1,800   12 fonts, most with serifs, white on black: rotated by up to 20° in both directions, and
                    slightly sheared, stretched and shifted
textured    1,797   the other third of `load_digits`, each three times, with its own small rotation and background:
                    the absolute difference to stripes, a gradient, patches or noise, so that parts of a stroke
                    can be bright and others dark
street      1,800   9 fonts without serifs, all rotated clockwise by 10° to 30°: blurred, noisy, of low contrast, dark
                    on light or light on dark, often with parts of other digits to the left and right
=========== ======= ============================================================================================

Only the handwritten strokes are real. `textured` and `street` imitate MNIST-M and house numbers, and are easier than
those. The shifts between domains were chosen so that adaptation improves accuracy. No handwritten digit and no font is
used in two domains. The fonts come with Matplotlib, so other versions of Matplotlib or Pillow can draw other pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, sin

import numpy as np
from PIL import Image

from fedrf.config.schema import DataConfig
from fedrf.data.content import Arrays
from fedrf.data.dataset import Dataset
from fedrf.data.datasets.drawing import CANVAS, NUM_CLASSES, SANS_FONTS, SERIF_FONTS, balanced, blur, glyphs, place
from fedrf.data.samples import Samples

SIZE = CANVAS // 2  # strokes drawn at the final size would be jagged
RENDERED_SAMPLES = 1800
COPIES = 3
SIZES = {"handwritten": 1198, "rendered": RENDERED_SAMPLES, "textured": 1797, "street": RENDERED_SAMPLES}


def _shrink(canvas: np.ndarray) -> np.ndarray:
    """Average blocks of 2 × 2 pixels of images (n, 32, 32)."""
    small: np.ndarray = canvas.reshape(-1, SIZE, 2, SIZE, 2).mean(axis=(2, 4))
    return small


def _handwriting() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the 8 × 8 images, their labels, and whether each image belongs to `textured`."""
    from sklearn.datasets import load_digits

    values, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(values))
    images = (values[order] / 16 * 255).round().astype(np.uint8).reshape(-1, 8, 8)
    return images, labels[order], np.arange(len(images)) % 3 == 0


def _handwritten(rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    images, labels, textured = _handwriting()
    chosen = rng.permutation(np.flatnonzero(~textured))
    enlarged = [Image.fromarray(images[row]).resize((SIZE, SIZE), Image.Resampling.BICUBIC) for row in chosen]
    return np.stack([np.asarray(image) for image in enlarged]) / 255, labels[chosen]


def _rendered(rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    labels, fonts = balanced(rng, RENDERED_SAMPLES), glyphs(SERIF_FONTS)
    images = [
        place(
            fonts[rng.randint(len(fonts))][digit],
            height=rng.uniform(0.7, 0.95),
            width=rng.uniform(0.85, 1.2),
            angle=rng.uniform(-20, 20),
            shear=rng.uniform(-0.15, 0.15),
            offset=tuple(rng.uniform(-0.06, 0.06, 2)),
        )
        for digit in labels
    ]
    return _shrink(np.stack(images)), labels


def _background(rng: np.random.RandomState) -> np.ndarray:
    """Draw one of four kinds of background, with values from 0 to at most 0.8."""
    down, right = np.mgrid[:SIZE, :SIZE] / (SIZE - 1) - 0.5
    angle, strength = rng.uniform(0, 2 * np.pi), rng.uniform(0.3, 0.8)
    along: np.ndarray = cos(angle) * right + sin(angle) * down
    kind = rng.choice(["stripes", "gradient", "patches", "noise"])
    if kind == "stripes":
        texture = np.sin(2 * np.pi * (rng.uniform(1, 3) * along + rng.uniform()))
    elif kind == "gradient":
        texture = along
    elif kind == "patches":
        coarse = Image.fromarray(rng.uniform(size=(4, 4)).astype(np.float32))
        texture = np.asarray(coarse.resize((SIZE, SIZE), Image.Resampling.BICUBIC))
    else:
        texture = rng.uniform(size=(SIZE, SIZE))
        strength /= 2  # noise hides strokes of 16 × 16 pixels more than smooth textures do
    scaled: np.ndarray = strength * (texture - texture.min()) / (texture.max() - texture.min())
    return scaled


def _textured(rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    images, labels, textured = _handwriting()
    chosen = np.concatenate([rng.permutation(np.flatnonzero(textured)) for _ in range(COPIES)])
    strokes = [
        place(
            Image.fromarray(images[row]).resize((4 * SIZE, 4 * SIZE), Image.Resampling.BICUBIC),
            height=rng.uniform(0.9, 1.05),
            angle=rng.uniform(-10, 10),
            offset=tuple(rng.uniform(-0.05, 0.05, 2)),
        )
        for row in chosen
    ]
    backgrounds = np.stack([_background(rng) for _ in chosen])
    return np.abs(_shrink(np.stack(strokes)) - backgrounds), labels[chosen]


def _street(rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    labels, fonts = balanced(rng, RENDERED_SAMPLES), glyphs(SANS_FONTS)
    canvases = []
    for digit in labels:
        font, height, angle = fonts[rng.randint(len(fonts))], rng.uniform(0.65, 0.9), rng.uniform(10, 30)
        x, y = rng.uniform(-0.06, 0.06, 2)
        left, right = rng.randint(NUM_CLASSES, size=2)
        gap = rng.uniform(0.62, 0.85)
        canvas = place(font[digit], height, angle=angle, offset=(x, y))
        for neighbour, side in ((left, -gap), (right, gap)):
            if rng.uniform() < 0.5:
                canvas = np.maximum(canvas, place(font[neighbour], height, angle=angle, offset=(x + side, y)))
        canvases.append(canvas)
    ink = _shrink(blur(np.stack(canvases)))
    count = (len(labels), 1, 1)
    paper, contrast = rng.uniform(0.2, 0.8, count), rng.uniform(0.25, 0.6, count)
    light = paper + np.where(paper < 0.5, contrast, -contrast) * ink
    return np.clip(light + 0.03 * rng.standard_normal(light.shape), 0, 1), labels


_GENERATORS: dict[str, Callable[[np.random.RandomState], tuple[np.ndarray, np.ndarray]]] = {
    "handwritten": _handwritten,
    "rendered": _rendered,
    "textured": _textured,
    "street": _street,
}
DOMAINS = tuple(_GENERATORS)


class Digits(Dataset):
    """The embedded digits; every call returns the same bits, samples in random order."""

    name = "digits"
    about = "the ten digits in 4 domains, generated, images of 16 × 16"
    origin = "fedrf, which generates it"

    def domains(self, config: DataConfig) -> tuple[str, ...]:
        """Return the four domains."""
        return DOMAINS

    def classes(self, config: DataConfig) -> tuple[str, ...]:
        """Return the ten digits."""
        return tuple(str(digit) for digit in range(NUM_CLASSES))

    def locate(self, config: DataConfig, domain: str) -> None:
        """Return None, because there are no files."""

    def load(self, config: DataConfig, domain: str) -> Samples:
        """Draw one domain: float32 in [0, 1] of shape (n, 1, 16, 16)."""
        images, labels = _GENERATORS[domain](np.random.RandomState(1 + DOMAINS.index(domain)))
        return Samples.all_of(Arrays(images[:, None].astype(np.float32)), labels)

    def outline(self, config: DataConfig, domain: str) -> Samples:
        """Return samples without pixels; they are drawn only where the labels decide which client has which."""
        if config.partition == "dirichlet" or config.imbalance != 1 or config.missing_classes:
            return self.load(config, domain)
        return Samples.without_values(SIZES[domain], np.zeros(SIZES[domain], dtype=np.int64))
