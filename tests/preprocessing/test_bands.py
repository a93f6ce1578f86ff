"""Images with other than three channels, and of more than 8 bits."""

import numpy as np
import pytest
from PIL import Image

from kerasvit import Preprocessing
from kerasvit.preprocessing import ChannelsError, read_bands, read_image
from tests.once import on_last_backend

pytestmark = on_last_backend  # all of it is NumPy and Pillow

RNG = np.random.default_rng(0)
DEEP = (RNG.uniform(size=(12, 10)) * 65_535).astype("uint16")
MANY = RNG.integers(0, 255, (12, 10, 13), dtype="uint8")


def test_16_bits_are_divided_by_their_largest_value(tmp_path):
    for name in ("a.png", "a.tif"):
        Image.fromarray(DEEP).save(tmp_path / name)
        found = read_bands(tmp_path / name, 1)
        assert found.shape == (12, 10, 1) and found.dtype == "float32"
        np.testing.assert_allclose(found[..., 0], DEEP / 65_535 * 255, rtol=1e-6)


def test_types_of_arrays():
    unit = MANY / np.float32(255)
    for array in (MANY, unit, unit.astype("float64")):
        np.testing.assert_allclose(read_bands(array, 13), MANY, atol=1e-4)
    np.testing.assert_allclose(
        read_bands(MANY.astype("int32"), 13, (50, 150)), (MANY - 50.0) * 2.55, rtol=1e-5
    )


@pytest.mark.parametrize("name", ["a.npy", "a.tif"])
def test_files_with_many_bands(name, tmp_path):
    if name == "a.npy":
        np.save(tmp_path / name, MANY)
    else:
        pytest.importorskip("tifffile").imwrite(tmp_path / name, MANY)
    np.testing.assert_array_equal(read_bands(tmp_path / name, 13), MANY)


def test_several_bands_of_16_bits_keep_all_of_them(tmp_path):
    deep = np.repeat(DEEP[..., None] // 16, 4, axis=-1)
    pytest.importorskip("tifffile").imwrite(tmp_path / "a.tif", deep)
    for channels in (4, 3):
        array = deep[..., :channels]
        pytest.importorskip("tifffile").imwrite(tmp_path / "a.tif", array)
        found = read_bands(tmp_path / "a.tif", channels, (0, 4095))
        np.testing.assert_allclose(found, array / 4095 * 255, rtol=1e-5)


def test_pages_of_a_tiff_are_its_bands(tmp_path):
    pytest.importorskip("tifffile").imwrite(tmp_path / "a.tif", MANY[..., :2])
    assert read_bands(tmp_path / "a.tif", 2).shape == (12, 10, 2)
    pages = np.moveaxis(MANY, -1, 0)
    pytest.importorskip("tifffile").imwrite(
        tmp_path / "a.tif", pages, photometric="minisblack"
    )
    np.testing.assert_array_equal(read_bands(tmp_path / "a.tif", 13), MANY)
    with pytest.raises(ChannelsError, match="must have 1 channels"):
        read_bands(tmp_path / "a.tif", 1)


def test_numpy_files_are_read_as_colours(tmp_path):
    for array in (MANY[..., :3], MANY[..., 0]):
        np.save(tmp_path / "a.npy", array)
        expected = np.asarray(read_image(array))
        np.testing.assert_array_equal(read_image(tmp_path / "a.npy"), expected)
    np.save(tmp_path / "a.npy", MANY)
    with pytest.raises(ValueError, match=r"a\.npy must be .*13\).*`channels=`"):
        read_image(tmp_path / "a.npy")
    Image.fromarray(DEEP).save(tmp_path / "a.png")
    with pytest.raises(ValueError, match="Grey images of 16 bits.*`channels=`"):
        read_image(tmp_path / "a.png")
    (tmp_path / "a.npy").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"a\.npy cannot be read as an image"):
        read_image(tmp_path / "a.npy")


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_tiff_of_numbers_that_pillow_does_not_read(dtype, tmp_path):
    tifffile = pytest.importorskip("tifffile")
    grey = np.linspace(0, 1, 12, dtype=dtype).reshape(3, 4)
    tifffile.imwrite(tmp_path / "a.tif", grey)
    found = read_bands(tmp_path / "a.tif", 1)
    np.testing.assert_allclose(found[..., 0], 255 * grey, rtol=1e-3)


def test_channels_may_come_first_and_grey_has_none():
    np.testing.assert_array_equal(read_bands(np.moveaxis(MANY, -1, 0), 13), MANY)
    np.testing.assert_array_equal(read_bands(MANY[..., 0], 1)[..., 0], MANY[..., 0])


