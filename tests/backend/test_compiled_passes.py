"""`jit_compile=True` on PyTorch: one graph for each pass, with the same results."""

import warnings

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.backend.models import ClonableModel
from tests.contract import to_numpy
from tests.tiny_vit import TinyViT

on_torch = keras.backend.backend() == "torch"
if on_torch:
    from kerasvit.backend.torch.compile import MOST_SHAPES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.only_on("torch", reason="other backends compile the whole step"),
]


def vit(**options):
    return TinyViT(image_size=8, num_classes=3, **options)


def bit(**options):
    sizes = {"image_size": 32, "num_classes": 3, "stage_widths": [128] * 2}
    return kerasvit.BigTransfer(depths=[1, 1], width_factor=0.5, **sizes, **options)


def with_norm():
    """A model with layers that hold tensors which are no variables."""
    pixels = keras.Input((8, 8, 3))
    x = keras.layers.Normalization(mean=[0.1] * 3, variance=[2.0] * 3)(pixels)
    # A bias here has a gradient of rounding only, which Adam would scale up.
    x = keras.layers.Conv2D(4, 3, use_bias=False)(x)
    x = keras.layers.BatchNormalization(momentum=0.7)(x)
    x = keras.layers.Dense(3, activity_regularizer="l1")(x)
    return keras.Model(pixels, keras.layers.GlobalAveragePooling2D()(x))


MODELS = {
    "vit": vit,
    "half": lambda: vit(dtype="mixed_bfloat16"),
    "bit": bit,
    "keras": with_norm,
}
TRAINERS = {
    "plain": lambda model: model,
    "sam": lambda model: kerasvit.SAM(model, 0.1),
    "looksam": lambda model: kerasvit.LookSAM(model, 0.1, k=2),
    "nested": lambda model: kerasvit.SAM(distilled(model), 0.1),
}


def distilled(model):
    teacher = keras.models.clone_model(model)
    return kerasvit.DistillationTrainer(model, teacher, "soft", probabilities=False)


def data(model, count=6):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, *model.input_shape[1:])).astype("float32")
    return x, np.arange(count) % 3


