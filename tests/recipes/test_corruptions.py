"""Corruptions of images: the functions of tensorflow-datasets, seeded per image."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image
from scoring import catalogue, corruptions, sets
from scoring.corruptions import Corrupted
from skimage.util import random_noise
from tensorflow_datasets.image_classification import corruptions as theirs

import kerasvit
from tests.once import on_last_backend

pytestmark = [pytest.mark.slow, on_last_backend]

EXTERNAL = {"snow", "motion_blur", "frost"}  # need a program or pictures
PIXELS = np.random.default_rng(0).integers(256, size=(24, 20, 3), dtype="uint8")
TRANSFORM = kerasvit.Preprocessing((20, 16), mean=(0.5, 0.4, 0.3), std=0.25)


def seed(number, kind, severity):
    return [number, catalogue.KINDS.index(kind), severity]


@pytest.mark.parametrize(
    "kind", sorted({*catalogue.KINDS} - EXTERNAL - {"impulse_noise"})
)
def test_pixels_are_those_of_tensorflow_datasets(kind):
    for severity in (1, 3, 5):
        np.random.seed(seed(7, kind, severity))
        expected = getattr(theirs, kind)(PIXELS, severity)
        state = np.random.get_state()[1].tolist()
        found = corruptions.corrupt(PIXELS, kind, severity, number=7)
        assert found.dtype == "uint8" and not np.array_equal(found, PIXELS)
        np.testing.assert_array_equal(found, expected)
        assert np.random.get_state()[1].tolist() == state  # it is left alone


def test_impulse_noise_is_seeded():
    """tensorflow-datasets takes that of scikit-image, which seeds a new generator."""
    bits = np.random.MT19937()
    np.random.RandomState(bits).seed(seed(7, "impulse_noise", 4))
    noisy = random_noise(
        PIXELS / 255, mode="s&p", amount=0.17, rng=np.random.Generator(bits)
    )
    found = corruptions.corrupt(PIXELS, "impulse_noise", 4, number=7)
    np.testing.assert_array_equal(found, np.around(255 * noisy).astype("uint8"))


@pytest.mark.parametrize("kind", ["gaussian_noise", "impulse_noise", "glass_blur"])
def test_threads_do_not_mix(kind):
    def corrupted(number):
        return corruptions.corrupt(PIXELS, kind, 2, number)

    alone = [corrupted(number) for number in range(40)]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(corrupted, range(40)))
    np.testing.assert_array_equal(together, alone)
    assert not np.array_equal(alone[0], alone[1])


def by_number(corrupted, batch_size, shards=1, **options):
    """{number: pixels} of all batches, of one or more processes."""
    found = {}
    for i in range(shards):
        batches = corrupted.batches(TRANSFORM, batch_size, shard=(i, shards), **options)
        for pixels, numbers, *weights in batches.as_numpy_iterator():
            used = weights[0] > 0 if weights else np.ones(len(numbers), bool)
            for number, image in zip(numbers[used], pixels[used]):
                assert number not in found
                found[number] = image
    return found


@pytest.fixture
def image_set(images):
    images("cat", 4)
    return sets.find(str(images("dog", 3)))


@pytest.mark.parametrize("kind", ["shot_noise", "impulse_noise"])
def test_pixels_do_not_depend_on_the_batch(kind, image_set):
    found = by_number(Corrupted(image_set, kind), 1)
    assert list(found) == list(range(35))
    for batch_size, shards, pad in ((64, 1, False), (4, 1, True), (6, 2, True)):
        other = by_number(Corrupted(image_set, kind), batch_size, shards, pad=pad)
        assert sorted(other) == sorted(found)
        for number, pixels in found.items():
            np.testing.assert_array_equal(other[number], pixels)


def test_an_image_is_transformed_corrupted_and_normalized(image_set):
    found = by_number(Corrupted(image_set, "fog"), 8)
    raw = by_number(Corrupted(image_set, "fog"), 8, normalize=False)
    for i, path in enumerate(image_set.images.items):
        pixels = TRANSFORM(path, normalize=False).astype("uint8")
        for severity in catalogue.SEVERITIES:
            expected = corruptions.corrupt(pixels, "fog", severity, number=i)
            np.testing.assert_array_equal(raw[5 * i + severity - 1], expected)
            expected = (expected / 255 - [0.5, 0.4, 0.3]) / 0.25
            np.testing.assert_allclose(found[5 * i + severity - 1], expected, atol=1e-5)


def test_a_sample_has_the_same_pixels(image_set):
    whole = by_number(Corrupted(image_set, "speckle_noise"), 8)
    sample = image_set.sample(5).sample(3)
    assert len(sample.numbers) == 3 and sample.numbers.tolist() != [0, 1, 2]
    part = by_number(Corrupted(sample, "speckle_noise"), 8)
    assert len(part) == 15
    for i, number in enumerate(sample.numbers):
        for j in range(5):
            np.testing.assert_array_equal(part[5 * i + j], whole[5 * number + j])


def test_an_image_is_decoded_once(image_set, monkeypatch):
    read, found = image_set.images.items, []
    monkeypatch.setattr(
        "kerasvit.data.images.read_image",
        lambda path: found.append(path) or Image.open(path),
    )
    by_number(Corrupted(image_set, "contrast"), 2)
    assert sorted(found) == sorted(read)


def test_corruptions_that_fail_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    failed = corruptions.probe(catalogue.KINDS, (32, 32))
    assert set(failed) == EXTERNAL
    assert "needs ImageMagick, which is not installed" in failed["snow"]
    assert failed["motion_blur"] == failed["snow"]
    assert f"frost6.jpg of {corruptions.FROST_SOURCE}" in failed["frost"]
    assert str(tmp_path / "downloads/manual") in failed["frost"]


def test_a_program_and_pictures_are_used(tmp_path, monkeypatch):
    """The program copies; ImageMagick itself is not needed here."""
    program = tmp_path / "magick"
    program.write_text(f'#!/bin/sh\n{shutil.which("cp")} "$1" "$4"\n')
    program.chmod(0o755)
    pictures = tmp_path / "downloads/manual"
    pictures.mkdir(parents=True)
    for name in corruptions.FROST:
        Image.new("RGB", (260, 250), "white").save(pictures / name)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert not corruptions.probe(sorted(EXTERNAL), (224, 224))
    pixels = np.zeros((224, 224, 3), "uint8")
    frosted = corruptions.corrupt(pixels, "frost", 3, 0)
    assert (frosted == round(0.7 * 255)).all()
    failed = corruptions.probe(sorted(EXTERNAL), (32, 32))
    assert set(failed) == {"snow", "frost"}  # of 224 pixels only


def test_kinds_are_chosen_by_name_or_group():
    assert len(catalogue.chosen_kinds(("all",))) == 19
    assert catalogue.chosen_kinds(("published",)) == catalogue.PUBLISHED
    assert catalogue.chosen_kinds(("spatter", "fog")) == ("fog", "spatter")
    assert catalogue.chosen_kinds(()) == ()
    with pytest.raises(ValueError, match="`corrupt`: there is no 'foggy'. Close: fog"):
        catalogue.chosen_kinds(("foggy",))
