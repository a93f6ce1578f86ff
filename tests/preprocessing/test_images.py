import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from kerasvit.preprocessing.images import input_problem, read_image
from tests.once import on_last_backend

pytestmark = on_last_backend


HALF = (0.5, 0.5, 0.5)
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype="uint8")


def pixels(image):
    return np.asarray(read_image(image))


def png(mode, **options):
    """An image of a mode, encoded as PNG and decoded again."""
    file = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(file, "png", **options)
    file.seek(0)
    return Image.open(file)


def test_path_image_and_array_are_the_same(tmp_path):
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    for image in (tmp_path / "a.png", str(tmp_path / "a.png"), Image.fromarray(PIXELS)):
        np.testing.assert_array_equal(pixels(image), PIXELS)
    np.testing.assert_array_equal(pixels(PIXELS), PIXELS)


@pytest.mark.parametrize("grey", [PIXELS[..., 0], PIXELS[..., :1]])
def test_grey_array_becomes_three_equal_colours(grey):
    np.testing.assert_array_equal(
        pixels(grey), np.repeat(grey.reshape(5, 7, 1), 3, axis=-1)
    )


def test_fourth_channel_is_dropped():
    alpha = np.full((5, 7, 1), 9, "uint8")
    np.testing.assert_array_equal(pixels(np.concatenate([PIXELS, alpha], -1)), PIXELS)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA"])
def test_every_common_mode_becomes_rgb(mode):
    assert pixels(png(mode)).shape == (5, 7, 3)


def test_transparent_palette_does_not_warn(recwarn):
    image = png("P", transparency=b"\x00\x80")
    assert pixels(image).shape == (5, 7, 3)
    assert not recwarn.list


def test_photo_is_turned_as_the_camera_was_held(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: the top is at the right
    Image.fromarray(PIXELS).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(pixels(tmp_path / "a.png"), np.rot90(PIXELS, -1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_values_0_to_255_of_other_types_are_rounded(dtype):
    np.testing.assert_array_equal(pixels(PIXELS.astype(dtype)), PIXELS)


@pytest.mark.parametrize(
    "array, message",
    [
        (PIXELS / 255, "multiplied by 255"),
        (PIXELS / 127.5 - 1, "values between -1"),
        (PIXELS.astype(int) * 2, "values from 0 to 255"),
        (np.full((2, 2, 3), np.nan), "values between nan"),
        (PIXELS > 9, "dtype bool"),
        (np.zeros((3, 8, 8), "uint8"), "channels that come last"),
        (np.zeros((0, 8, 3), "uint8"), r"Received: shape \(0, 8, 3\)"),
        (np.zeros(4, "uint8"), r"Received: shape \(4,\)"),
    ],
)
def test_an_array_that_is_no_image_raises(array, message):
    with pytest.raises(ValueError, match=message):
        read_image(array)


def test_black_floats_are_an_image():
    assert pixels(np.zeros((2, 2, 3))).max() == 0


def test_more_than_8_bits_raise(tmp_path):
    Image.fromarray(np.full((4, 4), 4095, "uint16")).save(tmp_path / "deep.png")
    with pytest.raises(
        ValueError, match="^[^ ]*deep.png has more than 8 bits"
    ) as caught:
        read_image(tmp_path / "deep.png")
    assert "convert it to 8 bits" in str(caught.value)
    assert "to JPEG or PNG" not in str(caught.value)
    with pytest.raises(ValueError, match="The PIL image has more than 8 bits"):
        read_image(Image.open(tmp_path / "deep.png"))
    with pytest.raises(ValueError, match="more than 8 bits per channel .*'F'"):
        read_image(Image.fromarray(np.zeros((4, 4), "float32")))


def test_of_48_bit_colours_the_higher_bytes_are_read(tmp_path):
    """As libpng, and so TensorFlow, reduces them."""
    deep = (PIXELS.astype(int) * 256 + 200).astype(">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in deep)
    (tmp_path / "deep.png").write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 7, 5, 16, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
    np.testing.assert_array_equal(pixels(tmp_path / "deep.png"), PIXELS)


def chunk(kind, content):
    """A chunk of a PNG."""
    check = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + check


@pytest.mark.parametrize("name", ["a.heic", "a.jpg"])
@pytest.mark.parametrize("brand", [b"heic", b"mif1"])
def test_heic_is_named_with_what_to_do(name, brand, tmp_path):
    (tmp_path / name).write_bytes(b"\0\0\0\x18ftyp" + brand + bytes(400))
    with pytest.raises(ValueError, match="HEIC.*to JPEG, or install pillow-heif"):
        read_image(tmp_path / name)


def test_missing_file_is_named():
    with pytest.raises(ValueError, match="no file nowhere/cat.jpg.*check the path"):
        read_image("nowhere/cat.jpg")


def test_a_folder_raises_and_lists_its_files(tmp_path):
    with pytest.raises(ValueError, match=r"is a folder.*glob"):
        read_image(tmp_path)


def test_web_address_is_to_be_downloaded():
    with pytest.raises(ValueError, match="https://x.org/cat.jpg is a web address"):
        read_image("https://x.org/cat.jpg")


@pytest.mark.parametrize("kept", [0, 10, 200, 1000])
def test_damaged_file_is_named(tmp_path, kept):
    file = io.BytesIO()
    Image.fromarray(np.tile(PIXELS, (20, 20, 1))).save(file, "jpeg")
    (tmp_path / "cut.jpg").write_bytes(file.getvalue()[:kept])
    with pytest.raises(ValueError, match="cut.jpg cannot be read as an image"):
        read_image(tmp_path / "cut.jpg")


@pytest.mark.parametrize("thing", [None, 3, b"cat.jpg", [[1, 2]]])
def test_other_types_raise(thing):
    with pytest.raises(ValueError, match="Received: (NoneType|int|bytes|list)"):
        read_image(thing)


NORMALISED = (PIXELS / 127.5 - 1).astype("float32")


@pytest.mark.parametrize("batch", [NORMALISED, 3 * NORMALISED, np.zeros((2, 2))])
def test_normalised_values_suit_a_model_that_takes_them(batch):
    assert input_problem(batch, HALF, HALF) is None


@pytest.mark.parametrize("batch", [PIXELS, PIXELS.astype("float32"), PIXELS % 2])
def test_values_to_255_do_not_suit_a_model_that_takes_normalised(batch):
    assert "looks like 0 to 255" in input_problem(batch, HALF, HALF)


def test_a_model_made_for_0_to_255_by_its_deviation_takes_them():
    zero, unit = (0.0,) * 3, (1 / 255,) * 3
    assert input_problem(PIXELS, zero, unit) is None


@pytest.mark.parametrize("batch", [PIXELS, PIXELS.astype("float32"), PIXELS * 0.0])
def test_values_to_255_suit_a_model_with_normalisation_built_in(batch):
    assert input_problem(batch, HALF, HALF, built_in=True) is None


@pytest.mark.parametrize("batch", [NORMALISED, PIXELS / 255])
def test_normalised_values_do_not_suit_a_model_with_it_built_in(batch):
    message = input_problem(batch, HALF, HALF, built_in=True)
    assert "looks normalised already" in message


@pytest.mark.parametrize("built_in", [False, True])
def test_nan_is_noticed(built_in):
    batch = np.array([0.5, np.nan])
    assert "not finite" in input_problem(batch, HALF, HALF, built_in=built_in)
