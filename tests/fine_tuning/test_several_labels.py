"""`fit_head` for images with several labels, or none."""

import keras
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import kerasvit
from kerasvit import data, evaluation
from kerasvit.evaluation.linear_probe import STRENGTHS
from tests.models.tiny import TINY
from tests.once import on_last_backend

random = np.random.default_rng(0)


def features(count=200, classes=3, width=6):
    labels = (random.random((count, classes)) < [0.2, 0.5, 0.8]).astype(int)
    x = random.normal(size=(count, width))
    x[:, :classes] += 1.5 * labels
    return (x * [1, 2, 3, 4, 5, 6] + 7).astype("float32"), labels


def test_each_class_is_a_logistic_regression():
    (x, y), (held, held_y) = features(), features(60)
    kernel, bias = evaluation.label_probe(x, y, held, held_y)
    everything, all_labels = np.concatenate([x, held]), np.concatenate([y, held_y])
    mean, scale = everything.mean(0), everything.std(0) + 1e-6
    found = everything @ kernel + bias
    for i in range(3):
        fits = [
            LogisticRegression(C=c, max_iter=300, tol=1e-3).fit(
                (everything - mean) / scale, all_labels[:, i]
            )
            for c in STRENGTHS
        ]
        logits = [fit.decision_function((everything - mean) / scale) for fit in fits]
        assert min(np.abs(found[:, i] - each).max() for each in logits) < 1e-3
    assert np.nanmean(evaluation.average_precision(found, all_labels)) > 0.8


def test_a_class_that_no_image_has():
    (x, y), (held, held_y) = features(), features(60)
    y[:, 0] = held_y[:, 0] = 0
    y[:, 1] = held_y[:, 1] = 1
    kernel, bias = evaluation.label_probe(x, y, held, held_y)
    assert not kernel[:, :2].any() and kernel[:, 2].any()
    assert bias[:2] == pytest.approx([-np.log(260.5 / 0.5), np.log(260.5 / 0.5)])


def model(classes=3):
    keras.utils.set_random_seed(0)
    return kerasvit.VisionTransformer(
        **{**TINY["VisionTransformer"], "num_classes": classes}
    )


def images(count, of):
    x = random.normal(size=(count, *of.input_shape[1:])).astype("float32")
    labels = (random.random((count, 3)) < 0.4).astype("float32")
    for i in range(3):
        x[:, 2 * i : 2 * i + 2] += 2 * labels[:, i, None, None, None]
    return np.clip(x, -1, 1), labels


def test_a_head_of_several_labels():
    made = model()
    x, y = images(80, made)
    found = kerasvit.fit_head(made, (x, y), images(40, made), task="multilabel")
    assert made.record["problem_type"] == "multi_label_classification"
    logits = made.predict(x, verbose=0)
    expected = np.mean(evaluation.average_precision(logits, y))
    assert found.training == pytest.approx(expected, abs=1e-3) and expected > 0.6
    assert (found.before, found.images, found.validation_images) == (None, 80, 40)
    rates = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(rates.mean(0), y.mean(0), atol=0.1)
    names = kerasvit.classify(made, x[:2], top=3)
    assert sum(p for _, p in names[0]) != pytest.approx(1, abs=1e-4)
    again = kerasvit.fit_head(made, (x, np.arange(80) % 3))
    assert again.images == 80 and "problem_type" not in made.record


@pytest.mark.slow
def test_images_of_several_labels_are_known():
    made = model()
    pixels = random.integers(256, size=(30, 20, 20, 3), dtype="uint8")
    found = data.IndexedImages(pixels, np.arange(90).reshape(30, 3) % 2)
    kerasvit.fit_head(made, found)
    assert made.record["problem_type"] == "multi_label_classification"
    with pytest.raises(ValueError, match="has images with several labels"):
        kerasvit.fit_head(made, found, task="single_label")


@pytest.mark.slow
@on_last_backend
def test_each_image_of_kerasvit_data_is_read_once():
    pixels = random.integers(56, size=(75, 20, 20, 3), dtype="uint8")
    labels = np.arange(75) // 25  # in the order of their classes
    pixels += (100 * labels).astype("uint8")[:, None, None, None]
    given = data.TrainingImages(data.IndexedImages(pixels, labels))
    found = kerasvit.fit_head(model(), given)  # 75 is no multiple of the batch size
    assert found.images == 75
    some = kerasvit.fit_head(model(), given, given.images, max_images=30)
    assert some.images == some.validation_images == 30
    assert some.training > 0.9  # all three classes are among the images


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (np.ones((8, 2)), {"task": "multilabel"}, r"\(8, 3\), for 8 images"),
        (np.full((8, 3), 0.5), {"task": "multilabel"}, "must be 0 or 1 for each"),
        (np.ones((8, 3)), {}, "one class per image"),
        (np.ones((8, 3)), {"task": "several"}, "`task` must be"),
    ],
)
def test_wrong_labels(labels, options, message):
    made = model()
    with pytest.raises(ValueError, match=message):
        kerasvit.fit_head(made, (images(8, made)[0], labels), **options)
