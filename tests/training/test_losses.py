"""Losses of several labels and of rare classes, against NumPy and timm's formula."""

import keras
import numpy as np
import pytest
from scipy.special import expit, log_softmax

import kerasvit

random = np.random.default_rng(0)
LOGITS = (random.normal(size=(40, 6)) * 4).astype("float32")
LABELS = (random.random((40, 6)) < 0.3).astype("float32")


def asymmetric(logits, labels, negative, positive, shift):
    """As Alibaba-MIIL/ASL computes it, in float64, with the mean over classes."""
    p = expit(logits.astype("float64"))
    rest = np.minimum(1 - p + shift, 1)
    found = labels * np.log(p) + (1 - labels) * np.log(rest)
    weight = (1 - p * labels - rest * (1 - labels)) ** (
        positive * labels + negative * (1 - labels)
    )
    return -(found * weight).mean(axis=1)


@pytest.mark.parametrize(
    "numbers", [(4, 1, 0.05), (2, 0, 0.2), (0, 0, 0.0), (1.5, 0.5, 0.0)]
)
def test_asymmetric_loss(numbers):
    loss = kerasvit.AsymmetricLoss(*numbers, reduction=None)
    found = keras.ops.convert_to_numpy(loss(LABELS, LOGITS))
    expected = asymmetric(LOGITS, LABELS, *numbers)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-7)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.get_config() == loss.get_config()
    plain = keras.losses.BinaryCrossentropy(from_logits=True)(LABELS, LOGITS)
    zeros = kerasvit.AsymmetricLoss(0, 0, 0.0)(LABELS, LOGITS)
    assert float(zeros) == pytest.approx(float(plain), rel=1e-5)


@pytest.mark.parametrize("numbers", [(4, 1, 0.05), (0.5, 0.5, 0.0), (0, 0, 0.0)])
def test_its_gradients_are_finite(numbers):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(6)])
    model.set_weights([np.eye(6, dtype="float32"), np.zeros(6, "float32")])
    model.compile(keras.optimizers.SGD(1.0), kerasvit.AsymmetricLoss(*numbers))
    x = np.array([[0, 200, -200, 1, -1, 30], [200, 0, 30, -200, 5, -30]], "float32")
    model.fit(x, np.array([[1, 0, 1, 0, 1, 1], [1, 1, 0, 0, 0, 1.0]]), verbose=0)
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_logit_adjustment():
    classes, counts = random.integers(6, size=40), np.array([1, 2, 30, 4, 500, 6])
    loss = kerasvit.LogitAdjustedCrossentropy(counts, 0.7, reduction=None)
    adjusted = LOGITS + 0.7 * np.log(counts / counts.sum())
    expected = -log_softmax(adjusted, axis=1)[np.arange(40), classes]
    for labels in (classes, classes[:, None], np.eye(6)[classes]):
        found = keras.ops.convert_to_numpy(loss(labels, LOGITS))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert again.get_config() == loss.get_config()


@pytest.mark.slow
def test_adjusted_logits_have_a_better_balanced_accuracy():
    """One feature, two classes of normal distribution, 19 to 1."""
    labels = (random.random(4000) < 0.05).astype(int)
    x = (random.normal(size=4000) + 1.5 * labels)[:, None].astype("float32")
    found = {}
    for name, loss in {
        "plain": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "adjusted": kerasvit.LogitAdjustedCrossentropy(np.bincount(labels)),
    }.items():
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2)])
        model.compile(keras.optimizers.Adam(0.05), loss)
        model.fit(x, labels, batch_size=200, epochs=10, verbose=0)
        right = model.predict(x, verbose=0).argmax(1) == labels
        found[name] = np.mean([right[labels == i].mean() for i in (0, 1)])
    best = np.mean([0.7734, 0.7734])  # of the threshold 0.75, the normal distribution
    assert found["plain"] < 0.65 and abs(found["adjusted"] - best) < 0.03


def test_class_weights():
    counts = np.array([10, 100, 1000])
    found = kerasvit.class_weights(counts)
    assert found == pytest.approx({0: 37.0, 1: 3.7, 2: 0.37})
    found = kerasvit.class_weights(counts, "effective", beta=0.99)
    expected = (1 - 0.99) / (1 - 0.99**counts)
    expected *= counts.sum() / (expected * counts).sum()
    assert list(found.values()) == pytest.approx(list(expected))
    assert set(kerasvit.class_weights(counts, "effective", beta=0).values()) == {1.0}
    labels = np.repeat(np.arange(3), counts)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = np.zeros((len(labels), 2), "float32")
    model.fit(x, labels, class_weight=found, batch_size=555, verbose=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kerasvit.AsymmetricLoss(-1), "`gamma_negative` must be"),
        (lambda: kerasvit.AsymmetricLoss(shift=1), "`shift` must be"),
        (lambda: kerasvit.LogitAdjustedCrossentropy([1, 0]), "each > 0. Received"),
        (lambda: kerasvit.LogitAdjustedCrossentropy([1, 1], -1), "`tau` must be"),
        (lambda: kerasvit.class_weights([3, 0]), "Leave out classes without images"),
        (lambda: kerasvit.class_weights([3, np.inf]), "the number of training images"),
        (lambda: kerasvit.class_weights([3, 1], "equal"), "`method` must be"),
        (lambda: kerasvit.class_weights([3, 1], "effective", beta=1), "`beta` must be"),
    ],
)
def test_a_wrong_call_gets_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()
