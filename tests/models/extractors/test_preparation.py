"""Image preparation compared with torchvision, and all kinds of images."""

import numpy as np
import pytest
from PIL import Image, ImageOps

from fedrf.models.extractors.preparation import Preparation


def random_image(width, height, mode="RGB", seed=0):
    """Coarse patches with noise: resizing would remove pure noise and leave a ramp almost unchanged."""
    rng = np.random.RandomState(seed)
    coarse = Image.fromarray(rng.randint(0, 256, (7, 9, 3)).astype(np.uint8)).resize((width, height))
    pixels = np.asarray(coarse).astype(int) + rng.randint(-20, 21, (height, width, 3))
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    if mode in ("LA", "RGBA"):
        image.putalpha(Image.fromarray(rng.randint(0, 256, (height, width)).astype(np.uint8)))
    return image.convert(mode)


@pytest.mark.parametrize("size", [(64, 64), (37, 91), (91, 37), (300, 299), (257, 256), (20, 31), (1, 3), (224, 500)])
@pytest.mark.parametrize(
    ("resize", "crop", "resample"), [(64, 64, "bilinear"), (61, 52, "bicubic"), (60, 55, "bilinear")]
)
def test_pixels_equal_torchvisions(size, resize, crop, resample):
    from torchvision import transforms

    image = random_image(*size)
    reference = transforms.Compose(
        [
            transforms.Resize(resize, transforms.InterpolationMode(resample)),
            transforms.CenterCrop(crop),
            transforms.PILToTensor(),
        ]
    )
    assert np.array_equal(Preparation(resize, crop, resample)(image), reference(image).numpy())


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV"])
def test_all_image_modes_become_rgb(mode):
    image = random_image(50, 40, mode)
    prepared = Preparation(32, 32)(image)
    assert prepared.shape == (3, 32, 32)
    assert prepared.dtype == np.uint8
    assert prepared.flags["C_CONTIGUOUS"]
    assert np.array_equal(prepared, Preparation(32, 32)(image.convert("RGB")))


@pytest.mark.filterwarnings("error")
def test_transparent_colours_of_a_palette_keep_their_rgb_values(tmp_path):
    image = Image.new("P", (4, 4))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "image.png", transparency=b"\x00\x80")
    pixels = Preparation(4, 4)(Image.open(tmp_path / "image.png"))
    assert pixels[:, 0, 0].tolist() == [10, 20, 30]
    assert pixels[:, 0, 1].tolist() == [200, 100, 50]


@pytest.mark.parametrize("kind", ["I;16", "I;16B", "I"])
def test_16_bit_grey_levels_keep_their_range(kind):
    greys = np.array([[0, 257, 128], [32896, 65535, 65400]])
    dtype = {"I;16": "<u2", "I;16B": ">u2", "I": "<i4"}[kind]
    image = Image.frombytes(kind, (3, 2), greys.astype(dtype).tobytes())
    pixels = Preparation(2, 2)(image)
    assert pixels.tolist() == [[[0, 1], [128, 255]]] * 3


def test_a_file_with_16_bit_grey_levels(tmp_path):
    ramp = np.linspace(0, 65535, 32 * 32).reshape(32, 32).astype(np.uint16)
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    pixels = Preparation(32, 32)(Image.open(tmp_path / "ramp.png"))
    np.testing.assert_allclose(pixels[0], ramp / 257, atol=0.51)


def test_the_shorter_side_and_the_centre_by_hand():
    # Columns 0 to 5: nothing to resize, the middle four are kept.
    image = Image.fromarray(np.tile(np.arange(6, dtype=np.uint8) * 10, (4, 1)))
    assert Preparation(4, 4)(image)[0, 0].tolist() == [10, 20, 30, 40]
    # Pairs of equal columns, resized by half: each output is an average around one pair.
    image = Image.fromarray(np.tile(np.repeat([0, 80, 160, 240], 2).astype(np.uint8), (8, 1)))
    assert Preparation(4, 2)(image)[0, 0].tolist() == [80, 160]


def test_the_exif_orientation_is_ignored(tmp_path):
    image = random_image(40, 40)
    exif = Image.Exif()
    exif[0x0112] = 3
    image.save(tmp_path / "turned.png", exif=exif)
    opened = Image.open(tmp_path / "turned.png")
    assert not np.array_equal(np.asarray(ImageOps.exif_transpose(opened)), np.asarray(image))
    assert np.array_equal(Preparation(32, 32)(opened), Preparation(32, 32)(image))


def test_repr_has_all_settings():
    assert repr(Preparation(256, 224, "bicubic")) == "Preparation(resize=256, crop=224, resample='bicubic')"


def test_a_crop_larger_than_the_image_is_refused():
    with pytest.raises(ValueError, match=r"crop must be between 1 and resize; got .*crop=65"):
        Preparation(64, 65)


def test_a_very_long_image_is_cropped_before_resizing():
    pixels = np.zeros((4, 12000, 3), dtype=np.uint8)
    pixels[:, 5990:6010] = 255
    prepared = Preparation(64, 32)(Image.fromarray(pixels))
    assert prepared.shape == (3, 32, 32)
    assert prepared.min() == 255


def test_grey_levels_as_floats():
    ramp = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    expected = Preparation(8, 8)(Image.fromarray((255 * ramp).round().astype(np.uint8)))
    assert np.array_equal(Preparation(8, 8)(Image.fromarray(ramp)), expected)
    assert np.array_equal(Preparation(8, 8)(Image.fromarray(255 * ramp)), expected)