def trained(make_model, make_trainer, jit, **fit):
    """History, predictions and variables after a full and a smaller batch, twice."""
    keras.utils.set_random_seed(1)
    model = make_model()
    trainer = make_trainer(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(kerasvit.AdamW(1e-3), loss, metrics=["accuracy"], jit_compile=jit)
    x, y = data(model)
    options = {"batch_size": 4, "epochs": 2, "shuffle": False, "verbose": 0}
    history = trainer.fit(x, y, validation_data=(x, y), **{**options, **fit}).history
    predicted = trainer.predict(x, batch_size=6, verbose=0)
    return history, predicted, [to_numpy(v) for v in model.variables]


@pytest.fixture
def graphs():
    """Numbers of compiled graphs, and of breaks."""
    from torch._dynamo.utils import counters

    counters.clear()
    return counters


@pytest.mark.parametrize(
    ("model", "trainer"),
    [
        ("vit", "sam"),
        pytest.param("half", "plain", marks=pytest.mark.long),
        pytest.param("bit", "plain", marks=pytest.mark.long),
        pytest.param("keras", "sam", marks=pytest.mark.long),
        pytest.param("vit", "looksam", marks=pytest.mark.long),
        pytest.param("bit", "sam", marks=pytest.mark.long),
    ],
)
def test_results_are_those_without_compilation(model, trainer, graphs):
    make = MODELS[model], TRAINERS[trainer]
    history, predicted, weights = trained(*make, jit=True)
    assert graphs["stats"]["unique_graphs"] > 0 and not graphs["graph_break"]
    other, expected, plain = trained(*make, jit=False)
    atol = 2e-2 if model == "half" else 2e-4
    for name, values in other.items():
        np.testing.assert_allclose(history[name], values, atol=atol)
    np.testing.assert_allclose(predicted, expected, atol=atol)
    for a, b in zip(weights, plain, strict=True):
        np.testing.assert_allclose(a, b, atol=3e-3 if model == "half" else 1e-4)


@pytest.mark.long
def test_random_layers_draw_the_same_masks_in_both_passes_of_sam(graphs):
    """At radius 0 both passes have the same masks, and so SAM's gradient is plain."""

    def model():
        return vit(dropout=0.3, stochastic_depth=0.3)

    def almost_plain(model):
        return kerasvit.SAM(model, 1e-12)

    options = {"batch_size": 6, "epochs": 3}
    _, _, weights = trained(model, almost_plain, jit=True, **options)
    _, _, plain = trained(model, TRAINERS["plain"], jit=True, **options)
    assert not graphs["graph_break"]
    for a, b in zip(weights, plain, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def noisy():
    pixels = keras.Input((4,))
    x = keras.layers.Dropout(0.5, seed=1)(keras.layers.Dense(8)(pixels))
    return ClonableModel(pixels, keras.layers.GaussianNoise(0.1, seed=2)(x))


def with_global_seed():
    class Noise(keras.layers.Layer):
        def call(self, x):
            return x + keras.random.normal(keras.ops.shape(x))

    pixels = keras.Input((4,))
    return ClonableModel(pixels, Noise()(keras.layers.Dense(8)(pixels)))


def with_untracked_seed():
    class Noise(keras.layers.Layer):
        def call(self, x):
            return x + keras.random.normal(keras.ops.shape(x), seed=generator)

    generator = keras.random.SeedGenerator(3)
    pixels = keras.Input((4,))
    return ClonableModel(pixels, Noise()(keras.layers.Dense(8)(pixels)))


@pytest.mark.parametrize("trainer", ["plain", "sam"])
@pytest.mark.parametrize("make", [noisy, with_global_seed, with_untracked_seed])
def test_random_numbers_of_other_layers_are_those_without_compilation(make, trainer):
    """PyTorch cannot compile them, and says so once."""
    x, y = np.random.default_rng(0).normal(size=(2, 4, 8)).astype("float32")
    found = []
    for jit in (False, True):
        keras.utils.set_random_seed(0)
        trained = TRAINERS[trainer](make())
        trained.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found.append([trained.train_on_batch(x[:, :4], y) for _ in range(4)])
        told = [str(each.message) for each in told]
        assert len([each for each in told if "could not compile" in each]) == jit
        # The generator that all layers without a seed share works as before.
        found[-1].append(to_numpy(keras.random.uniform((1,)))[0])
    assert len(set(found[0])) == 5
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_a_random_layer_draws_nothing_in_a_prediction():
    pixels = keras.Input((4,))
    model = ClonableModel(pixels, keras.layers.GaussianNoise(0.1, seed=1)(pixels))
    model.compile(jit_compile=True)
    x = np.ones((2, 4), "float32")
    np.testing.assert_array_equal(model.predict(x, verbose=0), x)


def test_a_module_of_pytorch_runs_uncompiled():
    import torch

    pixels = keras.Input((4,))
    layer = keras.layers.TorchModuleWrapper(
        torch.nn.Linear(4, 2), name="module", output_shape=(None, 2)
    )
    model = ClonableModel(pixels, layer(pixels))
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=True)
    x, y = np.ones((2, 4), "float32"), np.ones((2, 2), "float32")
    with pytest.warns(UserWarning, match="could not compile"):
        before = model.train_on_batch(x, y)
    assert model.train_on_batch(x, y) < before


@pytest.mark.parametrize("trainer", ["plain", "sam"])
def test_hooks_of_pytorch_are_called_in_a_prediction(trainer):
    model = vit()
    trained = TRAINERS[trainer](model)
    trained.compile(jit_compile=True)
    x, calls = data(model)[0], []
    expected = trained.predict_on_batch(x)
    model.layers[3].register_forward_hook(lambda *_: calls.append(1))
    for _ in range(2):
        found = trained.predict_on_batch(x)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert len(calls) == 2


def test_adamw_may_decay_nothing():
    pixels = keras.Input((4,))
    model = ClonableModel(pixels, keras.layers.Dense(2)(pixels))
    optimizer = kerasvit.AdamW(0.1, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_list=model.trainable_variables)
    model.compile(optimizer, "mse", jit_compile=True)
    losses = [model.train_on_batch(np.ones((4, 4)), np.ones((4, 2))) for _ in range(3)]
    assert losses[2] < losses[0]


@pytest.mark.long
def test_a_setting_with_many_values_is_compiled_each_time(graphs):
    class Scaled(keras.layers.Layer):
        factor = 0

        def call(self, x):
            return self.factor * x

    pixels, scaled = keras.Input((4,)), Scaled()
    model = ClonableModel(pixels, scaled(pixels))
    for factor in range(15):
        scaled.factor = factor
        model.compile(jit_compile=True)
        found = model.predict(np.ones((2, 4)), verbose=0)
        np.testing.assert_array_equal(found, factor)
    assert graphs["stats"]["unique_graphs"] == 15


def test_training_goes_on_after_a_batch_that_raised_as_without_compilation():
    x, y = np.random.default_rng(0).normal(size=(6, 8, 8, 3)), np.arange(6) % 3
    found = []
    for jit in (False, True):
        keras.utils.set_random_seed(0)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        pixels = keras.Input((8, 8, 3))
        z = keras.layers.BatchNormalization()(keras.layers.Flatten()(pixels))
        model = ClonableModel(pixels, keras.layers.Dense(3)(z))
        model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=jit)
        losses = [model.train_on_batch(x, y)]
        with pytest.raises((IndexError, RuntimeError)):
            model.train_on_batch(x, y + 3)
        losses += [model.train_on_batch(x, y) for _ in range(2)]
        found.append([*losses, model.evaluate(x, y, verbose=0)])
    np.testing.assert_allclose(*found, atol=1e-5)


