"""Images as people have them: each is read as it looks, or refused by name."""

import io

import numpy as np
import pytest
from PIL import Image

from dpbench.learning.data.custom.hub import images_of
from dpbench.learning.data.custom.image_files import stacked
from dpbench.system.errors import UserError
from tests.omissions import extra

SHADES = np.linspace(0, 1, 64, dtype="float32").reshape(8, 8)
"""A picture of which every half is different."""

GREY = (255 * SHADES).round().astype("uint8")


def encoded(image, form="PNG", **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file


def read(file, channels=1, name="x.png"):
    """The pixels [channels, 8, 8] of an encoded image."""
    return stacked([(name, file)], 8, channels)[0].astype(int)


def grey(mode):
    return Image.fromarray(GREY).convert(mode)


def deep(kind="uint16", most=2**16 - 1):
    return Image.fromarray((most * SHADES).round().astype(kind))


@pytest.mark.parametrize(
    ("image", "form"),
    [
        *((grey(mode), "PNG") for mode in ("L", "P", "LA", "RGB", "RGBA")),
        *((grey(mode), "TIFF") for mode in ("L", "P", "PA", "LA", "RGB", "RGBA", "RGBX")),
        *((grey(mode), "TIFF") for mode in ("CMYK", "YCbCr")),
        *((grey("L"), form) for form in ("BMP", "GIF", "PPM", "WEBP")),
        *((deep(), form) for form in ("PNG", "TIFF", "PPM")),
        (deep(">u2"), "TIFF"),
    ],
    ids=lambda part: getattr(part, "mode", part),
)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_looks_the_same_in_every_mode(image, form, channels):
    pixels = read(encoded(image, form, **({"lossless": True} if form == "WEBP" else {})), channels)
    assert pixels.shape == (channels, 8, 8)
    assert np.abs(pixels - GREY).max() <= 1


def test_black_and_white_is_read_as_it_looks():
    assert np.array_equal(read(encoded(grey("1")))[0], 255 * np.array(grey("1")))


@pytest.mark.parametrize(
    ("image", "says"),
    [
        (Image.fromarray(SHADES), "x.tif has Pillow's mode F, for which it is not known what is"),
        (deep("int32"), "x.tif has Pillow's mode I, for which it is not known what is white: save"),
        (Image.new("LAB", (8, 8)), "x.tif has Pillow's mode LAB, for which it is not known what"),
    ],
)
def test_an_image_without_a_known_range_is_refused_by_its_mode(image, says):
    with pytest.raises(UserError, match=says):
        read(encoded(image, "TIFF"), name="x.tif")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("ink", "form"), [("black", "PNG"), ("grey", "WEBP"), ("red", "TIFF")])
def test_a_shape_drawn_in_transparency_is_seen_on_white(ink, form, channels):
    shape = Image.new("RGBA", (8, 8), ink)
    shape.putalpha(Image.fromarray(GREY))
    on_white = Image.new("RGB", (8, 8), "white")
    on_white.paste(shape, mask=shape.getchannel("A"))
    options = {"lossless": True, "exact": True} if form == "WEBP" else {}
    pixels = read(encoded(shape, form, **options), channels)
    expected = np.array(on_white.convert("L" if channels == 1 else "RGB")).reshape(8, 8, -1)
    assert np.abs(pixels - expected.transpose(2, 0, 1)).max() <= 2
    assert np.ptp(pixels) > 50


@pytest.mark.parametrize("mode", ["P", "RGB", "L"])
def test_a_transparent_colour_is_white(mode):
    image = grey(mode)
    pixels = read(encoded(image, transparency=image.getpixel((0, 0))))[0]
    assert pixels[0, 0] == 255
    assert np.abs(pixels - GREY).flatten()[1:].max() <= 1


