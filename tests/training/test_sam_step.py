"""One SAM step, compared with the formula in NumPy or a plain Keras step."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.layers.stochastic_depth import StochasticDepth
from kerasvit.training import SAM
from kerasvit.training.sam import ascend

RHO, RATE = 0.3, 0.1
backend = keras.backend.backend()


def batch(n=6, inputs=5, outputs=3):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, inputs)).astype("float32")
    return x, rng.normal(size=(n, outputs)).astype("float32")


def two_linear(**second):
    """X → X A B, whose gradients are easily written down."""
    return keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(4, use_bias=False, name="a"),
            layers.Dense(3, use_bias=False, name="b", **second),
        ]
    )


def gradients(weights, x, y, share=None):
    """Gradients of the mean squared error of `two_linear`, with sample weights."""
    a, b = weights
    share = np.ones(len(x)) if share is None else share
    residual = 2 * (x @ a @ b - y) * share[:, None] / y.size
    return [x.T @ residual @ b.T, (x @ a).T @ residual]


def uphill(weights, g, rho=RHO):
    norm = np.sqrt(sum(np.sum(np.square(each)) for each in g))
    return [w + rho * each / norm for w, each in zip(weights, g, strict=True)]


def float64(weights):
    return [np.asarray(w, "float64") for w in weights]


def sam_step(model, x, y, optimizer=None, rho=RHO, loss="mse", **options):
    """One batch; returns weights before, weights after, logs."""
    trainer = SAM(model, rho)
    trainer.compile(optimizer or keras.optimizers.SGD(RATE), loss)
    before = float64(model.get_weights())
    logs = trainer.train_on_batch(x, y, return_dict=True, **options)
    return before, float64(model.get_weights()), logs


def assert_same(actual, expected, tolerance=2e-6):
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=0, atol=tolerance)


def test_perturbation_is_the_gradient_over_one_norm_of_all_weights():
    x, y = batch()
    before, after, logs = sam_step(two_linear(), x, y)
    second = gradients(uphill(before, gradients(before, x, y)), x, y)
    assert_same(after, [w - RATE * g for w, g in zip(before, second, strict=True)])
    # The loss is that of the clean weights.
    clean = np.mean(np.square(x @ before[0] @ before[1] - y))
    np.testing.assert_allclose(logs["loss"], clean, rtol=1e-6)


def test_clipping_acts_on_the_second_gradient_alone():
    x, y = batch()
    optimizer = keras.optimizers.SGD(RATE, global_clipnorm=0.05)
    before, after, _ = sam_step(two_linear(), x, y, optimizer)
    second = gradients(uphill(before, gradients(before, x, y)), x, y)
    norm = np.sqrt(sum(np.sum(np.square(g)) for g in second))
    assert norm > 0.05
    assert_same(
        after, [w - RATE * g * 0.05 / norm for w, g in zip(before, second, strict=True)]
    )


def test_decoupled_weight_decay_is_in_neither_gradient():
    x, y = batch()
    optimizer = keras.optimizers.SGD(RATE, weight_decay=0.2)
    before, after, _ = sam_step(two_linear(), x, y, optimizer)
    second = gradients(uphill(before, gradients(before, x, y)), x, y)
    assert_same(
        after,
        [w * (1 - RATE * 0.2) - RATE * g for w, g in zip(before, second, strict=True)],
    )


@pytest.mark.parametrize("option", ["sample_weight", "class_weight"])
def test_sample_and_class_weights_count_in_both_passes(option):
    x, y = batch()
    model = two_linear()
    if option == "sample_weight":
        share = np.array([3, 0, 1, 0.5, 2, 1], "float32")
        value = share
    else:
        y = np.eye(3, dtype="float32")[[0, 1, 2, 2, 1, 0]]
        value = {0: 2.0, 1: 0.0, 2: 0.5}
        share = np.array([2, 0, 0.5, 0.5, 0, 2])
    before, after, _ = sam_step(model, x, y, **{option: value})
    first = gradients(before, x, y, share)
    second = gradients(uphill(before, first), x, y, share)
    assert_same(after, [w - RATE * g for w, g in zip(before, second, strict=True)])


def test_regularisers_count_in_both_passes():
    x, y = batch()
    model = two_linear(kernel_regularizer=keras.regularizers.L2(0.7))

    def of(weights):
        a, b = gradients(weights, x, y)
        return [a, b + 2 * 0.7 * weights[1]]

    before, after, logs = sam_step(model, x, y)
    second = of(uphill(before, of(before)))
    assert_same(after, [w - RATE * g for w, g in zip(before, second, strict=True)])
    penalty = 0.7 * np.sum(np.square(before[1]))
    clean = np.mean(np.square(x @ before[0] @ before[1] - y)) + penalty
    np.testing.assert_allclose(logs["loss"], clean, rtol=1e-5)


def test_added_losses_count_in_both_passes():
    x, y = batch()
    model = two_linear(activity_regularizer=keras.regularizers.L2(0.4))

    def of(weights):
        a, b = weights
        residual = 2 * (x @ a @ b - y) / y.size + 2 * 0.4 * x @ a @ b / len(x)
        return [x.T @ residual @ b.T, (x @ a).T @ residual]

    before, after, _ = sam_step(model, x, y)
    second = of(uphill(before, of(before)))
    assert_same(after, [w - RATE * g for w, g in zip(before, second, strict=True)])


def test_a_frozen_layer_is_unchanged_and_not_in_the_norm():
    x, y = batch()
    model = two_linear()
    model.get_layer("a").trainable = False
    before, after, _ = sam_step(model, x, y)
    np.testing.assert_array_equal(after[0], before[0])
    first = gradients(before, x, y)
    uphill_b = uphill(before[1:], first[1:])
    second = gradients([before[0], *uphill_b], x, y)
    assert_same(after[1:], [before[1] - RATE * second[1]])


def test_a_weight_without_gradient_does_not_change():
    class Unused(layers.Layer):
        def build(self, shape):
            self.unused = self.add_weight(shape=(3,), name="unused")

        def call(self, inputs):
            return inputs

    x, y = batch()
    model = keras.Sequential([keras.Input((5,)), layers.Dense(3), Unused()])
    if backend == "tensorflow":
        with pytest.warns(UserWarning, match="Gradients do not exist"):
            before, after, _ = sam_step(model, x, y)
    else:
        before, after, _ = sam_step(model, x, y)
    np.testing.assert_array_equal(after[2], before[2])
    assert np.isfinite(after[0]).all() and not np.array_equal(after[0], before[0])


def test_a_zero_gradient_does_not_perturb():
    x = np.ones((4, 5), "float32")
    model = two_linear(kernel_initializer="zeros")
    model.get_layer("a").kernel.assign(np.zeros((5, 4)))
    before, after, logs = sam_step(model, x, np.zeros((4, 3), "float32"))
    assert logs["loss"] == 0
    assert_same(after, before, tolerance=0)


def test_only_the_optimizer_writes_weights():
    x, y = batch()
    before, after, _ = sam_step(two_linear(), x, y, keras.optimizers.SGD(0.0), rho=5.0)
    assert_same(after, before, tolerance=0)


def test_accumulated_update_is_the_mean_of_sam_gradients():
    x, y = batch()
    model = two_linear()
    trainer = SAM(model, RHO)
    trainer.compile(keras.optimizers.SGD(RATE, gradient_accumulation_steps=2), "mse")
    before = float64(model.get_weights())
    trainer.train_on_batch(x[:3], y[:3])
    assert_same(float64(model.get_weights()), before, tolerance=0)
    trainer.train_on_batch(x[3:], y[3:])
    halves = []
    for half in (slice(0, 3), slice(3, 6)):
        first = gradients(before, x[half], y[half])
        halves.append(gradients(uphill(before, first), x[half], y[half]))
    mean = [(g + h) / 2 for g, h in zip(*halves, strict=True)]
    assert_same(
        float64(model.get_weights()),
        [w - RATE * g for w, g in zip(before, mean, strict=True)],
    )


def random_model(kind):
    keras.utils.set_random_seed(3)
    noise = {
        "dropout": lambda: layers.Dropout(0.5),
        "seeded dropout": lambda: layers.Dropout(0.5, seed=7),
        "stochastic depth": lambda: StochasticDepth(0.5),
    }[kind]
    return keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(16),
            noise(),
            layers.BatchNormalization(),
            layers.Dense(16, activation="tanh"),
            noise(),
            layers.Dense(3),
        ]
    )


def states(model):
    return [ops.convert_to_numpy(v) for v in model.non_trainable_variables]


def run(wrap, kind, steps=3, **options):
    """Trains one of two equal models; returns its variables and the losses."""
    x, y = batch(16)
    model = random_model(kind)
    trainer = wrap(model)
    trainer.compile(keras.optimizers.SGD(RATE, momentum=0.9), "mse", **options)
    keras.utils.set_random_seed(4)
    losses = [trainer.train_on_batch(x, y) for _ in range(steps)]
    return [ops.convert_to_numpy(v) for v in model.variables], losses


KINDS = ["dropout", "seeded dropout", "stochastic depth"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_the_same_in_both_passes_and_new_in_every_step(kind):
    plain, losses = run(lambda model: model, kind)
    near, near_losses = run(lambda model: SAM(model, 1e-7), kind)
    # Other masks would change these by tenths. Seeds are among the variables.
    assert_same(near, plain, 1e-5)
    np.testing.assert_allclose(near_losses, losses, rtol=1e-4)


@pytest.mark.long
@pytest.mark.only_on("tensorflow", reason="XLA is the default or not there")
def test_masks_are_the_same_under_xla():
    plain, _ = run(lambda model: model, "dropout", jit_compile=True)
    near, _ = run(lambda model: SAM(model, 1e-7), "dropout", jit_compile=True)
    assert_same(near, plain, 1e-5)


def test_rho_0_is_plain_training_to_the_bit():
    plain, losses = run(lambda model: model, "dropout")
    none, none_losses = run(lambda model: SAM(model, 0), "dropout")
    assert_same(none, plain, tolerance=0)
    assert none_losses == losses


def test_state_is_that_of_one_clean_pass():
    x, y = batch(16)
    plain, sam = random_model("dropout"), random_model("dropout")
    plain.compile("sgd", "mse")
    keras.utils.set_random_seed(4)
    plain.train_on_batch(x, y)
    trainer = SAM(sam, 20.0)
    trainer.compile("sgd", "mse")
    keras.utils.set_random_seed(4)
    initial = states(sam)
    trainer.train_on_batch(x, y)
    changed = 0
    for before, after, expected in zip(
        initial, states(sam), states(plain), strict=True
    ):
        np.testing.assert_allclose(after, expected, rtol=1e-6, atol=1e-7)
        changed += not np.array_equal(before, after)
    assert changed >= 2  # moving mean and variance, and seeds where they are drawn


@pytest.mark.not_on("jax", reason="Keras on JAX refuses unseeded draws")
def test_draws_from_the_global_seed_repeat_too():
    class Global(layers.Layer):
        def call(self, inputs):
            return inputs * keras.random.uniform(ops.shape(inputs))

    def train(wrap):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((5,)), Global(), layers.Dense(3)])
        trainer = wrap(model)
        trainer.compile(keras.optimizers.SGD(RATE), "mse", run_eagerly=True)
        x, y = batch()
        losses = [trainer.train_on_batch(x, y) for _ in range(3)]
        return model.get_weights(), losses

    weights, losses = train(lambda model: model)
    near, near_losses = train(lambda model: SAM(model, 1e-7))
    np.testing.assert_allclose(near_losses, losses, rtol=1e-4)
    assert_same(near, weights, 1e-5)


def test_metrics_are_those_of_the_clean_pass():
    x, _ = batch(32)
    y = np.random.default_rng(2).integers(0, 3, 32)
    model = two_linear()
    trainer = SAM(model, 5.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile("sgd", loss, metrics=["accuracy"], weighted_metrics=["accuracy"])
    clean = trainer.test_on_batch(x, y, return_dict=True)
    logs = trainer.train_on_batch(x, y, return_dict=True)
    assert logs.keys() == clean.keys()
    for name in clean:
        np.testing.assert_allclose(logs[name], clean[name], rtol=1e-6)


def test_mixed_bfloat16_follows_float32():
    x, y = batch()
    keras.utils.set_random_seed(0)
    _, expected, _ = sam_step(two_linear(), x, y)
    keras.config.set_dtype_policy("mixed_bfloat16")
    keras.utils.set_random_seed(0)
    model = two_linear()
    _, after, _ = sam_step(model, x, y)
    assert {v.dtype for v in model.trainable_variables} == {"float32"}
    assert_same(after, expected, 0.02)


def test_bfloat16_weights_stay_bfloat16():
    keras.config.set_dtype_policy("bfloat16")
    x, y = batch()
    model = two_linear()
    before, after, _ = sam_step(model, x, y)
    assert {v.dtype for v in model.trainable_variables} == {"bfloat16"}
    assert np.isfinite(after[0]).all() and not np.array_equal(after[0], before[0])


def test_mixed_float16_scales_the_loss_and_skips_a_step_that_overflows():
    x, y = batch()
    keras.utils.set_random_seed(0)
    _, expected, _ = sam_step(two_linear(), x, y)
    keras.config.set_dtype_policy("mixed_float16")
    keras.utils.set_random_seed(0)
    model = two_linear()
    trainer = SAM(model, RHO)
    trainer.compile(keras.optimizers.SGD(RATE), "mse")
    assert isinstance(trainer.optimizer, keras.optimizers.LossScaleOptimizer)
    # The default scale of 32768 overflows in the first steps, as in plain training.
    trainer.compile(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE), 64.0), "mse"
    )
    trainer.train_on_batch(x, y)
    after = model.get_weights()
    assert_same(after, expected, 5e-3)
    scale = float(trainer.optimizer.dynamic_scale)
    trainer.train_on_batch(np.full_like(x, np.inf), y)
    assert_same(model.get_weights(), after, tolerance=0)
    assert float(trainer.optimizer.dynamic_scale) == scale / 2


def test_ascend_takes_one_float32_norm_and_keeps_dtypes():
    rng = np.random.default_rng(0)
    w = [rng.normal(size=(3, 2)), rng.normal(size=4), rng.normal(size=2)]
    g = [rng.normal(size=(3, 2)), rng.normal(size=4)]
    tensors = [ops.convert_to_tensor(v, "float32") for v in w]
    slopes = [*(ops.convert_to_tensor(v, "float32") for v in g), None]
    top = ascend(tensors, slopes, 2.0)
    assert_same([ops.convert_to_numpy(v) for v in top[:2]], uphill(w[:2], g, 2.0), 1e-6)
    assert top[2] is tensors[2]
    step = [ops.convert_to_numpy(t) - v for t, v in zip(top[:2], w[:2], strict=True)]
    np.testing.assert_allclose(np.sqrt(sum(np.sum(s**2) for s in step)), 2, rtol=1e-6)
    # In float16 itself the 70000 squares would add up to infinity.
    ones = ops.ones((70000,), "float16")
    moved = ascend([ops.zeros((70000,), "float16")], [ones], 1.0)[0]
    assert keras.backend.standardize_dtype(moved.dtype) == "float16"
    np.testing.assert_allclose(float(moved[0]), 70000**-0.5, rtol=1e-3)
    assert ascend([], [], 1.0) == []
