"""Random erasing, compared with a longhand version in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from kerasvit.data.operations import erase
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]  # all of it is tf.data
MEAN, STD = np.float32([0.5, 0.4, 0.3]), np.float32([0.2, 0.3, 0.4])
SIDES, COUNT = (36, 48), 3_000
IMAGE = np.full((*SIDES, 3), 1e4, "float32")  # a value that noise does not have


def erased(probability, count=COUNT, image=IMAGE):
    def change(i):
        return erase(image, probability, tf.stack([i, 7]), MEAN, STD)

    images = tf.data.Dataset.range(count, output_type=tf.int32).map(change)
    return np.stack([*images.as_numpy_iterator()])


def longhand(random):
    """The height and width of timm's rectangle, drawn one number after the other."""
    for _ in range(10):
        area = random.uniform(0.02, 1 / 3) * SIDES[0] * SIDES[1]
        ratio = np.exp(random.uniform(np.log(0.3), np.log(1 / 0.3)))
        height, width = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if height < SIDES[0] and width < SIDES[1]:
            return height, width
    return 0, 0


@pytest.fixture(scope="module")
def changed():
    """Which pixels of each image are erased, (COUNT, height, width)."""
    return np.all(erased(1.0) != IMAGE, axis=-1)


def test_a_share_of_the_images_is_erased():
    found = np.any(erased(0.25) != IMAGE, axis=(1, 2, 3))
    assert np.mean(found) == pytest.approx(0.25, abs=0.03)  # 3.8 deviations
    assert not np.any(erased(0.0, 50) != IMAGE)


def test_the_rest_is_unchanged_and_the_erased_is_a_rectangle(changed):
    images = erased(1.0, 50)
    for image, mask in zip(images, changed, strict=False):
        rows, columns = np.any(mask, 1), np.any(mask, 0)
        assert np.array_equal(mask, rows[:, None] & columns[None])
        assert np.all(image[~mask] == 1e4)


def test_sizes_have_the_distribution_of_the_longhand(changed):
    random = np.random.default_rng(0)
    expected = np.array([longhand(random) for _ in range(20_000)])
    found = np.stack([np.any(changed, axis).sum(1) for axis in (2, 1)], axis=1)
    assert found.min() > 0 and np.all(found < SIDES)
    for value in (
        lambda sides: np.prod(sides, axis=1) / np.prod(SIDES),
        lambda sides: np.log(sides[:, 0] / sides[:, 1]),
    ):
        points = np.arange(10, 100, 10)
        np.testing.assert_allclose(
            np.mean(value(found)[:, None] <= np.percentile(value(expected), points), 0),
            np.mean(
                value(expected)[:, None] <= np.percentile(value(expected), points), 0
            ),
            atol=0.035,  # 3.5 deviations
        )


def test_rectangles_lie_anywhere(changed):
    for axis, side in ((2, SIDES[0]), (1, SIDES[1])):
        inside = np.any(changed, axis)
        start, last = inside.argmax(1), side - inside[:, ::-1].argmax(1)
        room = side - (last - start)
        assert np.mean(start / room) == pytest.approx(0.5, abs=0.03)
        assert np.any(start == 0) and np.any(last == side)


def test_noise_is_normal_in_normalised_units():
    images = erased(1.0, 200)
    values = images[np.all(images != IMAGE, axis=-1)]
    normalised = (values / 255 - MEAN) / STD
    np.testing.assert_allclose(normalised.mean(0), 0, atol=0.02)
    np.testing.assert_allclose(normalised.std(0), 1, atol=0.02)
    correlated = np.corrcoef(normalised.T) - np.eye(3)
    assert np.abs(correlated).max() < 0.02  # each channel has its own


def test_an_image_of_a_pixel_stays():
    one = np.full((1, 1, 3), 1e4, "float32")
    assert np.array_equal(erased(1.0, 5, one), np.stack([one] * 5))
