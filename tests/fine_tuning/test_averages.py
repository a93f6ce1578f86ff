"""Soups and WiSE-FT."""

import logging

import keras
import numpy as np
import pytest

import kerasvit
from tests.models.tiny import TINY


def dense(seed, classes=3):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(classes)])


def of(kernel, bias=(0.0, 0, 0)):
    model = dense(0)
    model.set_weights([np.asarray(kernel, "float32"), np.asarray(bias, "float32")])
    return model


def data(count=60):
    random = np.random.default_rng(0)
    y = random.integers(3, size=count)
    x = random.normal(size=(count, 4)).astype("float32")
    x[np.arange(count), y] += 2
    return x, y


GOOD = np.eye(4, 3)
BAD = -5 * GOOD
OTHER = np.eye(4, 3) + 0.1


def test_the_mean_of_the_weights():
    models = [dense(seed) for seed in range(3)]
    found = kerasvit.average_weights(models)
    for i, weight in enumerate(found.get_weights()):
        expected = np.mean([m.get_weights()[i] for m in models], axis=0)
        np.testing.assert_allclose(weight, expected, atol=1e-7)
    assert found is not models[0]


def test_a_greedy_soup_leaves_out_what_is_worse(caplog):
    models = [of(BAD), of(GOOD), of(OTHER)]
    with caplog.at_level(logging.INFO, "kerasvit"):
        found = kerasvit.average_weights(models, data(), greedy=True)
    assert "the soup has the models 1, 2 of 3" in caplog.text
    np.testing.assert_allclose(found.get_weights()[0], GOOD + 0.05, atol=1e-6)
    batches = ((x, y) for x, y in [data(30), data(30)])  # a generator is read once
    kerasvit.average_weights(models, batches, greedy=True)


def test_several_labels_are_compared_by_their_precision():
    x, y = data()
    labels = np.eye(3)[y]
    labels[::2, 0] = 1
    found = kerasvit.average_weights([of(BAD), of(GOOD)], (x, labels), greedy=True)
    np.testing.assert_allclose(found.get_weights()[0], GOOD)


def test_a_vision_model_keeps_its_record():
    models = []
    for seed in (0, 1):
        keras.utils.set_random_seed(seed)
        models.append(kerasvit.VisionTransformer(**TINY["VisionTransformer"]))
    found = kerasvit.average_weights([kerasvit.SAM(models[0]), models[1]])
    assert found.record == models[0].record
    x = np.random.default_rng(0).normal(size=(2, *found.input_shape[1:]))
    assert np.isfinite(found.predict(x.astype("float32"), verbose=0)).all()


def normalized(seed):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(5), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(3)])
    rng = np.random.default_rng(seed)
    model.set_weights([rng.uniform(0.5, 1, size=w.shape) for w in model.get_weights()])
    return model


def test_statistics_of_batch_normalisation_are_measured():
    x, y = data(64)
    models = [normalized(0), normalized(1)]
    for each in models:
        each.layers[1].trainable = False  # frozen ones are measured, too
    found = kerasvit.average_weights(models, (x, y), batch_size=16)
    dense, norm, _ = found.layers
    inner = x @ dense.get_weights()[0] + dense.get_weights()[1]
    parts = inner.reshape(4, 16, 5)
    mean, variance = norm.get_weights()[2:]
    np.testing.assert_allclose(mean, parts.mean(1).mean(0), rtol=1e-4)
    np.testing.assert_allclose(variance, parts.var(1).mean(0), rtol=1e-4)
    assert norm.momentum == 0.99 and not norm.trainable
    with pytest.raises(ValueError, match="`data`: statistics of batch norms"):
        kerasvit.average_weights(models)


def test_weights_between_two_models():
    start, tuned = of(BAD), of(GOOD)
    found = kerasvit.interpolate_weights(start, tuned, data(), [0, 0.25, 0.9, 1.0])
    assert found.alphas == (0, 0.25, 0.9, 1)
    assert found.scores[0] == found.scores[1] < 0.2 < 0.8 < found.scores[2]
    assert found.best == 1.0
    np.testing.assert_allclose(found.model.get_weights()[0], GOOD)
    half = kerasvit.interpolate_weights(start, tuned, data(), [0.75])
    np.testing.assert_allclose(half.model.get_weights()[0], -0.5 * GOOD)


def damaged():
    made = dense(0)
    made.set_weights([np.nan * weight for weight in made.get_weights()])
    return made


def vit(names):
    made = kerasvit.VisionTransformer(**TINY["VisionTransformer"] | {"num_classes": 2})
    made.record["label_names"] = [*names]
    return made


def test_an_average_has_no_calibration():
    models = [vit("ab"), vit("ab")]
    models[0].record["calibration"] = {}
    assert "calibration" not in kerasvit.average_weights(models).record
    assert "calibration" in models[0].record


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kerasvit.average_weights([]), "`models` must be a list"),
        (lambda: kerasvit.average_weights([dense(0), dense(0, 4)]), "Those of model 1"),
        (
            lambda: kerasvit.average_weights([vit("ab"), vit("ba")]),
            "records of models 1",
        ),
        (lambda: kerasvit.average_weights([dense(0), damaged()]), "not finite"),
        (lambda: kerasvit.average_weights(dense(0)), "`models` must be a list"),
        (lambda: kerasvit.average_weights(["a.keras"]), "Expected built Keras models"),
        (lambda: kerasvit.average_weights([dense(0)], greedy=True), "`data`: `greedy`"),
        (
            lambda: kerasvit.interpolate_weights(dense(0), dense(1), data(), [2.0]),
            "`alphas` must be",
        ),
        (
            lambda: kerasvit.interpolate_weights(dense(0), dense(1), data(), []),
            "`alphas` is empty",
        ),
        (
            lambda: kerasvit.average_weights(
                [dense(0)], (np.ones((2, 4)), np.array([5, 0])), True
            ),
            r"whole numbers in \[0, 2\]",
        ),
        (lambda: kerasvit.average_weights(None), "must be a list of at least one"),
    ],
)
def test_a_wrong_call_gets_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()