UPRIGHT = {
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.T,
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: pixels[::-1, ::-1].T,
    8: lambda pixels: np.rot90(pixels),
}
"""What a viewer does with stored pixels, by the orientation in their EXIF data."""


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_a_photograph_is_upright(form, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.repeat(np.repeat([[0, 80], [160, 240]], 4, 0), 4, 1).astype("uint8")
    options = {"JPEG": {"quality": 100}, "WEBP": {"lossless": True}}.get(form, {})
    pixels = read(encoded(Image.fromarray(stored), form, exif=exif, **options))[0]
    assert np.abs(pixels - UPRIGHT[orientation](stored)).max() <= 1


def test_sixteen_bits_that_use_twelve_are_refused_unless_one_image_uses_more():
    dark = ("dark.png", encoded(deep(most=4095)))
    with pytest.raises(UserError, match=r"0.062 of their range.*is dark.png.* values by 16\.$"):
        stacked([dark, dark], 8, 1)
    both = stacked([dark, ("light.png", encoded(deep()))], 8, 1)
    assert both.max((1, 2, 3)).tolist() == [16, 255]


def test_a_moving_picture_is_refused_and_a_photograph_with_a_preview_is_not():
    second = Image.fromarray(GREY.T)
    for form in ("GIF", "WEBP", "TIFF", "PNG"):
        file = encoded(grey("L"), form, save_all=True, append_images=[second])
        with pytest.raises(UserError, match=r"x.png has several frames: keep the one to learn fro"):
            read(file)
    file = encoded(grey("RGB"), "MPO", save_all=True, append_images=[second.convert("RGB")])
    assert np.abs(read(file)[0] - GREY).max() < 20


def test_a_gif_in_a_file_is_read_or_refused_for_its_frames(tmp_path):
    still, moving = tmp_path / "still.gif", tmp_path / "moving.gif"
    grey("L").save(still)
    grey("L").save(moving, save_all=True, append_images=[Image.fromarray(GREY.T)])
    assert np.abs(read(still)[0] - GREY).max() <= 1
    with pytest.raises(UserError, match=r"moving\.gif has several frames: keep the one"):
        read(moving, name=str(moving))


def test_an_image_that_is_too_large_is_told_so(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(UserError, match=r"x\.png is too large: Image size \(64 pixels\) exceeds"):
        read(encoded(grey("L")))


@pytest.mark.slow
def test_a_damaged_file_is_read_or_named_whatever_is_damaged():
    draw = np.random.default_rng(0)
    for form in ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"):
        whole = encoded(grey("RGB"), form).getvalue()
        for _ in range(100):
            damaged = bytearray(whole[: draw.integers(1, len(whole) + 1)])
            for place in draw.integers(0, len(damaged), draw.integers(0, 4)):
                damaged[place] ^= 1 << draw.integers(8)
            said = ""
            try:
                read(io.BytesIO(damaged), name="the damaged one")
            except UserError as error:
                said = str(error)
            assert not said or said.startswith("the damaged one ")


def test_images_of_the_hub_are_read_as_files_are(tmp_path):
    datasets = pytest.importorskip("datasets", reason=extra("hub"))
    files = [encoded(deep()), encoded(grey("RGBA"))]
    (tmp_path / "a.png").write_bytes(files[0].getvalue())
    kept = [{"bytes": file.getvalue(), "path": None} for file in files]
    kept.append({"bytes": None, "path": str(tmp_path / "a.png")})
    features = datasets.Features({"image": datasets.Image()})
    rows = datasets.Dataset.from_dict({"image": kept}, features=features)
    ours = stacked([("x", file) for file in [*files, files[0]]], 8, 1)
    assert np.array_equal(stacked(images_of(rows, "image"), 8, 1), ours)


@pytest.mark.parametrize(
    ("image", "says"),
    [
        ({"bytes": b"\x89PNG", "path": "dog/3.png"}, "the image in row 2, dog/3.png, is not an im"),
        ({"bytes": b"\x89PNG", "path": None}, "the image in row 2 is not an image, or is trunc"),
        ({"bytes": None, "path": "dog/3.png"}, "the image in row 2, dog/3.png, is not an image"),
        (None, r"dataset\.image=image has no image in row 2: remove the row"),
    ],
)
def test_a_damaged_image_of_the_hub_is_named(image, says):
    datasets = pytest.importorskip("datasets", reason=extra("hub"))
    whole = {"bytes": encoded(grey("L")).getvalue(), "path": None}
    features = datasets.Features({"image": datasets.Image()})
    rows = datasets.Dataset.from_dict({"image": [whole, image]}, features=features)
    with pytest.raises(UserError, match=says):
        stacked(images_of(rows, "image"), 8, 1)