def test_masks_of_outputs_are_kept():
    steps = keras.Input((5, 2))
    x = keras.layers.Masking(0.0)(steps)
    model = keras.Model(steps, keras.layers.Dense(1, kernel_initializer="ones")(x))
    x = np.random.default_rng(0).normal(size=(4, 5, 2)).astype("float32")
    x[:, 2:] = 0
    losses = []
    for jit in (False, True):
        trainer = kerasvit.SAM(model, 0.05)
        trainer.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=jit)
        losses.append(trainer.evaluate(x, np.ones((4, 5, 1)), verbose=0))
        losses.append(trainer.train_on_batch(x, np.ones((4, 5, 1))))
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)


@pytest.mark.parametrize("trainer", ["plain", "sam"])
@pytest.mark.filterwarnings("ignore:.*was compiled for")
def test_more_sizes_of_a_batch_than_are_compiled(trainer, graphs):
    pixels = keras.Input((4,))
    model = ClonableModel(pixels, keras.layers.Dense(2)(pixels))
    trainer = TRAINERS[trainer](model)
    trainer.compile("sgd", "mse", jit_compile=True)
    x = np.random.default_rng(0).normal(size=(MOST_SHAPES + 2, 4))
    for wrong in range(1, MOST_SHAPES + 1):
        with pytest.raises(ValueError, match="expected (shape=|axis).*4.*shape"):
            trainer.predict_on_batch(x[:wrong, :3])
    graphs.clear()
    for size in range(1, len(x) + 1):
        found = trainer.predict(x[:size], verbose=0)
        expected = x[:size] @ to_numpy(model.layers[-1].kernel)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert graphs["stats"]["unique_graphs"] == MOST_SHAPES


@pytest.fixture
def calls(monkeypatch):
    """Names of layers and models that Keras calls, with all its steps."""
    names, keras_call = [], keras.layers.Layer.__call__

    def call(called, *args, **kwargs):
        names.append(called.name)
        return keras_call(called, *args, **kwargs)

    monkeypatch.setattr(keras.layers.Layer, "__call__", call)
    return names


@pytest.mark.parametrize("trainer", ["plain", "sam"])
def test_keras_calls_no_layers_from_the_second_step_on(trainer, calls):
    trained = TRAINERS[trainer](vit())
    trained.compile("sgd", "mse", jit_compile=True)
    x, _ = data(trained.model if trainer == "sam" else trained)
    losses = [trained.train_on_batch(x, np.ones((6, 3)))]
    trained.make_train_function()
    for _ in range(2):
        calls.clear()
        losses.append(trained.train_function([(x, np.ones((6, 3)))])["loss"])
    assert {*calls} == {trained.name} and losses[2] < losses[1] < losses[0]
    calls.clear()
    trained.train_function([(x[:4], np.ones((4, 3)))])
    assert len({*calls}) > 1  # another size


