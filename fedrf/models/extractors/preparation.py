"""From a picture to the pixels that a network expects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image


@dataclass(frozen=True)
class Preparation:
    """Resize the shorter side of a picture, cut the square from its centre; rounds and samples as torchvision does.

    Parameters
    ----------
    resize
        Pixels of the shorter side.
    crop
        Pixels of each side of the square, at most `resize`.
    """

    resize: int
    crop: int
    resample: Literal["bilinear", "bicubic"] = "bilinear"

    def __post_init__(self) -> None:
        if not 1 <= self.crop <= self.resize:
            raise ValueError(f"crop must be between 1 and resize; got {self}")

    def __call__(self, image: Image.Image) -> NDArray[np.uint8]:
        """Return the pixels, as stored (a note on orientation is ignored), of shape (3, crop, crop)."""
        image, short = _not_too_long(image), min(image.size)
        width, height = (int(self.resize * side / short) for side in image.size)
        image = _rgb(image).resize((width, height), Image.Resampling[self.resample.upper()])
        left, top = (round((side - self.crop) / 2) for side in image.size)
        image = image.crop((left, top, left + self.crop, top + self.crop))
        return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def _not_too_long(image: Image.Image) -> Image.Image:
    """Cut the middle from a very long picture, of which no more is looked at: resized, it might not fit into memory."""
    longest = 16 * min(image.size)
    left, top = (max(0, (side - longest) // 2) for side in image.size)
    return image.crop((left, top, image.width - left, image.height - top)) if left or top else image


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # Greys of 16 bits, which Pillow would clip to 8.
        greys = np.asarray(image).clip(0, 65535) / 257
        image = Image.fromarray(greys.round().astype(np.uint8))
    elif image.mode == "F":
        # Either from 0 to 1 or as bytes.
        greys = np.nan_to_num(np.asarray(image))
        image = Image.fromarray((greys * (255 if greys.max() <= 1 else 1)).clip(0, 255).round().astype(np.uint8))
    elif image.mode == "P":
        # Straight to RGB, Pillow warns of transparent colours; they keep their red, green and blue on both ways.
        image = image.convert("RGBA")
    return image.convert("RGB")
