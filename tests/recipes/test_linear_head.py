from types import SimpleNamespace

import batches
import keras
import linear_head
import numpy as np
import pytest

import kerasvit
from tests.once import mainly_on_last, on_last_backend

pytestmark = pytest.mark.slow

TINY = {"image_size": 16, "num_classes": 3}
VIT = {"patch_size": 8, "width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 8}
BUILDERS = {
    "vit": lambda: kerasvit.VisionTransformer(**VIT, **TINY),
    "deit_distilled": lambda: kerasvit.DistilledVisionTransformer(**VIT, **TINY),
    "mixer": lambda: kerasvit.MLPMixer(
        patch_size=8, width=8, depth=1, tokens_mlp_dim=4, channels_mlp_dim=8, **TINY
    ),
    "bit": lambda: kerasvit.BigTransfer(depths=[1], width_factor=0.5, **TINY),
}


@pytest.fixture
def dataset():
    """Noise images of three classes, each with its colour."""
    random = np.random.default_rng(0)
    labels = np.arange(60) % 3
    pixels = random.integers(80, size=(60, 16, 16, 3))
    pixels[np.arange(60), :, :, labels] += 100
    images = batches.Indexed(pixels.astype("uint8"), labels)
    return SimpleNamespace(train=images, validation=images.sample(20, 1))


def reading(normalize=True):
    transform = kerasvit.Preprocessing(16, crop=1.0)
    return {"transform": transform, "batch_size": 7, "normalize": normalize}


@pytest.mark.parametrize("name", mainly_on_last(BUILDERS))
def test_assigned_heads_classify_as_the_linear_classifier(name, dataset):
    model = BUILDERS[name]()
    start = linear_head.start(model, dataset, reading())
    assert start.kept is None  # fresh heads are zeros
    assert (start.images, start.tested) == (60, 20)
    linear_head.assign(model, start.heads)
    right = [
        np.argmax(keras.ops.convert_to_numpy(model(x.numpy())), -1) == y.numpy()
        for x, y in batches.evaluation_batches(dataset.validation, **reading())
    ]
    assert np.mean(np.concatenate(right)) == pytest.approx(start.linear)
    assert start.accuracy == start.linear > 0.9


def test_head_of_the_weights_is_measured_too(dataset):
    model = BUILDERS["vit"]()
    start = linear_head.start(model, dataset, reading())
    linear_head.assign(model, start.heads)
    again = linear_head.start(model, dataset, reading())
    assert again.kept == pytest.approx(start.linear)


@on_last_backend
@pytest.mark.parametrize("classes", [2, 5])
def test_fit_is_logistic_regression_of_features_as_they_are(classes):
    random = np.random.default_rng(0)
    labels = random.integers(classes, size=200)
    features = random.normal(size=(200, 6)) * [1, 10, 0.1, 1, 1, 1] + 3
    features[np.arange(200), labels] += 4
    kernel, bias = linear_head.fit(features, labels, classes)
    assert kernel.shape == (6, classes) and bias.shape == (classes,)

    # Longhand: at the minimum, gradients of loss and penalty cancel.
    scale = features.std(0) + 1e-6
    logits = features @ kernel + bias
    odds = np.exp(logits - logits.max(1, keepdims=True))
    odds /= odds.sum(1, keepdims=True)
    assert np.mean(logits.argmax(1) == labels) > 0.9
    error = odds - np.eye(classes)[labels]
    scaled = (features - features.mean(0)) / scale
    gradient = scaled.T @ error
    weights = kernel * scale[:, None]
    inverse = -np.sum(gradient * weights) / np.sum(weights * weights)  # 1 / C
    assert inverse > 0
    np.testing.assert_allclose(gradient, -inverse * weights, atol=0.3)


@on_last_backend
def test_class_without_an_image_is_never_the_answer():
    features = np.array([[1.0, 2], [2, 1], [1, 1], [3, 1]])
    kernel, bias = linear_head.fit(features, np.array([1, 1, 2, 2]), 4)
    assert set((features @ kernel + bias).argmax(1)) <= {1, 2}


@on_last_backend
def test_few_images_of_many():
    labels = np.repeat(np.arange(5), [100, 50, 25, 20, 5])
    items = [f"{i}.jpg" for i in range(200)]
    some = batches.Indexed(items, labels).sample(40, seed=0)
    np.testing.assert_allclose(np.bincount(some.labels), [20, 10, 5, 4, 1], atol=1)
    assert len(set(some.items)) == 40
    for item, label in zip(some.items, some.labels, strict=True):
        assert labels[int(item[:-4])] == label
    assert batches.Indexed(items, labels).sample(300, 0).items is items
    assert batches.Indexed(items, labels).sample(40, 0).items == some.items


@on_last_backend
def test_few_images_of_a_stream():
    import tensorflow as tf

    stream = batches.Streamed(
        tf.data.Dataset.from_tensor_slices(
            (np.zeros((50, 4, 4, 3), "uint8"), range(50))
        ),
        lambda image: image,
    )
    some = stream.sample(20, seed=3)
    labels = [int(y) for _, y in some.once()]
    assert len(some) == 20 == len(set(labels)) and labels != list(range(20))
    assert labels == [int(y) for _, y in some.once()]
    assert stream.sample(50, seed=3) is stream