@pytest.mark.parametrize("trainer", ["plain", "sam"])
def test_a_call_may_do_more_than_its_pass(trainer):
    class Normalized(ClonableModel):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.norm = keras.layers.BatchNormalization(momentum=0.5)
            self.norm.build((None, 2))

        def call(self, inputs, training=None, mask=None):
            return self.norm(super().call(inputs))

        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            other = self(x, training=False)
            loss = super().compute_loss(x, y, y_pred, sample_weight, training)
            return loss + 10 * keras.ops.mean((other - y_pred) ** 2)

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 4)), rng.normal(size=(8, 2))
    found = []
    for jit in (False, True):
        keras.utils.set_random_seed(0)
        pixels = keras.Input((4,))
        y_pred = keras.layers.BatchNormalization()(keras.layers.Dense(3)(pixels))
        model = Normalized(pixels, keras.layers.Dense(2)(y_pred))
        trained = TRAINERS[trainer](model)
        trained.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit)
        losses = [trained.train_on_batch(x, y) for _ in range(3)]
        found.append([*losses, *to_numpy(model.norm.moving_variance)])
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_a_call_may_leave_out_training():
    """Keras sets it for the layers after Dropout in the context of the call."""

    class Short(ClonableModel):
        def call(self, inputs, training=None, mask=None):
            return super().call(inputs)

    pixels = keras.Input((4,))
    x = keras.layers.BatchNormalization()(keras.layers.Dense(3)(pixels))
    model = Short(pixels, keras.layers.Dense(2)(keras.layers.Dropout(0.5)(x)))
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=True)
    x, y = np.random.default_rng(0).normal(size=(8, 4)), np.ones((8, 2))
    losses = [model.train_on_batch(x, y) for _ in range(20)]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("trainer", ["sam", "nested"])
def test_a_trainer_computes_with_the_integers_of_its_model(trainer):
    model = vit()
    x, _ = data(model)
    for weight in model.trainable_variables:
        weight.assign(weight + 0.1 * np.random.default_rng(0).normal(size=weight.shape))
    trainer = TRAINERS[trainer](model)
    trainer.compile("sgd", "mse", jit_compile=True)
    before = trainer.predict_on_batch(x)
    model.quantize("int8")
    after = trainer.predict_on_batch(x)
    np.testing.assert_allclose(after, to_numpy(model(x)), atol=1e-5)
    assert np.abs(after - before).max() > 1e-4


def two_outputs():
    pixels = keras.Input((4,))
    outputs = [keras.layers.Dense(3, name=name)(pixels) for name in "ab"]
    return ClonableModel(pixels, outputs)


def one_output():
    pixels = keras.Input((4,))
    return ClonableModel(pixels, keras.layers.Dense(3)(pixels))


def branching(y, y_pred):
    error = keras.ops.mean((y - y_pred) ** 2)
    return error if float(keras.ops.stop_gradient(error)) > 1 else 2 * error


class Own(keras.losses.MeanSquaredError):
    def call(self, y_true, y_pred):
        return branching(y_true, y_pred)


LOSSES = {
    "name": lambda: "mse",
    "chosen": lambda: "crossentropy",
    "hinge": lambda: "hinge",
    "own": Own,
    "object": lambda: keras.losses.CategoricalCrossentropy(label_smoothing=0.1),
    "with Python": lambda: branching,
    "two": lambda: ["mse", keras.losses.Huber(0.5)],
}


@pytest.mark.parametrize("trainer", ["plain", "sam"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_loss_is_that_without_compilation(loss, trainer):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 4)), rng.normal(size=(8, 3))
    weight, found = rng.uniform(size=8), []
    for jit in (False, True):
        keras.utils.set_random_seed(0)
        make = two_outputs if loss == "two" else one_output
        trained = TRAINERS[trainer](make())
        metrics = None if loss == "two" else ["mae"]
        trained.compile(
            keras.optimizers.SGD(0.1), LOSSES[loss](), metrics=metrics, jit_compile=jit
        )
        targets = [y, 2 * y] if loss == "two" else y
        found.append([trained.train_on_batch(x, targets) for _ in range(3)])
        weights = [weight, weight] if loss == "two" else weight
        found[-1].append(trained.train_on_batch(x, targets, weights))
        found[-1] += [to_numpy(v).sum() for v in trained.trainable_variables]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4)


def sum_of_squares(x=None, y=None, y_pred=None, sample_weight=None, training=True):
    return keras.ops.sum(y_pred**2)


CHANGES = {
    "reduction": lambda model, loss: setattr(loss, "reduction", "sum"),
    "regulariser": lambda model, loss: setattr(
        model.layers[-1].kernel, "regularizer", keras.regularizers.L2(0.5)
    ),
    "loss": lambda model, loss: setattr(model, "compute_loss", sum_of_squares),
}


