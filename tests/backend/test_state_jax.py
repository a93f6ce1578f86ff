"""Steps on JAX that look once through the layers."""

import gc
import weakref

import keras
import numpy as np
import pytest

import kerasvit
from tests.once import elsewhere

if keras.backend.backend() != "jax":
    elsewhere("of JAX")

from kerasvit.backend.state_jax import QuickState

X = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32")
Y = np.array([0, 1, 2, 0])
METHODS = (
    *("__setattr__", "train_on_batch", "test_on_batch", "predict_on_batch"),
    *("variables", "metrics", "_flatten_layers", "_get_jax_state", "jax_state_sync"),
)


@pytest.fixture
def keras_s(monkeypatch):
    """A function that gives the models Keras's own steps."""

    def use():
        for name in METHODS:
            monkeypatch.delattr(QuickState, name)

    return use


def compiled(trainer=lambda model: model, metrics=("accuracy",)):
    keras.utils.set_random_seed(0)
    model = kerasvit.VisionTransformer(
        patch_size=4,
        image_size=8,
        depth=2,
        width=8,
        num_heads=2,
        mlp_dim=16,
        num_classes=3,
        dropout=0.1,
    )
    trained = trainer(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trained.compile(kerasvit.AdamW(1e-2), loss, metrics=list(metrics))
    return model, trained


def steps(trainer):
    """Trains on batches, changes the model between them, and returns all results."""
    model, trained = compiled(trainer)
    results = [trained.train_on_batch(X, Y) for _ in range(2)]
    model.layers[2].trainable = False
    trained.compile(
        kerasvit.AdamW(1e-2),
        trained.loss,
        metrics=["accuracy", "sparse_top_k_categorical_accuracy"],
    )
    results += [trained.train_on_batch(X, Y) for _ in range(2)]
    results += [trained.test_on_batch(X, Y), trained.test_on_batch(X[:2], Y[:2])]
    model.weights[0].assign(0.5 * model.weights[0])
    results += [trained.train_on_batch(X[:2], Y[:2]), trained.predict_on_batch(X)]
    history = trained.fit(X, Y, batch_size=2, epochs=2, verbose=0).history
    results += [trained.train_on_batch(X, Y), *history.values()]
    values = [*model.get_weights(), *(v.numpy() for v in trained.optimizer.variables)]
    return [np.asarray(each) for each in (*results, *values)]


@pytest.mark.parametrize("name", ["plain", "sam"])
def test_steps_are_those_of_keras(name, keras_s):
    trainer = {"plain": lambda model: model, "sam": kerasvit.SAM}[name]
    found = steps(trainer)
    keras_s()
    for one, other in zip(found, steps(trainer), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_step_looks_once_through_the_layers(monkeypatch):
    model, _ = compiled()
    layer = model.layers[3]
    looked, variables = [], keras.layers.Layer.variables.fget

    def counted(self):
        looked.append(self is layer)
        return variables(self)

    model.train_on_batch(X, Y)
    monkeypatch.setattr(keras.layers.Layer, "variables", property(counted))
    model.train_on_batch(X, Y)
    assert sum(looked) == 1
    assert "_lists_of_step" not in vars(model)


def test_a_failed_step_is_not_remembered():
    model, _ = compiled()
    model.train_on_batch(X, Y)
    with pytest.raises((TypeError, ValueError)):
        model.train_on_batch(X[:, :4], Y)
    assert "_lists_of_step" not in vars(model)
    assert np.isfinite(model.train_on_batch(X, Y)).all()


def test_values_of_another_dtype_are_converted():
    model, _ = compiled()
    before = [v.numpy() for v in model.non_trainable_variables]
    (state,) = model._get_jax_state(trainable_variables=True)
    model._jax_state_synced = False
    halved = [keras.ops.cast(each, "bfloat16") for each in state]
    model._jax_state = {"trainable_variables": halved}
    model.jax_state_sync()
    assert {w.value.dtype for w in model.trainable_variables} == {np.dtype("float32")}
    for one, other in zip(model.non_trainable_variables, before, strict=True):
        np.testing.assert_array_equal(one.numpy(), other)


def test_a_callback_sees_the_weights_of_its_step():
    model, _ = compiled()
    seen = []

    class Reads(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(self.model.jax_state_sync() or model.get_weights()[0])

    model.fit(X, Y, batch_size=2, verbose=0, callbacks=[Reads()])
    assert len(seen) == 2 and np.abs(seen[0] - seen[1]).max() > 0
    np.testing.assert_array_equal(seen[1], model.get_weights()[0])


class Grows(keras.metrics.Metric):
    """A metric that adds a variable in a later update."""

    updates = 0

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.updates += 1
        if self.updates < 4:
            variable = self.add_variable((), "zeros", name=f"count_{self.updates}")
            variable.assign(variable + 1)

    def result(self):
        return sum(variable.value for variable in self.variables)


def test_a_metric_may_add_variables_later(keras_s):
    def losses():
        model, _ = compiled(metrics=[Grows()])
        sizes = (4, 4, 3, 2, 4)  # each new size is compiled again
        return [model.train_on_batch(X[:n], Y[:n])[0] for n in sizes]

    found = losses()
    keras_s()
    assert found == losses()


def test_the_error_of_a_step_is_that_of_keras():
    model, _ = compiled()

    class Freezes(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.layers[2].trainable = False
            self.model.jax_state_sync()
            self.model.make_train_function(force=True)

    with pytest.raises(ValueError) as raised:
        model.fit(X, Y, batch_size=1, verbose=0, callbacks=[Freezes()])
    assert "zip()" not in str(raised.value)


def test_slots_of_an_old_optimizer_are_freed():
    model, _ = compiled()
    model.fit(X, Y, verbose=0)
    slot = weakref.ref(model.optimizer.variables[-1])
    model.compile("sgd", model.loss)
    gc.collect()
    assert slot() is None
