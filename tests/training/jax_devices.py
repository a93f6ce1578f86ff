"""Cases on several JAX devices, which test_jax_devices.py runs in a new process.

    python -m tests.training.jax_devices results.json [CASE ...]

Writes {name of the case: null, or the traceback of its failure}.
"""

import functools
import json
import sys
import traceback

import keras
import numpy as np
from keras import layers, ops

import kerasvit
from kerasvit import ASAM, GSAM, SAM, SAMON, DistillationTrainer, LookSAM

CASES, LONG_CASES = {}, {}


def case(function):
    CASES[function.__name__] = function
    return function


def long_case(function):
    LONG_CASES[function.__name__] = function
    return function


def devices(number):
    """Scope of `number` CPU devices, each with a copy of the weights."""
    names = [f"cpu:{i}" for i in range(number)]
    return keras.distribution.DataParallel(devices=names).scope()


def batch(samples=16):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(samples, 5)).astype("float32")
    return x, np.eye(3, dtype="float32")[rng.integers(0, 3, samples)]


def network():
    """A model with all state that could differ between devices."""
    keras.utils.set_random_seed(0)
    image = keras.Input((5,))
    x = layers.Dense(8, use_bias=False, name="dense")(image)
    x = layers.BatchNormalization(momentum=0.5, name="norm")(x)
    x = layers.Dropout(0.5, seed=7, name="dropout")(ops.tanh(x))
    return keras.Model(image, layers.Dense(3, activation="softmax", name="head")(x))


def small():
    """A model without random numbers or statistics, which compiles fast."""
    keras.utils.set_random_seed(0)
    stack = [layers.LayerNormalization(), layers.Dense(3)]
    return keras.Sequential([keras.Input((5,)), *stack])


def distilled(model, **options):
    return SAM(DistillationTrainer(model, small()), 0.5, **options)


DECODER = {"width": 8, "depth": 1, "num_heads": 2}
FALLING = keras.optimizers.schedules.PolynomialDecay(1.0, 2, 0.1)
TRAINERS = {
    "SAM": lambda model, **o: SAM(model, 0.5, **o),
    "LookSAM": lambda model, **o: LookSAM(model, 0.5, k=2, **o),
    "ASAM": lambda model, **o: ASAM(model, 2.0, **o),
    "distilled": distilled,
    "SAMON": lambda model, **o: SAMON(model, 0.5, **o),
    "schedule": lambda model, **o: SAM(model, FALLING, **o),
    "GSAM": lambda model, **o: GSAM(model, 0.5, 0.1, lr_max=0.5, lr_min=0.1, **o),
}
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.3, momentum=0.9),
    "adamw": lambda: keras.optimizers.AdamW(0.01, global_clipnorm=1.0),
    "by_layer": lambda: kerasvit.layer_decay(
        keras.optimizers.AdamW(0.01), network(), 0.5, groups=["dense/", "norm/"]
    ),
}


@functools.cache
def trained(number, trainer="SAM", optimizer="sgd", make=network, how=(), **options):
    """Variables and logs after an epoch of two steps on `number` devices."""
    x, y = batch()
    with devices(number):
        made = TRAINERS[trainer](make(), **options)
        counts = ["accuracy", keras.metrics.TruePositives(name="hits")]
        metrics = counts if make is network else None
        made.compile(OPTIMIZERS[optimizer](), "mse", metrics=metrics, **dict(how))
        logs = made.fit(x, y, batch_size=8, shuffle=False, verbose=0).history
        variables = [ops.convert_to_numpy(v) for v in made.variables]
    names = [v.path for v in made.variables]
    return [*names, *logs], [*variables, *map(np.array, logs.values())]


def assert_equal(one, other, tolerance=2e-6):
    for name, *values in zip(one[0], one[1], other[1], strict=True):
        np.testing.assert_allclose(*values, tolerance, tolerance, err_msg=name)


def largest_difference(one, other):
    return np.abs(one[1][0] - other[1][0]).max()


