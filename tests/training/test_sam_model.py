"""`SAM` as a Keras model: `compile`, `fit`, `save`, callbacks."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import layers, ops

from kerasvit.training import SAM
from tests.once import long_elsewhere, rest_long_elsewhere

pytestmark = pytest.mark.slow

backend = keras.backend.backend()


def data(n=24):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 5)).astype("float32")
    return x, (np.arange(n) % 3).astype("int32")


def functional():
    keras.utils.set_random_seed(1)
    image = keras.Input((5,), name="image")
    hidden = layers.Dense(8, activation="gelu", name="hidden")(image)
    hidden = layers.BatchNormalization(name="norm")(hidden)
    return keras.Model(image, layers.Dense(3, name="head")(hidden), name="net")


def sequential():
    return keras.Sequential([keras.Input((5,)), layers.Dense(3)])


@keras.saving.register_keras_serializable("kerasvit_tests")
class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.head = layers.Dense(3)

    def call(self, inputs):  # without `training`
        return self.head(inputs)


def subclassed():
    model = Subclassed()
    model(np.zeros((1, 5)))
    return model


def compiled(model, rho=0.05, **options):
    trainer = SAM(model, rho)
    options = {
        "optimizer": keras.optimizers.Adam(0.01),
        "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "metrics": ["accuracy"],
        **options,
    }
    trainer.compile(**options)
    return trainer


def values(model):
    return [ops.convert_to_numpy(v) for v in model.variables]


def assert_equal(actual, expected, tolerance=0.0):
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=0, atol=tolerance)


MODELS = [functional, sequential, subclassed]


@pytest.mark.parametrize("build", MODELS)
def test_trains_the_model_in_place(build):
    x, y = data()
    model = build()
    paths = [v.path for v in model.variables]
    trainer = compiled(model)
    assert [id(v) for v in trainer.variables] == [id(v) for v in model.variables]
    before = trainer.predict(x, verbose=0)
    history = trainer.fit(x, y, epochs=12, batch_size=8, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    assert [v.path for v in model.variables] == paths
    after = trainer.predict(x, verbose=0)
    assert not np.allclose(before, after)
    assert_equal([model.predict(x, verbose=0)], [after], 1e-6)


@pytest.mark.parametrize("build", rest_long_elsewhere(MODELS))
def test_a_saved_trainer_continues_training(build, tmp_path):
    x, y = data()
    batches = [(x[i : i + 8], y[i : i + 8]) for i in (0, 8, 16)]
    trainer = compiled(build(), 0.1)
    for each in batches:
        trainer.train_on_batch(*each)
    trainer.save(tmp_path / "sam.keras")
    loaded = keras.saving.load_model(tmp_path / "sam.keras")
    assert type(loaded) is SAM and loaded.rho == 0.1
    assert type(loaded.model) is type(trainer.model)
    assert int(loaded.optimizer.iterations) == 3
    assert_equal(values(loaded), values(trainer))
    for each in batches:
        trainer.train_on_batch(*each)
        loaded.train_on_batch(*each)
    assert_equal(values(loaded), values(trainer), 1e-6)


@pytest.mark.parametrize("given, kept", [({}, "auto"), ({"jit_compile": False}, False)])
def test_a_saved_trainer_leaves_compilation_to_the_backend_that_loads(
    given, kept, tmp_path
):
    trainer = SAM(sequential())
    assert trainer.get_compile_config() == {}
    trainer.compile("sgd", "mse", **given)
    trainer.save(tmp_path / "sam.keras")
    loaded = keras.saving.load_model(tmp_path / "sam.keras")
    for each in (trainer, loaded):
        assert each.get_compile_config()["jit_compile"] == kept
    assert loaded.jit_compile == trainer.jit_compile


@long_elsewhere
def test_weight_files_hold_the_optimizer(tmp_path):
    x, y = data()
    trainer = compiled(functional())
    trainer.train_on_batch(x, y)
    trainer.save_weights(tmp_path / "sam.weights.h5")
    other = compiled(functional())
    other.train_on_batch(x[:8], y[:8])
    other.load_weights(tmp_path / "sam.weights.h5")
    assert int(other.optimizer.iterations) == 1
    assert_equal(other.get_weights(), trainer.get_weights())
    assert_equal(values(other.optimizer), values(trainer.optimizer))


@long_elsewhere
def test_the_plain_model_loads_without_kerasvit(tmp_path):
    x, y = data()
    trainer = compiled(functional())
    trainer.fit(x, y, verbose=0)
    trainer.model.save(tmp_path / "plain.keras")
    code = (
        "import json, sys, keras, numpy as np\n"
        "model = keras.saving.load_model(sys.argv[1])\n"
        "assert 'kerasvit' not in sys.modules\n"
        "x = np.ones((1, 5), 'float32')\n"
        "print(json.dumps(np.asarray(model.predict(x, verbose=0)).tolist()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "plain.keras")],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "KERAS_BACKEND": backend},
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    expected = trainer.predict(np.ones((1, 5), "float32"), verbose=0)
    np.testing.assert_allclose(answer, expected, atol=1e-6)


def test_config_holds_the_arguments():
    options = {"perturbation": "global", "micro_batches": 2, "every": 3, "name": "flat"}
    trainer = SAM(functional(), np.float32(0.5), **options)
    config = trainer.get_config()
    assert config.keys() == {"model", "rho", *options}
    assert type(config["rho"]) is float
    again = SAM.from_config(json.loads(json.dumps(config)))
    assert {**again.get_config(), "model": None} == {
        "model": None,
        "rho": 0.5,
        **options,
    }
    assert again.model.name == "net"


def test_summary_names_the_method_and_lists_the_layers():
    lines = []
    SAM(functional(), 0.07).summary(print_fn=lambda line, **_: lines.append(line))
    text = "\n".join(lines)
    for word in ("SAM", "0.07", "hidden", "norm", "head"):
        assert word in text


def test_summary_prints(capsys):
    SAM(sequential()).summary()
    text = capsys.readouterr().out
    assert text.index("SAM") < text.index("dense")


@pytest.mark.parametrize("options", [{"jit_compile": False}, {"run_eagerly": True}])
def test_eager_and_compiled_steps_agree(options):
    # torch.compile agrees too, but takes most of a minute for a model this small.
    reference = {"jit_compile": backend != "torch"}
    results = []
    for choice in (reference, options):
        x, y = data(16)
        trainer = compiled(functional(), 0.1, **choice)
        trainer.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        results.append(values(trainer))
    assert_equal(*results, 2e-6)


def test_steps_per_execution():
    x, y = data()
    trainer = compiled(functional(), steps_per_execution=2)
    if backend == "torch" and keras.__version__ < "3.16":
        with pytest.raises(ValueError, match="steps_per_execution"):
            trainer.fit(x, y, batch_size=8, verbose=0)
        return
    single = compiled(functional())
    for each in (trainer, single):
        each.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    assert_equal(values(trainer), values(single), 1e-6)


def test_saving_callbacks(tmp_path):
    x, y = data()
    trainer = compiled(functional())
    best, whole = tmp_path / "best.weights.h5", tmp_path / "{epoch}.keras"
    callbacks = [
        keras.callbacks.ModelCheckpoint(best, save_weights_only=True),
        keras.callbacks.ModelCheckpoint(whole),
        keras.callbacks.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.LearningRateScheduler(lambda epoch, lr: lr / 2),
        keras.callbacks.TerminateOnNaN(),
    ]
    trainer.fit(x, y, epochs=2, validation_data=(x, y), callbacks=callbacks, verbose=0)
    loaded = keras.saving.load_model(tmp_path / "2.keras")
    assert_equal(loaded.get_weights(), trainer.get_weights())
    header = (tmp_path / "log.csv").read_text().splitlines()[0].split(",")
    assert {"loss", "accuracy", "val_loss", "val_accuracy"} < set(header)
    np.testing.assert_allclose(float(trainer.optimizer.learning_rate), 0.0025)

    resumed = compiled(functional())
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    resumed.fit(x, y, epochs=3, callbacks=[backup], verbose=0)
    # Two epochs of one batch were done before, so one is left.
    assert int(resumed.optimizer.iterations) == 3


def test_early_stopping_restores_the_best_weights():
    x, y = data()
    trainer = compiled(sequential(), optimizer=keras.optimizers.SGD(-0.5))
    # Uphill: the weights after the first epoch are the best.
    stop = keras.callbacks.EarlyStopping("val_loss", 0, 1, restore_best_weights=True)
    history = trainer.fit(
        x, y, epochs=9, validation_data=(x, y), callbacks=[stop], verbose=0
    )
    assert len(history.history["loss"]) == 2
    loss, _ = trainer.evaluate(x, y, verbose=0)
    np.testing.assert_allclose(loss, history.history["val_loss"][0], rtol=1e-5)


def two_heads():
    keras.utils.set_random_seed(1)
    inputs = {"a": keras.Input((5,), name="a"), "b": keras.Input((2,), name="b")}
    joined = layers.Concatenate()([inputs["a"], inputs["b"]])
    outputs = [
        layers.Dense(3, name="kind")(joined),
        layers.Dense(1, name="size")(joined),
    ]
    return keras.Model(inputs, outputs)


def test_several_inputs_and_outputs_by_name():
    x, y = data()
    inputs = {"a": x, "b": x[:, :2]}
    targets = {"kind": y, "size": x[:, :1]}
    results = []
    for wrap in (lambda model: model, lambda model: SAM(model, 1e-7)):
        model = two_heads()
        trainer = wrap(model)
        trainer.compile(
            "sgd",
            loss={
                "kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                "size": "mse",
            },
            loss_weights={"kind": 1.0, "size": 0.5},
            metrics={"kind": ["accuracy"], "size": "mae"},
        )
        history = trainer.fit(inputs, targets, epochs=2, shuffle=False, verbose=0)
        results.append((model.get_weights(), history.history))
    (plain, plain_logs), (sam, sam_logs) = results
    assert_equal(sam, plain, 1e-5)
    assert sam_logs.keys() == plain_logs.keys()
    assert {"kind_loss", "size_loss", "kind_accuracy", "size_mae"} < sam_logs.keys()


def generator():
    x, y = data()
    for i in range(0, 24, 8):
        yield x[i : i + 8], y[i : i + 8]


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return list(generator())[index]


def tf_data():
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices(data()).batch(8)


@pytest.mark.parametrize("source", rest_long_elsewhere([generator, Batches, tf_data]))
def test_sources_of_data(source):
    expected = compiled(functional())
    x, y = data()
    expected.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    trainer = compiled(functional())
    trainer.fit(source(), shuffle=False, verbose=0)
    assert_equal(values(trainer), values(expected), 1e-6)


def test_validation_split():
    x, y = data()
    history = compiled(functional()).fit(x, y, validation_split=0.25, verbose=0)
    assert {"val_loss", "val_accuracy"} < history.history.keys()


@keras.saving.register_keras_serializable("kerasvit_tests")
class OwnLoss(keras.Model):
    """Adds and records a penalty; takes no argument `training`."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.head = layers.Dense(3, use_bias=False)
        self.penalty = keras.metrics.Mean(name="penalty")
        self.strength = 0.5

    def call(self, inputs):
        outputs = self.head(inputs)
        self.add_loss(0.25 * ops.mean(ops.square(outputs)))
        return outputs

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        penalty = self.strength * ops.sum(ops.square(self.head.kernel))
        self.penalty.update_state(penalty)
        return super().compute_loss(x, y, y_pred, sample_weight) + penalty


