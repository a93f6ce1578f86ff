"""Labelled images with other than three channels."""

import dataclasses
import logging

import numpy as np
import pytest
from PIL import Image

import kerasvit
from kerasvit import data
from kerasvit.preprocessing import ChannelsError
from tests.once import on_last_backend, rest_long

pytestmark = on_last_backend  # all of it is tf.data

SIZES = {"patch_size": 4, "width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 8}


def model(channels, **options):
    return kerasvit.VisionTransformer(
        **SIZES, image_size=16, channels=channels, num_classes=2, **options
    )


def folder(tmp_path, channels):
    """Two classes of 20 images, grey PNG of 16 bits or `.npy`."""
    rng = np.random.default_rng(0)
    for name, bright in (("a", 0.5), ("b", 1)):
        (tmp_path / name).mkdir()
        for i in range(20):
            pixels = rng.uniform(size=(20, 24, channels)) * bright * 65_535
            pixels = pixels.astype("uint16")
            if channels == 1:
                Image.fromarray(pixels[..., 0]).save(tmp_path / name / f"{i}.png")
            else:
                np.save(tmp_path / name / f"{i}.npy", pixels)
    return data.from_folder(tmp_path, channels=channels)


@pytest.fixture(params=[1, 13])
def images(request, tmp_path):
    return folder(tmp_path, request.param)


@pytest.mark.slow
def test_batches_are_as_classify_prepares_images(images):
    channels = images.train.images.channels
    for built_in in (None, {"mean": 0.4, "std": 0.2}):
        vit = model(channels, normalization=built_in)
        found, _ = next(iter(images.validation.batches(vit, 4)))
        expected = [
            vit.preprocessing(path, normalize=not built_in)
            for path in images.validation.items[:4]
        ]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_long(data.AUGMENTATIONS, 3))
def test_augmentations(name, images, caplog):
    augmentation, count = data.AUGMENTATIONS[name], images.train.images.channels
    classes = 2 if augmentation.mixing else None
    with caplog.at_level(logging.WARNING, "kerasvit"):
        batches = images.train.batches(model(count), 8, augment=name, classes=classes)
    x, _ = next(iter(batches))
    assert x.shape == (8, 16, 16, count) and np.isfinite(x).all()
    left_out = "changes of colours are left out" in caplog.text
    assert left_out == (augmentation.magnitude is not None)