def assert_parts(trainer, **options):
    """Checks that two devices equal two micro-batches, and differ from SAM."""
    two, parts = (
        trained(number, trainer, make=small, micro_batches=2 // number, **options)
        for number in (2, 1)
    )
    assert_equal(two, parts, 1e-5)
    assert largest_difference(two, trained(2, make=small)) > 1e-3


@case
def local_is_a_micro_batch_a_device():
    assert_equal(trained(2), trained(1, micro_batches=2))


@case
def diagnostics_are_means_over_devices():
    options = {"make": small, "diagnostics": True}
    two, parts = (trained(n, micro_batches=3 - n, **options) for n in (2, 1))
    assert_equal(two, parts, 1e-5)
    assert {"sharpness", "gradient_cosine"} < {*two[0]}
    everywhere = {**options, "perturbation": "global"}
    assert_equal(trained(2, **everywhere), trained(1, **everywhere), 1e-5)


@long_case
def rates_by_layer():
    assert_equal(
        trained(2, optimizer="by_layer"),
        trained(1, optimizer="by_layer", micro_batches=2),
        1e-5,
    )


@long_case
def micro_batches_on_every_device():
    assert_equal(trained(2, micro_batches=2), trained(1, micro_batches=4))


@case
def four_devices():
    assert_equal(trained(4), trained(1, micro_batches=4))


@case
def local_is_the_default_and_is_not_global():
    assert SAM(small()).perturbation == "local"
    everywhere = trained(2, perturbation="global")
    assert largest_difference(trained(2), everywhere) > 1e-3


@case
def global_is_one_device():
    assert_equal(trained(2, perturbation="global"), trained(1))


@case
def a_teacher_sees_the_batch_of_each_device():
    assert_parts("distilled")
    everywhere = trained(2, "distilled", make=small, perturbation="global")
    assert_equal(everywhere, trained(1, "distilled", make=small))


@long_case
def masks_are_those_of_parts():
    x = np.random.default_rng(1).uniform(-1, 1, (8, 8, 8, 3)).astype("float32")
    found = []
    for number in (2, 1):
        with devices(number):
            keras.utils.set_random_seed(1)
            sizes = {"width": 8, "depth": 1, "num_heads": 2, "mlp_dim": 8}
            vit = kerasvit.VisionTransformer(image_size=8, patch_size=2, **sizes)
            options = {"rho": 0.1, "micro_batches": 3 - number}
            trainer = kerasvit.MaskedPatches(vit, "mae", decoder=DECODER, **options)
            trainer.compile(keras.optimizers.SGD(0.1))
            trainer.fit(x, batch_size=8, epochs=2, shuffle=False, verbose=0)
            variables = trainer.variables
            values = [ops.convert_to_numpy(v) for v in variables]
            found.append(([v.path for v in variables], values))
    assert_equal(*found)


@long_case
def global_with_micro_batches_is_one_device_with_as_many():
    both = trained(2, perturbation="global", micro_batches=2)
    assert_equal(both, trained(1, micro_batches=2))


@case
def moving_statistics_are_the_mean():
    x, _ = batch()
    moments = np.zeros(8), np.ones(8)
    with devices(1):
        kernel = network().get_layer("dense").get_weights()[0]
    # After one step; two devices with four samples each.
    hidden = [half @ kernel for half in (x[:4], x[4:8])]
    moments = [
        0.5 * start + 0.5 * np.mean([function(h, axis=0) for h in hidden], axis=0)
        for start, function in zip(moments, (np.mean, np.var))
    ]
    with devices(2):
        trainer = SAM(network())
        trainer.compile("sgd", "mse")
        trainer.train_on_batch(*(each[:8] for each in batch()))
        norm = trainer.model.get_layer("norm")
        found = norm.moving_mean, norm.moving_variance
        for value, expected in zip(found, moments):
            np.testing.assert_allclose(ops.convert_to_numpy(value), expected, 1e-5)


@case
def samples_are_counted_once():
    class Counting(keras.Model):
        """Counts its samples where it computes the loss."""

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.samples = keras.metrics.Sum(name="samples")

        def compute_loss(self, x=None, y=None, y_pred=None, *rest, **options):
            self.samples.update_state(ops.ones((ops.shape(x)[0],)))
            return super().compute_loss(x, y, y_pred, *rest, **options)

    with devices(2):
        image = keras.Input((5,))
        trainer = SAM(Counting(image, layers.Dense(3)(image)))
        trainer.compile("sgd", "mse", metrics=["accuracy"])
        logs = trainer.fit(*batch(), batch_size=8, verbose=0).history
    assert logs["samples"] == [16]


@case
def loss_and_metrics_are_those_of_all_samples():
    x, y = batch(8)
    with devices(2):
        model = keras.Sequential([keras.Input((5,)), layers.Dense(3)])
        trainer = SAM(model, 5.0)
        hits = keras.metrics.TruePositives(name="hits")
        trainer.compile("sgd", "mse", metrics=["accuracy", hits])
        outputs = x @ model.get_weights()[0]
        logs = trainer.train_on_batch(x, y, return_dict=True)
    right = (outputs.argmax(1) == y.argmax(1)).mean()
    np.testing.assert_allclose(logs["loss"], np.square(outputs - y).mean(), 1e-5)
    np.testing.assert_allclose(logs["accuracy"], right, 1e-6)
    assert logs["hits"] == (outputs[y == 1] > 0.5).sum()


@case
def an_overflow_on_one_device_skips_the_step_on_all():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        with devices(2):
            model = keras.Sequential([keras.Input((5,)), layers.Dense(3)])
            trainer = LookSAM(model, 0.1)
            sgd = keras.optimizers.SGD(0.1)
            trainer.compile(keras.optimizers.LossScaleOptimizer(sgd, 64.0), "mse")
            x, y = batch(8)
            trainer.train_on_batch(x, y)
            before = [ops.convert_to_numpy(v) for v in trainer.model.variables]
            memory = trainer.slots_of(trainer.trainable_variables)
            kept = [ops.convert_to_numpy(v) for v in memory]
            x[6] = np.inf
            trainer.batches = 0
            trainer.train_on_batch(x, y)
            assert float(trainer.optimizer.dynamic_scale) == 32
            assert trainer.batches == 0
            after = [ops.convert_to_numpy(v) for v in trainer.model.variables]
            for one, other in zip(before + kept, after + list(memory)):
                np.testing.assert_array_equal(one, ops.convert_to_numpy(other))
            assert np.abs(kept[0]).max() > 0
    finally:
        keras.config.set_dtype_policy("float32")


@case
def looksam_and_what_it_remembers():
    assert_parts("LookSAM")


@case
def every_second_update():
    assert_parts("SAM", every=2)


@long_case
def asam_with_adamw():
    assert_parts("ASAM", optimizer="adamw")


@case
def gsam():
    assert_parts("GSAM")


@long_case
def a_schedule_of_the_radius():
    assert_parts("schedule")


def quantized():
    model = small()
    model.layers[-1].quantize("float8")
    return model


@long_case
def float8_scales_are_the_same_on_both():
    two, parts = (
        trained(number, make=quantized, micro_batches=2 // number) for number in (2, 1)
    )
    assert_equal(two, parts, 1e-5)


@long_case
def sam_on():
    assert_parts("SAMON")


@long_case
def without_compilation():
    x, y = batch(4)

    def weights(**how):
        with devices(2):
            keras.utils.set_random_seed(0)
            model = keras.Sequential([keras.Input((5,)), layers.Dense(3)])
            trainer = SAM(model, 0.5)
            trainer.compile("sgd", "mse", **how)
            trainer.train_on_batch(x, y)
            return model.get_weights()

    # `jit_compile=False` is the same on JAX.
    for one, other in zip(weights(run_eagerly=True), weights()):
        np.testing.assert_allclose(one, other, 1e-6, 1e-6)


@case
def steps_per_execution():
    at_once = trained(2, make=small, how=(("steps_per_execution", 2),))
    assert_equal(at_once, trained(2, make=small), 0)


@case
def several_outputs_and_weights_of_samples():
    x, y = batch(8)
    share = np.array([3, 0, 1, 0.5, 2, 1, 0, 4], "float32")

    def weights(number, **options):
        with devices(number):
            keras.utils.set_random_seed(0)
            image = keras.Input((5,), name="image")
            hidden = layers.Dense(4, activation="tanh")(image)
            heads = {"a": layers.Dense(3)(hidden), "b": layers.Dense(1)(hidden)}
            trainer = SAM(keras.Model({"image": image}, heads), 0.5, **options)
            trainer.compile("sgd", {"a": "mse", "b": "mae"})
            targets = {"a": y, "b": x[:, :1]}
            weight = {"a": share, "b": share[::-1].copy()}
            loss = trainer.train_on_batch({"image": x}, targets, sample_weight=weight)
            return [*trainer.model.get_weights(), np.asarray(loss)]

    for one, other in zip(weights(2), weights(1, micro_batches=2)):
        np.testing.assert_allclose(one, other, 1e-6, 1e-6)


@case
def a_batch_that_devices_do_not_divide_fails_as_without_sam():
    def message(wrap):
        with devices(2):
            trainer = wrap(network())
            trainer.compile("sgd", "mse")
            try:
                trainer.fit(*batch(7), verbose=0)
            except ValueError as error:
                return str(error)
            return None

    plain = message(lambda model: model)
    assert plain is not None and "divide" in plain
    assert message(SAM) == plain


@case
def evaluates_and_predicts_after_training():
    x, y = batch(8)
    with devices(2):
        trainer = SAM(network())
        trainer.compile("sgd", "mse", metrics=["accuracy"])
        trainer.fit(x, y, validation_data=(x, y), verbose=0)
        found = trainer.predict(x, verbose=0)
        loss = trainer.evaluate(x, y, verbose=0)[0]
    np.testing.assert_allclose(loss, np.square(found - y).mean(), 1e-5)


def model_parallel(shape):
    """Splits a ViT's heads and hidden units over a (batch, model) mesh."""
    names = [f"cpu:{i}" for i in range(shape[0] * shape[1])]
    mesh = keras.distribution.DeviceMesh(shape, ["batch", "model"], names)
    layout = kerasvit.layout_map(mesh)
    return keras.distribution.ModelParallel(layout_map=layout).scope()


def vit(num_heads=2):
    keras.utils.set_random_seed(0)
    return kerasvit.VisionTransformer(
        patch_size=4,
        width=8,
        depth=1,
        num_heads=num_heads,
        mlp_dim=12,
        image_size=8,
        num_classes=3,
    )


def images():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 8, 8, 3)).astype("float32")
    return x, np.eye(3, dtype="float32")[[0, 1, 2, 1]]