def test_the_models_own_compute_loss_counts_in_both_passes():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 5)).astype("float32")
    y = rng.normal(size=(6, 3)).astype("float32")
    model = OwnLoss()
    model(x)
    w = np.asarray(model.get_weights()[0], "float64")

    def gradient(w):
        residual = 2 * (x @ w - y) + 0.25 * 2 * (x @ w)
        return x.T @ residual / y.size + 2 * 0.5 * w

    trainer = SAM(model, 0.3)
    trainer.compile(keras.optimizers.SGD(0.1), "mse")
    clean = trainer.test_on_batch(x, y, return_dict=True)
    logs = trainer.train_on_batch(x, y, return_dict=True)
    first = gradient(w)
    second = gradient(w + 0.3 * first / np.linalg.norm(first))
    np.testing.assert_allclose(model.get_weights()[0], w - 0.1 * second, atol=2e-6)
    penalty = 0.5 * np.sum(w**2)
    loss = np.mean((x @ w - y) ** 2) + 0.25 * np.mean((x @ w) ** 2) + penalty
    for each in (clean, logs):
        np.testing.assert_allclose(each["loss"], loss, rtol=1e-5)
        np.testing.assert_allclose(each["penalty"], penalty, rtol=1e-5)


class OwnMetrics(Subclassed):
    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        results = super().compute_metrics(x, y, y_pred, sample_weight)
        return {**results, "constant": ops.convert_to_tensor(42.0)}


