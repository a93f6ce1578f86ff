import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageFilter

from kerasvit.data import IndexedImages, StreamedImages, crops
from kerasvit.preprocessing.images import read_image
from tests.once import on_last_backend, rest_long

pytestmark = [on_last_backend, pytest.mark.slow]  # all of it is tf.data
RANDOM = np.random.default_rng(0)
NOISE = Image.fromarray(RANDOM.integers(256, size=(75, 100, 3), dtype="uint8"))
PHOTO = NOISE.filter(ImageFilter.GaussianBlur(2))
UPSIDE_DOWN = Image.Exif()
UPSIDE_DOWN[274] = 3


def written(path, image=PHOTO, **options):
    image.save(path, **options)
    return path


FILES = {
    "jpg": lambda p: written(p / "a.jpg", quality=90),
    "progressive": lambda p: written(p / "a.jpg", progressive=True),
    "comment": lambda p: written(p / "a.jpg", comment="between marker and table"),
    "upright": lambda p: written(p / "a.jpg", exif=Image.Exif()),
    "turned": lambda p: written(p / "a.jpg", exif=UPSIDE_DOWN),
    "grey": lambda p: written(p / "a.jpg", PHOTO.convert("L")),
    "cmyk": lambda p: written(p / "a.jpg", PHOTO.convert("CMYK")),
    "png": lambda p: written(p / "a.png"),
    "palette": lambda p: written(p / "a.png", PHOTO.quantize(64)),
    "transparent": lambda p: written(p / "a.png", PHOTO.convert("RGBA")),
    "named jpg": lambda p: written(p / "a.jpg", format="PNG"),
    "webp": lambda p: written(p / "a.webp"),
    "bmp": lambda p: written(p / "a.bmp"),
    "gif": lambda p: written(p / "a.gif"),
    "tiff": lambda p: written(p / "a.tiff"),
}


def cropped(images, seed, area=0.05, size=(32, 32), antialias=False):
    def crop(item):
        return crops.random_crop(images, item, area, size, antialias, (seed, 7))

    [(item, _)] = images.listed().take(1)
    [crop] = tf.data.Dataset.from_tensors(item).map(crop).as_numpy_iterator()
    return crop


@pytest.mark.parametrize("kind", rest_long(FILES, 4))
def test_crops_have_the_pixels_of_read_image(kind, tmp_path):
    path = FILES[kind](tmp_path)
    pixels = IndexedImages(np.asarray(read_image(path))[None], [0])
    for seed in range(3):
        found = cropped(IndexedImages([path], [0]), seed)
        assert found.shape == (32, 32, 3) and found.dtype == "float32"
        difference = np.abs(found - cropped(pixels, seed))
        # The colour of the last column is interpolated without that beside it.
        assert difference[:, :-4].max() < 1e-3 and difference.max() < 10


@pytest.mark.parametrize(
    ("kind", "plain"),
    [("jpg", True), ("progressive", True), ("comment", True), ("grey", True)]
    + [("upright", True), ("turned", False), ("cmyk", False), ("named jpg", False)],
)
def test_files_of_which_tensorflow_decodes_the_crop(kind, plain, tmp_path):
    images = IndexedImages([FILES[kind](tmp_path)], [0])
    found = images.listed().map(lambda item, _: images.encoded(item))
    assert [*found.map(images.is_plain_jpeg).as_numpy_iterator()] == [plain]


def test_a_large_photo_is_shrunk_without_leaving_pixels_out(tmp_path):
    stripes = np.zeros((400, 400, 3), "uint8")
    stripes[:, ::2] = 255
    path = written(tmp_path / "a.jpg", Image.fromarray(stripes), quality=100)
    for images in (IndexedImages([path], [0]), IndexedImages(stripes[None], [0])):
        crop = cropped(images, 0, area=0.7, antialias=True)
        np.testing.assert_allclose(crop, 127.5, atol=4)
    assert np.ptp(cropped(images, 0, area=0.7)) > 50


@pytest.mark.parametrize("content", ["truncated", "text", "empty", "header"])
def test_a_damaged_file_is_named(content, tmp_path):
    path = FILES["jpg"](tmp_path)
    whole = path.read_bytes()
    damaged = {
        "truncated": whole[: len(whole) // 2],
        "text": b"no image",
        "empty": b"",
        "header": b"\xff\xd8\xff",
    }
    path.write_bytes(damaged[content])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"a\.jpg cannot be read"):
        cropped(IndexedImages([path], [0]), 0)


def test_streamed_jpeg_is_cropped_while_it_is_decoded(tmp_path):
    def decode(encoded):
        return tf.io.decode_png(encoded)

    for kind in ("jpg", "png"):
        path = FILES[kind](tmp_path)
        stored = tf.data.Dataset.from_tensors((path.read_bytes(), 0))
        np.testing.assert_allclose(
            cropped(StreamedImages(stored, decode), 1),
            cropped(IndexedImages([path], [0]), 1),
            atol=1e-3,
        )


def windows(shape, area, count=200):
    window = tf.function(lambda seed: crops._window(shape, area, seed))
    return np.stack([window(tf.constant([seed, 7])) for seed in range(count)])


def test_windows_have_the_drawn_areas_and_aspect_ratios():
    top, left, height, width = windows((375, 500, 3), 0.25).T
    assert np.all((top >= 0) & (left >= 0))
    assert np.all((top + height <= 375) & (left + width <= 500))
    shares, aspects = height * width / (375 * 500), width / height
    assert 0.24 < shares.min() < 0.3 and 0.9 < shares.max() <= 1
    assert 0.74 < aspects.min() < 0.8 and 1.25 < aspects.max() < 1.35
    assert len(set(top)) > 50 and len(set(left)) > 50


def test_the_whole_of_an_image_that_is_too_narrow():
    assert windows((4, 100, 3), 0.9, 5).tolist() == [[0, 0, 4, 100]] * 5
