"""A training reads the pixels that `kerasvit.classify` reads, of any kind of file."""

import numpy as np
import pytest
from PIL import Image

import kerasvit
from kerasvit.data import IndexedImages
from kerasvit.data.crops import crop_of_resized
from kerasvit.preprocessing.images import read_image
from tests.once import on_last_backend

ROTATED = Image.Exif()
ROTATED[0x0112] = 6
FORMATS = {  # {name: (mode, options of `save`)}
    "a.jpg": ("RGB", {}),
    "grey.jpg": ("L", {}),
    "progressive.jpg": ("RGB", {"progressive": True}),
    "cmyk.jpg": ("CMYK", {}),
    "rotated.jpg": ("RGB", {"exif": ROTATED}),
    "transparent.png": ("RGBA", {}),
    "palette.png": ("P", {"transparency": b"\x00\x80"}),
    "bits.png": ("1", {}),
    "a.webp": ("RGB", {"lossless": True, "exif": ROTATED}),
    "a.avif": ("RGB", {}),
    "a.gif": ("P", {}),
    "cmyk.tif": ("CMYK", {}),
    "a.bmp": ("RGB", {}),
}


def drawn(size=(40, 30)):
    """A picture with smooth colours, which JPEG keeps."""
    x, y = np.meshgrid(*(np.linspace(0, 255, side) for side in size))
    return Image.fromarray(np.stack([x, y, 255 - x], -1).astype("uint8"))


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize(("name", "how"), FORMATS.items(), ids=FORMATS)
def test_training_and_classify_read_the_same_pixels(name, how, tmp_path):
    mode, options = how
    path = tmp_path / name
    options = dict(options)
    if name == "a.gif":
        options |= {"save_all": True, "append_images": [drawn().rotate(90)]}
    drawn().convert(mode).save(path, **options)
    images, transform = IndexedImages([path], [0]), kerasvit.Preprocessing(16, crop=0.8)
    [(pixels, _)] = images.once().as_numpy_iterator()
    expected = np.asarray(read_image(path))
    np.testing.assert_array_equal(pixels, expected)
    assert expected.shape[:2] == ((40, 30) if "exif" in options else (30, 40))
    [(batch, _)] = images.batches(transform, 1).as_numpy_iterator()
    np.testing.assert_array_equal(batch[0], transform(path))
    # The other way to read, of random crops; TensorFlow itself decodes plain JPEGs.
    size = expected.shape[:2]

    def cropped(item):
        return crop_of_resized(images, item, size, size, antialias=True, seed=(0, 0))

    [crop] = images.listed().map(lambda item, _: cropped(item)).as_numpy_iterator()
    np.testing.assert_allclose(crop, expected, atol=1)