@pytest.mark.parametrize("trainer", ["plain", "sam"])
@pytest.mark.parametrize("change", CHANGES)
def test_the_loss_may_change_between_steps(change, trainer):
    x, y = np.random.default_rng(0).normal(size=(2, 8, 4))
    found = []
    for jit in (False, True):
        keras.utils.set_random_seed(0)
        model, loss = one_output(), keras.losses.MeanSquaredError()
        trained = TRAINERS[trainer](model)
        trained.compile(keras.optimizers.SGD(0.01), loss, jit_compile=jit)
        found.append([trained.train_on_batch(x, y[:, :3])])
        CHANGES[change](model, loss)
        found[-1] += [trained.train_on_batch(x, y[:, :3]) for _ in range(2)]
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_layers_that_are_frozen_in_turns_are_compiled_once(graphs):
    pixels = keras.Input((4,))
    hidden = keras.layers.Dense(3)
    model = ClonableModel(pixels, keras.layers.Dense(2)(hidden(pixels)))
    model.compile("sgd", "mse", jit_compile=True)
    for step in range(6):
        hidden.trainable = step % 2 == 0
        model.train_on_batch(np.ones((4, 4)), np.ones((4, 2)))
    assert graphs["stats"]["unique_graphs"] == 2


@pytest.mark.parametrize("trainer", ["plain", "sam"])
@pytest.mark.parametrize("kind", ["l1", "l2"])
def test_a_regulariser_may_change_between_steps(kind, trainer):
    x, y = np.ones((4, 4)), np.ones((4, 2))
    found = []
    for jit in (False, True):
        keras.utils.set_random_seed(0)
        regularizer = keras.regularizers.get(kind)
        pixels = keras.Input((4,))
        dense = keras.layers.Dense(2, kernel_regularizer=regularizer)
        trained = TRAINERS[trainer](ClonableModel(pixels, dense(pixels)))
        trained.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit)
        found.append([trained.train_on_batch(x, y)])
        setattr(regularizer, kind, 0.5 * keras.ops.ones(()))
        found[-1] += [trained.train_on_batch(x, y) for _ in range(2)]
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_an_error_is_that_without_compilation():
    class Fails(keras.layers.Layer):
        fails = False

        def call(self, x):
            if self.fails:
                raise TypeError("an error of the layer")
            return x

    pixels, layer = keras.Input((4,)), Fails()
    model = ClonableModel(pixels, keras.layers.Dense(2)(layer(pixels)))
    model.compile("sgd", "mse", jit_compile=True)
    x, y = np.ones((4, 4)), np.ones((4, 2))
    before = model.train_on_batch(x, y)
    layer.fails = True
    for call in (model.train_on_batch, model.test_on_batch):
        with pytest.raises(TypeError, match="an error of the layer"):
            call(x[:3], y[:3])
    layer.fails = False
    assert model.train_on_batch(x, y) < before


def test_a_teacher_may_be_quantised_between_steps():
    rng, found = np.random.default_rng(0), []
    x, y = rng.normal(size=(8, 4)), np.arange(8) % 3
    for jit in (False, True):
        keras.utils.set_random_seed(0)
        model, teacher = one_output(), one_output()
        trainer = kerasvit.DistillationTrainer(model, teacher, probabilities=False)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        trainer.compile(keras.optimizers.SGD(0.1), loss, jit_compile=jit)
        found.append([trainer.train_on_batch(x, y)])
        teacher.layers[-1].kernel.assign(-teacher.layers[-1].kernel)
        teacher.quantize("int8")
        found[-1] += [trainer.train_on_batch(x, y) for _ in range(2)]
    np.testing.assert_allclose(*found, rtol=1e-4)


def test_batch_statistics_without_weights_are_frozen_between_steps():
    x, y = np.random.default_rng(0).normal(size=(8, 4)) + 3, np.ones((8, 4))
    found = []
    for jit in (False, True):
        pixels = keras.Input((4,))
        layer = keras.layers.BatchNormalization(center=False, scale=False)
        dense = keras.layers.Dense(4, kernel_initializer="ones")
        model = ClonableModel(pixels, dense(layer(pixels)))
        model.compile("sgd", "mse", jit_compile=jit)
        found.append([model.train_on_batch(x, y)])
        layer.trainable = False
        found[-1].append(model.train_on_batch(x, y))
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_a_label_without_a_class_changes_nothing():
    model = one_output()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(kerasvit.AdamW(0.1), loss, jit_compile=True)
    x, y = np.ones((4, 4)), np.array([0, 1, 2, 0])
    model.train_on_batch(x, y)
    before = [to_numpy(weight) for weight in model.weights]
    with pytest.raises(IndexError, match="Target 5 is out of bounds"):
        model.train_on_batch(x, y + [0, 0, 3, 0])
    for a, b in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(a, to_numpy(b))
    model.train_on_batch(x, y)


