"""Draw digits from fonts, for domains that are generated and not read."""

from __future__ import annotations

from functools import cache
from math import cos, radians, sin
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

NUM_CLASSES = 10
CANVAS = 32  # width and height, in pixels

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


def _glyph(font: ImageFont.FreeTypeFont, text: str) -> Image.Image:
    """Draw white text on black, cropped to its bounding box."""
    left, top, right, bottom = font.getbbox(text)
    image = Image.new("L", (int(right - left), int(bottom - top)))
    ImageDraw.Draw(image).text((-left, -top), text, fill=255, font=font)
    return image


@cache
def glyphs(names: tuple[str, ...]) -> list[list[Image.Image]]:
    """Draw the ten digits in each font, large, white on black."""
    from matplotlib import get_data_path  # imported here, because the driver imports this module but draws nothing

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
    """Place an image on a canvas of 32 × 32 pixels, with values from 0 to 1.

    Parameters
    ----------
    image
        A glyph, white on black.
    height
        Height of the image, relative to the canvas.
    width
        Factor of horizontal stretching.
    angle
        Clockwise rotation in degrees.
    shear
        Horizontal shear.
    offset
        Position of the centre of the image, from the centre of the canvas and relative to its size.
    """
    scale = image.height / (height * CANVAS)
    rotation = np.array([[cos(radians(angle)), sin(radians(angle))], [-sin(radians(angle)), cos(radians(angle))]])
    matrix = scale * np.array([[1 / width, shear], [0.0, 1.0]]) @ rotation
    middle = CANVAS * (0.5 + np.array(offset))
    start = np.array([image.width, image.height]) / 2 - matrix @ middle
    data = (*matrix[0], start[0], *matrix[1], start[1])
    placed = image.transform((CANVAS, CANVAS), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
    return np.asarray(placed, dtype=np.float32) / 255


def balanced(rng: np.random.RandomState, samples: int) -> np.ndarray:
    """Return labels in random order; each group of ten has every class once."""
    return np.concatenate([rng.permutation(NUM_CLASSES) for _ in range(samples // NUM_CLASSES)])


def blur(images: np.ndarray) -> np.ndarray:
    """Smooth images (n, h, w) with weights 1, 2, 1 in both directions."""
    wide = np.pad(images, ((0, 0), (1, 1), (1, 1)), mode="edge")
    tall = wide[:, :, :-2] + 2 * wide[:, :, 1:-1] + wide[:, :, 2:]
    smooth: np.ndarray = (tall[:, :-2] + 2 * tall[:, 1:-1] + tall[:, 2:]) / 16
    return smooth
