"""What trainers report of SAM's two passes, and the warning of a large radius."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers

import kerasvit
from kerasvit.training import GSAM, MSAM, SAM, LookSAM
from kerasvit.training.ascent import BEYOND, FEWEST, Ascent, Means, advice
from tests.once import long_elsewhere, on_last_backend, rest_long, rest_long_elsewhere
from tests.tiny_vit import TinyViT, random_model
from tests.trainers import COMPILED, EAGER, MODES, TRAINERS, batch, compiled, small

pytestmark = pytest.mark.slow

NAMES = ("sharpness", "gradient_cosine")
TWO_PASSES = sorted({*TRAINERS} - {"msam"})


def linear(seed=2):
    """X → X K + b, whose gradients are easily written down."""
    model = keras.Sequential([keras.Input((5,)), layers.Dense(3, name="dense")])
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=w.shape) for w in model.weights])
    return model


def loss_and_gradients(weights, x, y, sample_weight=1.0):
    kernel, bias = weights
    off = x @ kernel + bias - y
    scaled = 2 * off * np.reshape(sample_weight, (-1, 1)) / y.size
    loss = np.mean(np.mean(off**2, axis=-1) * sample_weight)
    return loss, [x.T @ scaled, scaled.sum(0)]


def longhand(name, weights, x, y, rho, sample_weight=1.0):
    """Sharpness and cosine of one step, by NumPy in float64."""
    weights = [np.asarray(w, "float64") for w in weights]
    low, g = loss_and_gradients(weights, x, y, sample_weight)
    t = [1.0, 1.0]
    if name == "asam":
        t = [np.abs(weights[0]) + 0.01, 1.0]
    length = np.sqrt(sum(np.sum((a * b) ** 2) for a, b in zip(t, g, strict=True)))
    above = [w + rho * a**2 * b / length for w, a, b in zip(weights, t, g, strict=True)]
    high, p = loss_and_gradients(above, x, y, sample_weight)
    flat, up = (np.concatenate([v.ravel() for v in each]) for each in (g, p))
    cosine = flat @ up / np.linalg.norm(flat) / np.linalg.norm(up)
    return np.array([high - low, cosine])


def logged(trainer, *data, **options):
    logs = trainer.train_on_batch(*data, return_dict=True, **options)
    return np.array([float(logs[name]) for name in NAMES])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "name", rest_long_elsewhere(["sam", "looksam", "asam", "gsam", "every"], 2)
)
def test_of_one_step(name, mode):
    x, y = batch()
    model = linear()
    before = model.get_weights()
    trainer = compiled(TRAINERS[name](model, diagnostics=True), **MODES[mode])
    rho = 0.2 if name == "gsam" else 0.3  # gsam's at half of its largest rate
    expected = longhand(name, before, x, y, rho)
    np.testing.assert_allclose(logged(trainer, x, y), expected, rtol=1e-5)


def test_of_normalisations_the_cosine_is_that_of_all_weights():
    x, y = batch(12)
    seen = compiled(TRAINERS["sam_on"](small(), diagnostics=True))
    for _ in range(2):
        sharpness, cosine = logged(seen, x, y)
    assert sharpness > 0 and 0 < cosine < 1


def test_means_over_an_epoch_and_over_it_alone():
    x, y = batch(12)
    once, fitted = (compiled(SAM(linear(), 0.3, diagnostics=True)) for _ in range(2))
    expected = []
    for _ in range(2):
        steps = []
        for i in range(0, 12, 4):
            once.reset_metrics()
            steps.append(logged(once, x[i : i + 4], y[i : i + 4]))
        expected.append(np.mean(steps, axis=0))
    options = {"epochs": 2, "batch_size": 4, "shuffle": False, "verbose": 0}
    history = fitted.fit(x, y, validation_data=(x, y), **options).history
    assert {*history} == {"loss", "val_loss", *NAMES}
    for i, name in enumerate(NAMES):
        np.testing.assert_allclose(history[name], [e[i] for e in expected], rtol=1e-5)
    assert "sharpness" not in fitted.evaluate(x, y, verbose=0, return_dict=True)


@pytest.mark.parametrize("name", rest_long_elsewhere(TWO_PASSES))
def test_the_training_is_the_same(name):
    x, y = batch(12)
    trainers = [compiled(TRAINERS[name](small())) for _ in range(2)]
    trainers[1].diagnostics = True
    for trainer in trainers:
        trainer.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    first, second = (trainer.model.get_weights() for trainer in trainers)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("make", ["every", "looksam"])
def test_steps_with_one_pass_are_left_out(make):
    x, y = batch()
    trainer = compiled(TRAINERS[make](small(), diagnostics=True), **COMPILED)
    first, between, third = (logged(trainer, x, y) for _ in range(3))
    assert np.isfinite(first).all() and np.isnan(between).all()
    assert np.isfinite(third).all() and not np.array_equal(first, third)
    trainer.compile(keras.optimizers.SGD(0.0), "mse", **EAGER)
    history = trainer.fit(x, y, batch_size=2, shuffle=False, verbose=0).history
    trainer.compile(keras.optimizers.SGD(0.0), "mse", **EAGER)
    steps = [logged(trainer, x[i : i + 2], y[i : i + 2]) for i in (0, 2, 4)]
    found = [history[name][0] for name in NAMES]
    np.testing.assert_allclose(found, (steps[0] + steps[2]) / 2, rtol=1e-5)


def test_of_parts_is_their_mean():
    x, y = batch(6)
    model = linear()
    parts = [longhand("sam", model.get_weights(), x[i::], y[i::], 0.3) for i in (3,)]
    parts.append(longhand("sam", model.get_weights(), x[:3], y[:3], 0.3))
    trainer = compiled(SAM(model, 0.3, micro_batches=2, diagnostics=True), **COMPILED)
    np.testing.assert_allclose(logged(trainer, x, y), np.mean(parts, axis=0), rtol=1e-5)


def test_with_weights_of_samples_and_accumulation():
    x, y = batch()
    weight = np.linspace(0.2, 1.5, 6).astype("float32")
    model = linear()
    expected = longhand("sam", model.get_weights(), x, y, 0.3, weight)
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    trainer = compiled(SAM(model, 0.3, diagnostics=True), optimizer)
    for _ in range(2):  # at the same weights
        found = logged(trainer, x, y, sample_weight=weight)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_with_a_schedule():
    x, y = batch()
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.3, 0.1])
    model = linear()
    trainer = compiled(SAM(model, schedule, diagnostics=True))
    for rho in (0.3, 0.1):
        expected = longhand("sam", model.get_weights(), x, y, rho)
        trainer.reset_metrics()
        np.testing.assert_allclose(logged(trainer, x, y), expected, rtol=1e-5)


def test_in_bfloat16():
    x, y = batch()
    model = linear()
    model.get_layer("dense").dtype_policy = keras.DTypePolicy("mixed_bfloat16")
    expected = longhand("sam", model.get_weights(), x, y, 0.3)
    trainer = compiled(SAM(model, 0.3, diagnostics=True), **COMPILED)
    np.testing.assert_allclose(logged(trainer, x, y), expected, rtol=0.1)


def test_steps_that_overflow_are_left_out():
    x, y = batch()
    model = linear()
    expected = longhand("sam", model.get_weights(), x, y, 0.3)
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.0))
    trainer = compiled(SAM(model, 0.3, diagnostics=True), optimizer, **COMPILED)
    both = np.concatenate([x * np.inf, x]), np.concatenate([y, y])
    options = {"batch_size": 6, "shuffle": False, "verbose": 0}
    history = trainer.fit(*both, **options).history
    found = [history[name][0] for name in NAMES]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_without_perturbation_nothing_is_reported():
    x, y = batch()
    trainer = compiled(SAM(linear(), 0.0, diagnostics=True))
    assert {*trainer.train_on_batch(x, y, return_dict=True)} == {"loss"}


def test_momentum_sam_has_nothing_to_report():
    with pytest.raises(ValueError, match="MSAM has one"):
        MSAM(linear(), diagnostics=True)


def test_a_trainer_around_a_student_has_its_own():
    student = kerasvit.DistillationTrainer(linear(), linear(3), probabilities=False)
    student.diagnostics = True
    with pytest.raises(ValueError, match="'diagnostics': True"):
        SAM(student)


@pytest.mark.parametrize("name", ["sam", "gsam", "looksam"])
def test_files_keep_it(name, tmp_path):
    x, y = batch()
    trainer = compiled(TRAINERS[name](small(), diagnostics=True))
    assert "diagnostics=True" in repr(trainer)
    trainer.save(tmp_path / "trainer.keras")
    loaded = keras.models.load_model(tmp_path / "trainer.keras")
    assert loaded.diagnostics
    np.testing.assert_allclose(logged(loaded, x, y), logged(trainer, x, y), rtol=1e-5)


def sharp(rho, kind=SAM, scale=300.0, **options):
    """A classifier of large inputs, whose gradients are large; and its data."""
    x = np.random.default_rng(0).normal(size=(12, 8)).astype("float32")
    x = np.tile(x, (10, 1))  # batches alike, so that the loss does not fall by chance
    y = x[:, :3].argmax(-1)
    model = keras.Sequential([keras.Input((8,)), layers.Dense(3, name="head")])
    model.get_layer("head").set_weights([np.eye(8, 3) / scale * 5, np.zeros(3)])
    trainer = kind(model, rho, **options)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(keras.optimizers.SGD(0.0), loss, **EAGER)
    return trainer, (x * scale, y)


def heard(trainer, data, **options):
    """The warnings of the package in `fit`."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer.fit(
            *data, **{"batch_size": 12, "shuffle": False, "verbose": 0, **options}
        )
    return [str(each.message) for each in found if "rho is too" in str(each.message)]