def regularized():
    pixels = keras.Input((4,))
    x = keras.layers.Dense(3, activity_regularizer="l2", name="first")(pixels)
    x = keras.layers.Dense(2, kernel_regularizer="l2", name="last")(x)
    return ClonableModel(pixels, x)


@pytest.mark.parametrize("trainer", ["plain", "sam", "nested"])
def test_losses_of_layers_and_weights_are_added_once(trainer):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 4)), rng.normal(size=(8, 2))
    found = []
    for jit in (False, True):
        keras.utils.set_random_seed(0)
        model = TRAINERS[trainer](regularized())
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit)
        found.append([model.train_on_batch(x, y) for _ in range(4)])
        assert len(model.losses) == (2 if trainer == "plain" else 1)
        found[-1] += [model.evaluate(x, y, verbose=0) for _ in range(2)]
        assert len(model.losses) == 2
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_a_layer_is_frozen_and_the_model_compiled_again_between_steps():
    model = regularized()
    model.compile(kerasvit.AdamW(0.1), "mse", jit_compile=True)
    x, y = np.ones((4, 4)), np.ones((4, 2))
    model.train_on_batch(x, y)
    model.get_layer("first").trainable = False
    before = [to_numpy(weight) for weight in model.weights]
    model.train_on_batch(x, y)
    same = [np.array_equal(a, to_numpy(b)) for a, b in zip(before, model.weights)]
    assert same == [True, True, False, False]
    model.compile(kerasvit.AdamW(0.1), "mse", metrics=["mae"], jit_compile=True)
    assert len(model.train_on_batch(x, y)) == 2


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*was compiled for")
def test_sizes_that_are_not_compiled_compute_in_mixed_precision():
    model = vit(dtype="mixed_bfloat16")
    x, _ = data(model, MOST_SHAPES + 2)
    expected = model.predict(x, verbose=0)
    model.compile(jit_compile=True)
    for size in [*range(1, len(x) + 1), len(x)]:
        found = model.predict_on_batch(x[:size])
        np.testing.assert_allclose(found, expected[:size], atol=2e-2)


def test_a_train_step_of_a_subclass_may_add_gradients():
    class Chunked(ClonableModel):
        def train_step(self, data):
            x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
            self.zero_grad()
            for part in (slice(2), slice(2, 4)):
                self.compute_loss(x, y[part], self(x[part], training=True)).backward()
            self.norms.append(
                [float(v.value.grad.norm()) for v in self.trainable_variables]
            )
            return {}

    norms = []
    for jit in (False, True):
        keras.utils.set_random_seed(0)
        pixels = keras.Input((4,))
        model = Chunked(pixels, keras.layers.Dense(3)(pixels))
        model.norms = []
        model.compile("sgd", "mse", jit_compile=jit)
        rng = np.random.default_rng(0)
        model.fit(rng.normal(size=(4, 4)), rng.normal(size=(4, 3)), verbose=0)
        norms += model.norms
    np.testing.assert_allclose(*norms, rtol=1e-5)


def test_an_adapted_and_quantised_model_is_compiled():
    model = vit()
    x, _ = data(model)
    kerasvit.add_lora(model, 2)
    expected = model.predict(x, verbose=0)
    model.compile(jit_compile=True)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=1e-5)
    kerasvit.merge_lora(model)
    model.quantize("int8")
    model.compile(jit_compile=False)
    expected = model.predict(x, verbose=0)
    model.compile(jit_compile=True)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, atol=1e-2)


@pytest.mark.long
def test_a_compiled_pass_keeps_no_masks_beside_outputs_of_relu():
    """A mask has half the bytes of an output; one layer's may be kept."""
    import torch

    model = bit(dtype="mixed_bfloat16")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(kerasvit.AdamW(1e-4), loss, jit_compile=True)
    kept = {torch.bfloat16: 0, torch.bool: 0}

    def keep(tensor):
        kept[tensor.dtype] = kept.get(tensor.dtype, 0) + tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.train_on_batch(np.ones((2, 32, 32, 3), "float32"), np.array([0, 1]))
    assert 0 < kept[torch.bool] < kept[torch.bfloat16] / 20
