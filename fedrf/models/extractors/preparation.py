"""Image preparation: from a decoded image to the pixels that a network expects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image


@dataclass(frozen=True)
class Preparation:
    """Resizes the shorter side of an image and crops the central square, with the same result as torchvision.

    Parameters
    ----------
    resize
        Length of the shorter side, in pixels.
    crop
        Side of the square, in pixels; at most `resize`.
    """

    resize: int
    crop: int
    resample: Literal["bilinear", "bicubic"] = "bilinear"

    def __post_init__(self) -> None:
        if not 1 <= self.crop <= self.resize:
            raise ValueError(f"crop must be between 1 and resize; got {self}")

    def __call__(self, image: Image.Image) -> NDArray[np.uint8]:
        """Return the pixels, (3, crop, crop), in their stored orientation (the EXIF tag is ignored)."""
        image, short = _crop_long_side(image), min(image.size)
        width, height = (int(self.resize * side / short) for side in image.size)
        image = _rgb(image).resize((width, height), Image.Resampling[self.resample.upper()])
        left, top = (round((side - self.crop) / 2) for side in image.size)
        image = image.crop((left, top, left + self.crop, top + self.crop))
        return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def _crop_long_side(image: Image.Image) -> Image.Image:
    """Crop the centre of a very long image, which might not fit into memory when resized; the rest is not used."""
    longest = 16 * min(image.size)
    left, top = (max(0, (side - longest) // 2) for side in image.size)
    return image.crop((left, top, image.width - left, image.height - top)) if left or top else image


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # 16-bit grey levels, which Pillow would clip to 8 bits.
        greys = np.asarray(image).clip(0, 65535) / 257
        image = Image.fromarray(greys.round().astype(np.uint8))
    elif image.mode == "F":
        # Grey levels from 0 to 1 or from 0 to 255.
        greys = np.nan_to_num(np.asarray(image))
        image = Image.fromarray((greys * (255 if greys.max() <= 1 else 1)).clip(0, 255).round().astype(np.uint8))
    elif image.mode == "P":
        # Via RGBA, because Pillow warns about transparent colours on the direct way; the RGB values are the same.
        image = image.convert("RGBA")
    return image.convert("RGB")