def is_split(variable):
    return not variable.value.sharding.is_fully_replicated


def one_step(scope, wrap, make=vit, shards=1):
    """Weights, other state and the loss after a step."""
    with scope:
        model = make()
        trainer = wrap(model)
        trainer.compile(keras.optimizers.SGD(0.3, momentum=0.9), "mse")
        loss = trainer.train_on_batch(*images())
        variables = [*trainer.variables, *trainer.optimizer.variables]
        values = [ops.convert_to_numpy(v) for v in variables]
        # Of the block: 3 kernels and biases, output; 2 kernels, a bias. As many
        # momenta, and as many vectors of LookSAM's.
        split = [v for v in variables if is_split(v)]
        copies = 3 if isinstance(trainer, LookSAM) else 2
        assert len(split) == (copies * 10 if shards > 1 else 0), len(split)
        for v in split:
            size = v.value.addressable_shards[0].data.size
            assert size * shards == v.value.size, v.path
    return [*values, np.asarray(loss)]


def plain(model):
    return model


def assert_same_step(shape, wrap, make=vit):
    found = one_step(model_parallel(shape), wrap, make, shards=2)
    for one, other in zip(found, one_step(devices(1), wrap, make), strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-5)


@case
def plain_step_of_a_split_vit_even_where_devices_do_not_divide_the_heads():
    assert_same_step((1, 2), plain, lambda: vit(num_heads=1))


