"""The first eigenvalues of each mini-batch, against formed matrices."""

import importlib
from functools import partial

import keras
import numpy as np
import pytest
from keras import layers, ops

import kerasvit
from kerasvit.inspection import BatchSpectrum, Hessian, batch_spectrum
from kerasvit.inspection.curvature.lanczos import eigenpairs
from tests.once import on_last_backend

SOFT = keras.losses.CategoricalCrossentropy(from_logits=True)
RNG = np.random.default_rng(0)
DATA = [
    (RNG.standard_normal((n, 4)).astype("float32"), RNG.dirichlet(np.ones(3), n))
    for n in (6, 6, 5)
]


def network():
    rng = np.random.default_rng(1)
    image = keras.Input((4,))
    x = layers.Dense(5, activation="tanh", name="hidden")(image)
    model = keras.Model(image, layers.Dense(3, name="head")(x))
    model.set_weights([rng.standard_normal(w.shape) for w in model.weights])
    return model


def matrices(model):
    """The Hessian of each batch."""
    hessians = [Hessian(model, x, y, SOFT) for x, y in DATA]
    return [np.stack([h @ unit for unit in np.eye(43)]) for h in hessians]


def norms(model):
    """The Hessian of the sum of the variables' norms."""
    blocks = np.zeros((43, 43))
    start = 0
    for v in model.trainable_variables:
        w = ops.convert_to_numpy(v).ravel().astype("float64")
        length, inside = np.linalg.norm(w), slice(start, start + len(w))
        blocks[inside, inside] = np.eye(len(w)) / length - np.outer(w, w) / length**3
        start += len(w)
    return blocks


def first(matrix, k):
    values = np.linalg.eigvalsh(matrix.astype("float64"))
    return values[np.argsort(-np.abs(values))][:k]


@pytest.mark.slow
def test_the_values_of_each_batch():
    model = network()
    decay = 0.1
    trainer = kerasvit.SAM(model)
    trainer.compile("sgd", SOFT)
    plain = matrices(model)
    cases = {
        (0, False): np.zeros((43, 43)),
        (decay, False): decay * np.eye(43),
        (decay, True): decay * norms(model),
    }
    for (weight_decay, unsquared), added in cases.items():
        found = batch_spectrum(
            trainer, iter(DATA), k=3, weight_decay=weight_decay, unsquared=unsquared,
            tolerance=1e-5,
        )  # fmt: skip
        expected = [first(matrix + added, 3) for matrix in plain]
        np.testing.assert_allclose(found.values, expected, atol=1e-5)
        assert found.converged.all() and found.residuals.shape == (3, 3)


@on_last_backend
def test_the_share_and_the_size_of_negative_values():
    values = np.array([[4.0, -1], [2, 0.5], [3, -2]])
    found = BatchSpectrum(values, np.zeros((3, 2)), np.ones(3, bool))
    assert found.negative_share == 1 / 3
    assert found.mean_positive == 9.5 / 4 and found.mean_negative == -1.5
    found = BatchSpectrum(abs(values), np.zeros((3, 2)), np.ones(3, bool))
    assert found.negative_share == found.mean_negative == 0


@pytest.mark.slow
@on_last_backend
def test_the_smallest_of_many_values():
    model = network()
    found = batch_spectrum(model, DATA[:1], SOFT, k=12, which="smallest")
    expected = np.linalg.eigvalsh(matrices(model)[0])[:12]
    np.testing.assert_allclose(found.values[0], expected, atol=1e-5)


@on_last_backend
def test_values_that_have_not_converged_warn(monkeypatch):
    module = importlib.import_module("kerasvit.inspection.curvature.batch_spectrum")
    monkeypatch.setattr(module, "eigenpairs", partial(eigenpairs, max_products=5))
    with pytest.warns(UserWarning, match="2 of 2 batches have not converged"):
        found = batch_spectrum(network(), DATA[:2], SOFT, tolerance=1e-6)
    assert not found.converged.any() and (found.residuals > 0).any()


@on_last_backend
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"data": DATA[0][0]}, "`data` must be an iterable of batches .*ndarray"),
        ({"data": []}, "`data` must have at least one batch"),
        ({"data": [DATA[0][0]]}, r"A batch must be a pair \(x, y\).*ndarray of 6"),
        (
            {"data": [(DATA[0][0] * np.nan, DATA[0][1])]},
            "loss of the model must be fin",
        ),
        ({"weight_decay": -1}, "`weight_decay` must be a finite number ≥ 0"),
        ({"k": 0}, r"`k` must be a whole number in \[1, 43\]"),
        ({"loss": None}, "`loss` must be a keras.losses.Loss"),
    ],
)
def test_arguments(change, expected):
    with pytest.raises(ValueError, match=expected):
        batch_spectrum(**{"model": network(), "data": DATA, "loss": SOFT, **change})


@on_last_backend
def test_unsquared_norms_of_zero_variables():
    model = network()
    model.get_layer("head").bias.assign(np.zeros(3))
    with pytest.raises(ValueError, match=r"may be zero .*\['head/bias'\], 1 in all"):
        batch_spectrum(model, DATA, SOFT, weight_decay=0.1, unsquared=True)