def test_the_models_own_compute_metrics_is_used():
    x, y = data()
    model = OwnMetrics()
    model(x)
    logs = compiled(model).train_on_batch(x, y, return_dict=True)
    assert logs["constant"] == 42 and {"loss", "accuracy"} < logs.keys()


def test_the_models_own_compilation_stays():
    x, y = data()
    model = sequential()
    model.compile("adam", "mse", metrics=["mae"])
    optimizer = model.optimizer
    trainer = compiled(model)
    assert {"loss", "accuracy"} == trainer.fit(x, y, verbose=0).history.keys()
    logs = model.evaluate(x, np.eye(3)[y], return_dict=True, verbose=0)
    assert logs.keys() == {"loss", "mae"} and model.optimizer is optimizer


def test_rho_may_change_between_steps():
    x, y = data()
    model = sequential()
    start = model.get_weights()
    trainer = compiled(model, 0.0, optimizer="sgd")
    weights = []
    for rho in (0.0, 2.0, 0.0):
        model.set_weights(start)
        trainer.rho = rho
        trainer.train_on_batch(x, y)
        weights.append(model.get_weights())
    assert_equal(weights[0], weights[2], 1e-7)
    assert np.abs(weights[0][0] - weights[1][0]).max() > 1e-4


def test_freezing_takes_effect_on_compile():
    x, y = data()
    model = functional()
    trainer = compiled(model)
    trainer.fit(x, y, verbose=0)
    model.get_layer("hidden").trainable = False
    frozen = model.get_layer("hidden").get_weights()
    head = model.get_layer("head").get_weights()
    trainer.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    trainer.fit(x, y, verbose=0)
    assert_equal(model.get_layer("hidden").get_weights(), frozen)
    assert np.abs(model.get_layer("head").get_weights()[0] - head[0]).max() > 0