def test_pillow_images_are_rotated_and_converted():
    image = Image.fromarray(MANY[..., :3])
    image.getexif()[0x0112] = 3  # by 180 degrees
    np.testing.assert_array_equal(
        read_bands(image, 1), np.asarray(image.convert("L"))[::-1, ::-1, None]
    )
    assert read_bands(image.convert("RGBA"), 4).shape == (12, 10, 4)
    with pytest.raises(ChannelsError, match=r"Received: shape \(12, 10, 3\)"):
        read_bands(image, 4)


def test_a_transform_of_one_channel_is_that_of_grey_colours():
    grey = MANY[..., 0]
    # Bicubic values outside of 0 to 255 are cut in colours of 8 bits.
    one = Preprocessing(8, kernel="bilinear", mean=[0.4], std=[0.2])
    three = Preprocessing(8, kernel="bilinear", mean=0.4, std=0.2)
    found, colours = one(grey), three(np.repeat(grey[..., None], 3, axis=-1))
    # Pillow rounds the pixels of colours to 8 bits after each of two passes.
    np.testing.assert_allclose(found, colours[..., :1], atol=2 / 255 / 0.2)
    pixels = one(grey, normalize=False)
    np.testing.assert_allclose(pixels, (found * 0.2 + 0.4) * 255, rtol=1e-5, atol=1e-4)


def test_every_channel_is_resized_and_normalised_by_itself():
    mean, std = np.linspace(0.1, 0.6, 13), np.linspace(0.1, 0.3, 13)
    found = Preprocessing(8, mean=mean, std=std)(MANY)
    for i in (0, 7, 12):
        alone = Preprocessing(8, mean=[mean[i]], std=[std[i]])(MANY[..., i])
        np.testing.assert_allclose(found[..., i], alone[..., 0], rtol=1e-5, atol=1e-6)


def test_borders_have_the_mean_of_each_channel():
    transform = Preprocessing(8, mode="border", crop=1, mean=np.linspace(0.2, 0.8, 13))
    found = transform(MANY[:, :6], normalize=False)
    np.testing.assert_array_equal(found[:, 0], found[:, -1])
    assert found[0, 0].tolist() == [round(255 * m) for m in transform.mean]


def test_config_and_timm():
    transform = Preprocessing((8, 6), mean=[0.5] * 4, value_range=(0, 4095))
    assert transform.channels == 4
    assert Preprocessing.from_config(transform.to_config()) == transform
    assert "value_range" not in Preprocessing(8).to_config()
    assert transform.to_timm()["input_size"] == [4, 8, 6]
    given = Preprocessing.from_timm({"input_size": [2, 8, 8], "mean": [0.2, 0.4, 0.6]})
    assert given.channels == 2
    assert given.mean == pytest.approx((0.4, 0.4))
    assert transform.with_channels(1).mean == (0.5,)
    assert transform.with_channels(4) is transform


@pytest.mark.parametrize(
    "image, channels, message",
    [
        (MANY, 4, r"must have 4 channels.*Received: shape \(12, 10, 13\).*`channels="),
        (MANY.astype("int64"), 13, "type int64, of which the range is not known"),
        (np.full((2, 2), np.nan), 1, "not finite"),
        (np.zeros((0, 3), "uint8"), 1, "must have 1 channels"),
        ("missing.npy", 13, "There is no file missing.npy"),
        (b"abc", 1, "must be a path, a PIL image or an array. Received: bytes"),
    ],
)
def test_wrong_images(image, channels, message):
    with pytest.raises(ValueError, match=message):
        read_bands(image, channels)


@pytest.mark.parametrize("name", ["a.npy", "a.tif", "a.png"])
def test_damaged_files(name, tmp_path):
    (tmp_path / name).write_bytes(b"damaged")
    for channels in (1, 13):
        with pytest.raises(ValueError, match=f"{name} cannot be read as an image"):
            read_bands(tmp_path / name, channels)


def test_a_file_of_objects_is_not_unpickled(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read as an image"):
        read_bands(tmp_path / "a.npy", 1)


@pytest.mark.parametrize(
    "fields, message",
    [
        (
            {"mean": [0.5] * 2, "std": [0.5] * 3},
            "`mean` must be a number, or",
        ),
        ({"value_range": 5}, "two numbers, the smaller first"),
        ({"value_range": (5, 1)}, "two numbers, the smaller first"),
        ({"mean": []}, "`mean` must be"),
    ],
)
def test_wrong_fields(fields, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing(8, **fields)
