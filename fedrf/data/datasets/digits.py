"""The embedded data set `digits`: four domains of the ten digits, made on the spot from what is installed anyway.

All images are grey, 16 × 16 pixels.

=========== ======= ============================================================================================
domain      samples what it is
=========== ======= ============================================================================================
handwritten 1,198   two thirds of scikit-learn's `load_digits`, 8 × 8 pixels, enlarged and otherwise as they are
rendered    1,800   12 fonts, most with serifs, white on black: turned by up to 20° either way, sheared, stretched
                    and moved a little
textured    1,797   the other third of `load_digits`, each three times, with its own small turn and background:
                    the absolute difference to stripes, a gradient, patches or noise, so that one stroke may be
                    bright here and dark there
street      1,800   9 fonts without serifs, all turned clockwise by 10° to 30°: soft, noisy, of weak contrast, dark
                    on light or light on dark, often with parts of other digits to the left and right
=========== ======= ============================================================================================

Only the hand-written strokes are real. The other looks imitate MNIST-M and house numbers, and are easier than those;
the shifts between domains were chosen so that adaptation has something to gain. No hand-written digit and no font
serves two domains. The fonts come with Matplotlib, so another version of it or of Pillow may draw other pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import cos, radians, sin
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fedrf.config.schema import DataConfig
from fedrf.data.dataset import Dataset
from fedrf.data.samples import Arrays, Samples

NUM_CLASSES = 10
SIZE = 16
RENDERED_SAMPLES = 1800
COPIES = 3

SERIF_FONTS = (
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "STIXGeneralBolIta",
    "cmb10",
    "cmr10",
    "cmti10",
    "cmtt10",
)
SANS_FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSans-BoldOblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-Oblique",
    "DejaVuSansMono-BoldOblique",
    "cmss10",
)

# Twice the final size: strokes drawn at 16 pixels would be jagged.
_CANVAS = 2 * SIZE


def _glyph(font: ImageFont.FreeTypeFont, text: str) -> Image.Image:
    """Draw white text on black, cut at its bounding box."""
    left, top, right, bottom = font.getbbox(text)
    image = Image.new("L", (int(right - left), int(bottom - top)))
    ImageDraw.Draw(image).text((-left, -top), text, fill=255, font=font)
    return image


@cache
def glyphs(names: tuple[str, ...]) -> list[list[Image.Image]]:
    """Draw the ten digits in each font, large and white on black."""
    from matplotlib import get_data_path  # here, because the driver reads this module and draws nothing

    folder = Path(get_data_path()) / "fonts" / "ttf"
    fonts = [ImageFont.truetype(str(folder / f"{name}.ttf"), 64) for name in names]
    return [[_glyph(font, str(digit)) for digit in range(NUM_CLASSES)] for font in fonts]


def place(
    image: Image.Image,
    height: float,
    width: float = 1.0,
    angle: float = 0.0,
    shear: float = 0.0,
    offset: tuple[float, float] = (0.0, 0.0),
) -> np.ndarray:
    """Put the centre of `image` at `offset` from the centre of a canvas, `height` canvas heights tall."""
    scale = image.height / (height * _CANVAS)
    turn = np.array([[cos(radians(angle)), sin(radians(angle))], [-sin(radians(angle)), cos(radians(angle))]])
    matrix = scale * np.array([[1 / width, shear], [0.0, 1.0]]) @ turn
    middle = _CANVAS * (0.5 + np.array(offset))
    start = np.array([image.width, image.height]) / 2 - matrix @ middle
    data = (*matrix[0], start[0], *matrix[1], start[1])
    placed = image.transform((_CANVAS, _CANVAS), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
    return np.asarray(placed, dtype=np.float32) / 255


def _shrink(canvas: np.ndarray) -> np.ndarray:
    """Average 2 × 2 pixels of (n, 32, 32) images."""
    small: np.ndarray = canvas.reshape(-1, SIZE, 2, SIZE, 2).mean(axis=(2, 4))
    return small


def balanced(rng: np.random.RandomState, samples: int) -> np.ndarray:
    """Return labels in random order, every class once in each run of ten."""
    return np.concatenate([rng.permutation(NUM_CLASSES) for _ in range(samples // NUM_CLASSES)])


def _handwriting() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the 8 × 8 images, their labels, and for each whether it belongs to `textured`."""
    from sklearn.datasets import load_digits

    values, labels = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(values))
    images = (values[order] / 16 * 255).round().astype(np.uint8).reshape(-1, 8, 8)
    return images, labels[order], np.arange(len(images)) % 3 == 0


def _handwritten(rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    images, labels, textured = _handwriting()
    chosen = rng.permutation(np.flatnonzero(~textured))
    big = [Image.fromarray(images[row]).resize((SIZE, SIZE), Image.Resampling.BICUBIC) for row in chosen]
    return np.stack([np.asarray(image) for image in big]) / 255, labels[chosen]


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
        strength /= 2  # pixel noise hides 16 x 16 strokes sooner than anything smooth does
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


def blur(images: np.ndarray) -> np.ndarray:
    """Smooth with weights 1, 2, 1 in both directions."""
    wide = np.pad(images, ((0, 0), (1, 1), (1, 1)), mode="edge")
    tall = wide[:, :, :-2] + 2 * wide[:, :, 1:-1] + wide[:, :, 2:]
    smooth: np.ndarray = (tall[:, :-2] + 2 * tall[:, 1:-1] + tall[:, 2:]) / 16
    return smooth


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


_MAKERS: dict[str, Callable[[np.random.RandomState], tuple[np.ndarray, np.ndarray]]] = {
    "handwritten": _handwritten,
    "rendered": _rendered,
    "textured": _textured,
    "street": _street,
}
DOMAINS = tuple(_MAKERS)


class Digits(Dataset):
    """The embedded digits: the same bits on every call, samples in random order."""

    name = "digits"
    about = "four looks of the ten digits, made on the spot"
    origin = "fedrf itself"

    def domains(self, config: DataConfig) -> tuple[str, ...]:
        """Return the four looks."""
        return DOMAINS

    def classes(self, config: DataConfig) -> tuple[str, ...]:
        """Return the ten digits."""
        return tuple(str(digit) for digit in range(NUM_CLASSES))

    def locate(self, config: DataConfig, domain: str) -> None:
        """Return None: there are no files."""

    def load(self, config: DataConfig, domain: str) -> Samples:
        """Draw one domain: float32 in [0, 1] of shape (n, 1, 16, 16)."""
        images, labels = _MAKERS[domain](np.random.RandomState(1 + DOMAINS.index(domain)))
        return Samples.all_of(Arrays(images[:, None].astype(np.float32)), labels)