@pytest.mark.slow
def test_new_pixels_are_within_the_deviations_of_the_images(tmp_path):
    """They would be far brighter than images that use a part of 16 bits."""
    images, vit = folder(tmp_path, 13), model(13)
    for path in tmp_path.glob("*/*.npy"):
        np.save(path, np.load(path) // 64)
    vit.preprocessing = images.train.measured(vit.preprocessing)
    plain, _ = next(iter(images.train.images.batches(vit, 28)))
    for name in ("shift", "cifar", "augreg_strong2"):
        moved = images.train.batches(vit, 28, augment=name, classes=2)
        x, _ = next(iter(moved))
        low, high = min(np.min(plain), -2) - 1e-3, max(np.max(plain), 0) + 1e-3
        assert low < np.min(x) and np.max(x) < high


@pytest.mark.slow
def test_a_value_range_of_the_transform_is_applied(tmp_path):
    images, vit = folder(tmp_path, 4), model(4)
    full, _ = next(iter(images.train.images.batches(vit, 2)))
    vit.preprocessing = kerasvit.Preprocessing(
        16, mean=[0.5] * 4, value_range=(0, 2 * 65_535)
    )
    half, _ = next(iter(images.train.images.batches(vit, 2)))
    np.testing.assert_allclose(half, (full.numpy() - 1) / 2, atol=1e-6)
    cropped, _ = next(iter(images.train.batches(vit, 8, augment="photo")))
    assert cropped.numpy().max() <= 1e-6


@pytest.mark.slow
def test_means_and_deviations_are_measured(images):
    vit = model(images.train.images.channels)
    found = images.train.measured(vit.preprocessing)
    pixels = [
        vit.preprocessing(path, normalize=False) / 255
        for path in images.train.images.items
    ]
    np.testing.assert_allclose(found.mean, np.mean(pixels, (0, 1, 2)), atol=1e-5)
    np.testing.assert_allclose(found.std, np.std(pixels, (0, 1, 2)), atol=1e-5)
    vit.preprocessing = found
    assert vit.preprocessing == found


def test_a_channel_without_contrast_is_refused(tmp_path):
    flat = data.IndexedImages(np.zeros((4, 8, 8, 2), "uint8"), [0, 1, 0, 1], channels=2)
    with pytest.raises(ValueError, match="the same value in all of the images"):
        data.TrainingImages(flat).measured(kerasvit.Preprocessing(8, mean=[0.5] * 2))


def test_another_number_of_channels_is_refused(images, tmp_path):
    with pytest.raises(ValueError, match="takes images with 3 channels. These are"):
        images.train.batches(model(3), 4)
    with pytest.raises(ChannelsError, match=r"^[^\n]*must have 5 channels[^\n]*$"):
        data.from_folder(tmp_path, channels=5)


def test_many_bands_without_their_number_are_one_error(tmp_path):
    folder(tmp_path, 13)
    with pytest.raises(ChannelsError, match=r"^[^\n]*a\W0\.npy must be .*`channels=`"):
        data.from_folder(tmp_path)
    for path in tmp_path.glob("*/*.npy"):
        pixels = np.load(path)
        path.unlink()
        tifffile = pytest.importorskip("tifffile")
        tifffile.imwrite(path.with_suffix(".tif"), pixels, photometric="rgb")
    with pytest.raises(
        ChannelsError, match=r"^[^\n]*a\W0\.tif must .*20, 24, 13.*int16"
    ):
        data.from_folder(tmp_path)


def test_one_file_with_other_bands_is_named(tmp_path):
    folder(tmp_path, 13)
    np.save(tmp_path / "b" / "7.npy", np.zeros((8, 8, 12), "uint16"))
    with pytest.raises(ChannelsError, match=r"b\W7\.npy must have 13 .*\(8, 8, 12\)"):
        data.from_folder(tmp_path, channels=13)


def test_a_type_without_a_range_needs_one(tmp_path):
    folder(tmp_path, 4)
    for path in tmp_path.glob("*/*.npy"):
        np.save(path, (np.load(path) // 16).astype("int16"))
    images, vit = data.from_folder(tmp_path, channels=4), model(4)
    for call in (
        lambda: images.train.batches(vit, 4, augment="photo"),
        lambda: images.validation.batches(vit, 4),
        lambda: images.train.measured(vit.preprocessing),
    ):
        with pytest.raises(ValueError, match=r"\.npy has values of the type int16"):
            call()
    vit.preprocessing = dataclasses.replace(vit.preprocessing, value_range=(0, 4095))
    vit.preprocessing = images.train.measured(vit.preprocessing)
    x, _ = next(iter(images.train.images.batches(vit, 28)))
    assert np.abs(np.mean(x)) < 0.2 and 0.8 < np.std(x) < 1.2


@pytest.mark.slow
def test_the_first_layer_learns_from_every_channel(images):
    vit = model(images.train.images.channels)
    accuracy = kerasvit.fit_head(vit, images.train)
    assert accuracy.training > 0.8
    found = kerasvit.classify(vit, [images.train.images.items[0]])
    assert len(found[0]) == 2


@pytest.mark.slow
def test_measured_means_are_the_same_everywhere(images, tmp_path):
    channels = images.train.images.channels
    transform = images.train.measured(kerasvit.Preprocessing(16, mean=[0.5] * channels))
    outside = model(channels)
    outside.preprocessing = transform
    sized = kerasvit.Variant(None, kerasvit.VisionTransformer, **SIZES, image_size=16)
    options = {"channels": channels, "num_classes": 2, "include_preprocessing": True}
    inside = sized(preprocessing=transform, **options)
    for vit in (outside, inside):
        kerasvit.fit_head(vit, images.train)
        path = tmp_path / vit.name
        kerasvit.save_pretrained(vit, path, label_names=images.class_names)
        found = kerasvit.from_pretrained(path)
        assert found.preprocessing == vit.preprocessing == transform
        items = images.validation.items
        expected = found.predict(images.validation.batches(found, 4), verbose=0)
        shares = [dict(each) for each in kerasvit.classify(found, items, top=2)]
        logits = [np.log(each["b"] / each["a"]) for each in shares]
        np.testing.assert_allclose(logits, expected[:, 1] - expected[:, 0], atol=1e-3)