@pytest.mark.parametrize(
    "options",
    rest_long_elsewhere([{}, {"epochs": 3}, {"epochs": 2, "validation_split": 0.5}]),
)
def test_a_radius_that_is_too_large_is_named_once(options):
    trainer, data = sharp(1.0)
    (text,) = heard(trainer, data, **options)
    share = float(text.split("Try ")[1].split()[0])
    assert 0 < share <= 0.2 and f"radius, {share:.1g}, or" in text
    again, data = sharp(share)
    assert heard(again, data, epochs=2) == []
    assert len(heard(trainer, data)) == 1  # in each `fit`


def test_short_epochs_count_together():
    trainer, data = sharp(1.0)
    (text,) = heard(trainer, data, batch_size=36, epochs=4)
    assert "first 8 steps" in text  # of two epochs


def test_means_of_two_epochs_are_those_of_their_steps():
    ascent, losses = Ascent(), np.array([3.0, 2.5, 2.0, 1.0, 0.5])
    found = None
    for start, end in [(0, 3), (3, 5)]:
        part = losses[start:end]
        trend = np.sum(np.arange(len(part)) * part)
        sums = [part.sum(), part.sum() / 2, part.sum() / 4, 0.0, trend, len(part)]
        ascent.sums.assign(np.array(sums, "float32"))
        found = ascent.means(found)
    right = np.mean(np.arange(5) * losses)
    assert found == pytest.approx((1.8, 0.9, 0.45, 0.0, right, 5), rel=1e-6)


