"""Images as people have them: each is read as it looks, or refused by name."""

import io
import struct
import zlib

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
        (Image.fromarray(SHADES), "TIFF"),
    ],
    ids=lambda part: getattr(part, "mode", part),
)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_looks_the_same_in_every_mode(image, form, channels):
    pixels = read(encoded(image, form, **({"lossless": True} if form == "WEBP" else {})), channels)
    assert pixels.shape == (channels, 8, 8)
    assert np.abs(pixels - GREY).max() <= 1


def test_black_and_white_twelve_bits_and_inverted_modes_are_read_by_their_range():
    assert np.array_equal(read(encoded(grey("1")))[0], 255 * np.array(grey("1")))
    pixels = read(tiff_of((4095 * SHADES).round().astype("uint16"), bits=12))[0]
    assert np.abs(pixels - GREY).max() <= 1
    pixels = read(tiff_of((65535 * SHADES).round().astype("uint16"), 16, white_is_zero=True))[0]
    assert np.abs(255 - pixels - GREY).max() <= 1


@pytest.mark.parametrize(
    ("image", "says"),
    [
        (Image.fromarray(SHADES * 255), "mode F and values from 0 to 255, for which it is not"),
        (Image.fromarray(SHADES - 1), "mode F and values from -1 to 0, for which it is not known"),
        (Image.fromarray(SHADES * np.float32("nan")), "mode F and values from nan to nan"),
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


@pytest.mark.parametrize("mode", ["P", "RGB", "L", "I;16"])
def test_a_transparent_colour_is_white(mode):
    image = deep() if mode == "I;16" else grey(mode)
    pixels = read(encoded(image, transparency=image.getpixel((0, 0))))[0]
    assert pixels[0, 0] == 255
    assert np.abs(pixels - GREY).flatten()[1:].max() <= 1


def test_shapes_invisible_on_white_are_refused():
    white, unseen = Image.new("RGBA", (8, 8), "white"), grey("RGBA")
    white.putalpha(Image.fromarray(GREY))
    unseen.putalpha(0)
    for shape in (white, unseen):
        with pytest.raises(UserError, match=r"x\.png cannot be seen on white, on which tra"):
            read(encoded(shape))
    assert (read(encoded(Image.new("RGBA", (8, 8)))) == 255).all()


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


def tiff_of(values, bits, white_is_zero=False):
    """A grey TIFF of that many bits a value, packed."""
    height, width = values.shape
    packed = "".join(f"{value:0{bits}b}" for value in values.flatten().tolist())
    if bits == 16:
        data = values.astype("<u2").tobytes()
    else:
        data = int(packed, 2).to_bytes(len(packed) // 8, "big")
    shades = 0 if white_is_zero else 1
    tags = [(256, width), (257, height), (258, bits), (259, 1), (262, shades), (273, 8)]
    tags += [(277, 1), (278, height), (279, len(data))]
    start = 8 + len(data)
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    header = b"II*\0" + struct.pack("<I", start)
    return io.BytesIO(header + data + struct.pack("<H", len(tags)) + entries + b"\0" * 4)


def test_sixteen_bits_that_use_twelve_are_refused_unless_one_image_uses_more():
    dark = ("dark.png", encoded(deep(most=4095)))
    with pytest.raises(UserError, match=r"0.062 of their range.*is dark.png.* values by 16\.$"):
        stacked([dark, dark], 8, 1)
    both = stacked([dark, ("light.png", encoded(deep()))], 8, 1)
    assert both.max((1, 2, 3)).tolist() == [16, 255]


def png16(pixels, kind):
    """A PNG of 16 bits a channel [h, w, channels], which Pillow does not write."""

    def chunk(name, data):
        checked = name + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return io.BytesIO(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def tiff16(pixels, _):
    """A TIFF of 16 bits a channel [h, w, 3 or 4]."""
    height, width, channels = pixels.shape
    data = pixels.astype("<u2").tobytes()
    bits = struct.pack(f"<{channels}H", *[16] * channels)
    at, start = 8 + len(data), 8 + len(data) + len(bits)
    tags = [(256, 1, width), (257, 1, height), (258, channels, at), (259, 1, 1), (262, 1, 2)]
    tags += [(273, 1, 8), (277, 1, channels), (278, 1, height), (279, 1, len(data))]
    entries = b"".join(struct.pack("<HHII", t, 3 if t == 258 else 4, n, v) for t, n, v in tags)
    header = b"II*\0" + struct.pack("<I", start)
    return io.BytesIO(header + data + bits + struct.pack("<H", len(tags)) + entries + b"\0" * 4)


def ppm16(pixels, _):
    height, width, _ = pixels.shape
    return io.BytesIO(f"P6 {width} {height} 65535\n".encode() + pixels.astype(">u2").tobytes())


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("write", "kind", "colours", "alpha"),
    [
        (png16, 2, 3, False),
        (png16, 6, 3, True),
        (png16, 4, 1, True),
        (tiff16, 0, 3, False),
        (tiff16, 0, 3, True),
        (ppm16, 0, 3, False),
    ],
)
def test_sixteen_bits_of_a_colour_that_use_fewer_are_refused(write, kind, colours, alpha, channels):
    def of(most):
        shades = np.repeat((most * SHADES).round()[..., None], colours, 2)
        opaque = np.full((8, 8, 1), 2**16 - 1)
        return write(np.concatenate([shades, opaque], 2) if alpha else shades, kind)

    for most, factor in ((100, 256), (4095, 16), (2**13 - 1, 8)):
        dark = ("dark.png", of(most))
        by = f"({factor}|{factor // 2})" if write is ppm16 else factor  # whose values are rounded
        with pytest.raises(UserError, match=rf"of their range.*dark.png.* values by {by}\.$"):
            stacked([dark, dark], 8, channels)
    pixels = stacked([dark, ("light.png", of(2**16 - 1))], 8, channels)[1].astype(int)
    assert np.abs(pixels - GREY).max() <= 1


def test_colours_of_five_bits_are_not_taken_for_sixteen():
    dark = (7 * SHADES).astype("uint16").reshape(8, 8)
    data = (dark << 11 | dark << 6 | dark).astype("<u2").tobytes()
    header = struct.pack("<IiiHHIIiiII", 40, 8, 8, 1, 16, 3, len(data), 1, 1, 0, 0)
    masks = struct.pack("<III", 0xF800, 0x7E0, 0x1F)
    start = 14 + len(header) + len(masks)
    file = struct.pack("<2sIHHI", b"BM", start + len(data), 0, 0, start) + header + masks + data
    assert 0 < read(io.BytesIO(file)).max() < 64


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
    files = [encoded(deep()), encoded(grey("RGBA")), encoded(Image.fromarray(SHADES), "TIFF")]
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