def test_a_model_without_trainable_weights_is_measured_only():
    x, y = data()
    model = sequential()
    model.trainable = False
    trainer = compiled(model, optimizer="sgd")
    before = model.get_weights()
    if backend == "jax":
        logs = trainer.train_on_batch(x, y, return_dict=True)
    else:
        with pytest.warns(UserWarning, match="trainable weights"):
            logs = trainer.train_on_batch(x, y, return_dict=True)
    assert_equal(model.get_weights(), before)
    expected = trainer.test_on_batch(x, y, return_dict=True)
    np.testing.assert_allclose(logs["loss"], expected["loss"], rtol=1e-5)


@pytest.mark.parametrize("rho", [-0.1, float("nan"), float("inf"), True, "0.05", None])
def test_rho_is_checked(rho):
    with pytest.raises(ValueError, match=r"`rho` must be .*Received: rho="):
        SAM(sequential(), rho)
    trainer = SAM(sequential())
    with pytest.raises(ValueError, match="`rho` must be"):
        trainer.rho = rho


def test_the_model_is_checked():
    with pytest.raises(ValueError, match="`model` must be a keras.Model"):
        SAM(layers.Dense(3))
    with pytest.raises(ValueError, match="Call it once on a batch"):
        SAM(keras.Sequential([layers.Dense(3)]))
    model = Subclassed()
    with pytest.raises(ValueError, match="Call it once on a batch"):
        SAM(model)
    with pytest.warns(UserWarning, match="unbuilt state"):
        model.build((None, 5))
    with pytest.raises(ValueError, match="Call it once on a batch"):
        SAM(model)
    with pytest.raises(ValueError, match="is a SAM already"):
        SAM(SAM(sequential()))


def test_a_model_with_a_custom_train_step_raises():
    class OwnStep(Subclassed):
        def train_step(self, *arguments):
            return super().train_step(*arguments)

    model = OwnStep()
    model(np.zeros((1, 5)))
    with pytest.raises(ValueError, match="has its own train_step"):
        SAM(model)


@pytest.mark.only_on("torch", reason="only PyTorch runs modules in layers")
def test_wrapped_torch_modules_raise():
    import torch

    wrapped = layers.TorchModuleWrapper(torch.nn.Linear(5, 3))
    model = keras.Sequential([keras.Input((5,)), wrapped])
    with pytest.raises(ValueError, match="wraps torch modules"):
        SAM(model)