def test_only_fit_warns():
    trainer, (x, y) = sharp(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for _ in range(2 * FEWEST):
            trainer.train_on_batch(x, y)
        trainer.evaluate(x, y, verbose=0)
        trainer.rho = 0.0  # the sums of the steps before are no part of this `fit`
        trainer.fit(x, y, verbose=0)


@pytest.mark.parametrize(
    ("kind", "options"),
    [(LookSAM, {"k": 2}), (GSAM, {"lr_max": 1e-7, "lr_min": 0.0})],
)
def test_other_methods_warn_too(kind, options):
    trainer, data = sharp(1.0, kind, **options)
    assert len(heard(trainer, data)) == 1


def means(loss=1.0, rise=0.2, slope=0.2, fall=0.0, steps=20):
    """Means of an epoch whose loss falls in a line."""
    t = np.arange(steps)
    losses = loss + fall * ((steps - 1) / 2 - t) / max(steps - 1, 1)
    return Means(loss, rise, slope, 0.0, float(np.mean(t * losses)), steps)


@on_last_backend
def test_signs_of_a_large_radius():
    assert advice(means(fall=-0.1), 0.1) is None
    assert advice(means(rise=0.05, fall=0.4), 0.1) is None  # the loss falls
    assert "rho is too large" in advice(means(rise=0.05, fall=-0.1), 0.1)
    assert advice(means(loss=0.1, rise=1.0, slope=BEYOND * 0.09, fall=-0.01), 1) is None
    above = means(loss=0.1, rise=1.0, slope=BEYOND * 0.11, fall=-0.01)
    assert "Try 0.2 times the radius, 0.08, or" in advice(above, 0.5)
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    assert "Try 0.2 times the radius, or" in advice(above, schedule)
    assert advice(means(rise=0.05, fall=-0.1, steps=FEWEST - 1), 0.1) is None
    # A loss below 0 has no natural size.
    assert advice(means(loss=-1.0, rise=0.3, fall=-0.1), 0.1) is None


@pytest.mark.only_on("tensorflow", reason="its debugger")
@pytest.mark.parametrize("name", rest_long([*TRAINERS, "adaptive", "remat"], 4))
def test_the_search_for_nan_finds_none_in_a_healthy_step(name):
    import tensorflow as tf

    x, y = batch()
    block = [keras.layers.Dense(4)]
    if name == "remat":
        with keras.RematScope("full"):
            block = [keras.layers.Dense(4)]
    make = TRAINERS.get(name, TRAINERS["sam"])
    tf.debugging.enable_check_numerics()
    try:
        trainer = make(small(*block))
        if name == "adaptive":
            options = {"adaptive": True, "lr_max": 0.2, "lr_min": 0.0}
            trainer = GSAM(small(), 0.3, 0.1, 0.5, **options)
        trainer.diagnostics = name not in ("msam", "every", "looksam")
        compiled(trainer, run_eagerly=False)
        for _ in range(3):
            trainer.train_on_batch(x, y)
    finally:
        tf.debugging.disable_check_numerics()


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file of a tiny ViT's weights, without a head for four classes."""
    folder = tmp_path_factory.mktemp("tiny")
    model = random_model(0)
    model.record["origin"] = "timm"
    kerasvit.save_pretrained(model, folder)
    return str(folder)


def head_warnings(trainer):
    x = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(keras.optimizers.SGD(0.0), loss, **EAGER)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer.fit(x, np.arange(4) % 3, epochs=2, verbose=0)
    return [each for each in found if "fit_head" in str(each.message)]


@long_elsewhere
def test_a_new_head_beside_loaded_weights_is_named_once(weights):
    def loaded():
        return TinyViT(weights, image_size=8, num_classes=4)

    (found,) = head_warnings(SAM(loaded()))
    assert found.filename.endswith("traceback_utils.py") or found.filename == __file__
    teacher = kerasvit.DistillationTrainer(loaded(), loaded(), probabilities=False)
    assert len(head_warnings(SAM(teacher))) == 1
    assert head_warnings(SAM(loaded(), 0.0)) == []
    fitted = loaded()
    fitted.get_layer("head").set_weights([np.eye(16, 4), np.zeros(4)])
    assert head_warnings(SAM(fitted)) == []
    frozen = loaded()
    for layer in frozen.layers[:-1]:
        layer.trainable = False
    assert head_warnings(SAM(frozen)) == []
    assert head_warnings(SAM(TinyViT(image_size=8, num_classes=4))) == []  # fresh
