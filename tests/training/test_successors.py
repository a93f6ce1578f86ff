"""ASAM, GSAM and SAM-ON, against their formulas in NumPy."""

import keras
import numpy as np
import pytest
from keras import layers

from kerasvit.training import ASAM, GSAM, SAM, SAMON

RHO, RATE = 0.3, 0.1


def batch():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(6, 5)).astype("float32")
    return x, rng.normal(size=(6, 3)).astype("float32")


def linear():
    """X → X K + b, whose gradients are easily written down."""
    model = keras.Sequential([keras.Input((5,)), layers.Dense(3, name="dense")])
    rng = np.random.default_rng(2)
    model.set_weights([rng.normal(size=w.shape) for w in model.weights])
    return model


def gradients(weights, x, y):
    kernel, bias = weights
    residual = 2 * (x @ kernel + bias - y) / y.size
    return [x.T @ residual, residual.sum(0)]


def step(trainer, **compiled):
    """One batch of SGD; the gradients that it must have been given."""
    x, y = batch()
    compiled = {"optimizer": keras.optimizers.SGD(RATE), "loss": "mse", **compiled}
    trainer.compile(**compiled)
    before = [np.asarray(w, "float64") for w in trainer.model.get_weights()]
    trainer.train_on_batch(x, y)
    after = trainer.model.get_weights()
    return before, [(b - a) / RATE for b, a in zip(before, after, strict=True)]


def length(vector):
    return np.sqrt(sum(np.square(v).sum() for v in vector))


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=5e-6)


@pytest.mark.parametrize("eta", [0.01, 0.0])
@pytest.mark.parametrize("biases", [False, True])
def test_asam(eta, biases):
    x, y = batch()
    w, found = step(ASAM(linear(), RHO, eta=eta, biases=biases))
    g = gradients(w, x, y)
    t = [np.abs(w[0]) + eta, np.abs(w[1]) + eta if biases else 1]
    far = length([t[i] * g[i] for i in (0, 1)])
    above = [w[i] + RHO * t[i] ** 2 * g[i] / far for i in (0, 1)]
    assert_same(found, gradients(above, x, y))


@pytest.mark.parametrize("below", [True, False])
def test_gsam(below):
    x, y = batch()
    trainer = GSAM(
        linear(), 0.5, 0.1, 0.4, lr_max=0.3, lr_min=0.05, minimize_perturbed=below
    )
    w, found = step(trainer)
    rho = 0.1 + 0.4 * (RATE - 0.05) / 0.25
    g = gradients(w, x, y)
    above = [w[i] + rho * g[i] / length(g) for i in (0, 1)]
    p = gradients(above, x, y)
    first, second, sign = (p, g, -1) if below else (g, p, 1)
    u = [v / length(first) for v in first]
    share = sum((a * b).sum() for a, b in zip(second, u, strict=True))
    expected = [first[i] + sign * 0.4 * (second[i] - share * u[i]) for i in (0, 1)]
    assert_same(found, expected)


def test_gsam_follows_a_schedule_and_a_callback():
    x, y = batch()

    schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
        [0, 1], [0.2, 0.1, 0.0]
    )
    plain, followed = linear(), linear()
    trainer = GSAM(followed, 0.5, 0.0, 0.0, lr_max=0.2, lr_min=0.0)
    trainer.compile(keras.optimizers.SGD(schedule), "mse")
    sam = SAM(plain, 0.5)
    sam.compile(keras.optimizers.SGD(0.2), "mse")
    for rate in (0.2, 0.1):
        sam.rho = 0.5 * rate / 0.2
        sam.optimizer.learning_rate = rate
        for each in (sam, trainer):
            each.train_on_batch(x, y)
        assert_same(followed.get_weights(), plain.get_weights())
    trainer.compile(keras.optimizers.SGD(0.2), "mse")
    trainer.optimizer.learning_rate = 0.0
    assert float(trainer.current_rho()) == 0.0


def test_gsam_at_one_rate_without_alpha_is_sam():
    trainers = [
        SAM(linear(), RHO),
        GSAM(linear(), RHO, 0.0, 0.0, lr_max=RATE, lr_min=RATE),
    ]
    first, second = (step(trainer)[1] for trainer in trainers)
    assert_same(first, second)


def test_sam_on_perturbs_normalisations_only():
    model = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(4, name="dense"),
            layers.LayerNormalization(name="norm"),
            layers.Dense(3, name="out"),
        ]
    )
    trainer = SAMON(model, RHO)
    weights = [keras.ops.convert_to_tensor(w) for w in model.get_weights()]
    ones = [keras.ops.ones_like(w) for w in weights]
    moved = trainer.perturbed(weights, ones)
    share = RHO / np.sqrt(8)  # gamma and beta, 4 each
    for variable, w, m in zip(model.trainable_variables, weights, moved, strict=True):
        expected = share if "norm" in variable.path else 0
        found = keras.ops.convert_to_numpy(m - w)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    _, found = step(trainer)
    assert all(np.abs(g).max() > 0 for g in found)  # all are trained


def test_sam_on_knows_normalisations_by_name():
    class GroupNorm(layers.GroupNormalization):
        """One of somebody's own."""

    parts = [
        layers.SpectralNormalization(layers.Conv2D(4, 1)),  # its kernel is no scale
        GroupNorm(2, name="own"),
        layers.RMSNormalization(name="rms"),
    ]
    model = keras.Sequential([keras.Input((2, 2, 3)), *parts])
    trainer = SAMON(model)
    paths = [v.path for v in model.variables if id(v) in trainer._normalising]
    assert [path.split("/")[-2:] for path in paths] == [
        ["own", "gamma"],
        ["own", "beta"],
        ["rms", "scale"],
    ]


@pytest.mark.parametrize(
    "trainer",
    [
        lambda model: ASAM(model, 0.7, eta=0.02, biases=True),
        lambda model: GSAM(model, 0.5, 0.2, 0.3, lr_max=0.1, lr_min=0.0, adaptive=True),
        lambda model: SAMON(model, 0.4),
    ],
    ids=["asam", "gsam", "sam_on"],
)
def test_saves_loads_and_trains_in_half_precision(trainer, tmp_path):
    model = keras.Sequential(
        [keras.Input((5,)), layers.LayerNormalization(), layers.Dense(3)]
    )
    made = trainer(model)
    made.compile("adam", "mse")
    x, y = batch()
    made.fit(x, y, verbose=0)
    made.save(tmp_path / "trainer.keras")
    again = keras.saving.load_model(tmp_path / "trainer.keras")
    assert type(again) is type(made)
    config, other = made.get_config(), again.get_config()
    assert {k: v for k, v in config.items() if k != "model"} == {
        k: v for k, v in other.items() if k != "model"
    }
    assert_same(again.model.get_weights(), model.get_weights())
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        half = trainer(
            keras.Sequential(
                [keras.Input((5,)), layers.LayerNormalization(), layers.Dense(3)]
            )
        )
        half.compile("adam", "mse")
        assert np.isfinite(half.train_on_batch(x, y))
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda m: ASAM(m, eta=-1), "`eta` must be a finite number"),
        (lambda m: GSAM(m, lr_max=0.1, lr_min=0.2), "nor `lr_min` above"),
        (lambda m: GSAM(m, 0.1, 0.2, lr_max=0.1, lr_min=0), "must not be above"),
        (lambda m: GSAM(m, alpha="x", lr_max=1, lr_min=0), "`alpha` must be"),
        (lambda m: SAMON(m), "must have a normalisation layer"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make(linear())