@case
def local_step_of_a_split_vit_and_what_looksam_remembers():
    assert_same_step((1, 2), lambda model: LookSAM(model, 0.5))


@case
def global_step_of_a_split_vit_whose_batch_is_spread():
    assert_same_step((2, 2), lambda model: SAM(model, 0.5, perturbation="global"))


@long_case
def a_schedule_of_the_radius_of_a_split_vit():
    assert_same_step((1, 2), lambda model: SAM(model, FALLING))


@case
def a_width_that_devices_do_not_divide_is_refused():
    with model_parallel((1, 3)):
        try:
            vit()
        except ValueError as error:
            assert "divi" in str(error), error
        else:
            raise AssertionError("8 columns over 3 devices")


@case
def local_is_refused_where_a_split_model_s_batches_are_spread():
    with model_parallel((2, 2)):
        trainer = SAM(vit())
        trainer.compile("sgd", "mse")
        try:
            trainer.train_on_batch(*images())
        except ValueError as error:
            assert '`perturbation` must be "global"' in str(error), error
        else:
            raise AssertionError("not refused")


def main(path, *names):
    results = {}
    cases = {**CASES, **LONG_CASES}
    for name in names or cases:
        try:
            cases[name]()
            results[name] = None
        except Exception:
            results[name] = traceback.format_exc()
    with open(path, "w", encoding="utf-8") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
