"""`jit_compile=True`: what a model may do and change, and what is freed with it."""

import gc
import weakref

import keras
import numpy as np
import pytest

import kerasvit
from tests.contract import to_numpy
from tests.tiny_vit import TinyViT

pytestmark = pytest.mark.slow
on_torch = pytest.mark.only_on(
    "torch",
    reason="others compile whole steps, which Keras keeps",
)
X = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")


def trained_by(kind, model, jit=True, **options):
    trainer = kerasvit.SAM(model, 0.05) if kind == "sam" else model
    trainer.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit, **options)
    return trainer


@on_torch
@pytest.mark.long
@pytest.mark.parametrize("kind", ["plain", "sam"])
def test_models_and_batches_are_freed(kind):
    import torch

    def batch():
        x = torch.ones(6, 8, 8, 3)
        references.append(weakref.ref(x))
        return x

    model, references = TinyViT(image_size=8, num_classes=3), []
    trainer = trained_by(kind, model)
    for _ in range(2):
        trainer.train_on_batch(batch(), np.ones((6, 3)))
        trainer.predict_on_batch(batch())
    gc.collect()
    assert [reference() for reference in references] == [None] * 4
    references = [weakref.ref(x) for x in (trainer, model, model.trainable_weights[0])]
    del trainer, model
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_inputs_may_be_a_list_or_a_dictionary():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    outputs = keras.layers.Dense(3)(a) - keras.layers.Dense(3)(b)
    trainer = trained_by("sam", keras.Model([b, a], outputs))
    inputs = [X, 2 * X], {"a": 2 * X, "b": X}, {"b": X, "a": 2 * X}
    found = [trainer.predict_on_batch(x) for x in inputs]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-6)


@pytest.mark.parametrize("names", [("b", "a"), (2, 1)])
def test_dictionaries_keep_the_names_of_inputs(names):
    """Keras sorts their keys in one function, and not in another."""

    class Difference(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, x):
            first, second = (x[name] for name in names)
            return self.dense(first) - 2 * self.dense(second[0])

    model = Difference()
    x = dict(zip(names, (X, [2 * X]), strict=True))
    expected = to_numpy(model(x))
    found = trained_by("sam", model).predict_on_batch(x)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_an_input_may_be_left_out():
    class Sum(keras.layers.Layer):
        def call(self, a, b=None):
            return a if b is None else a + b

        def compute_output_shape(self, a_shape, b_shape=None):
            return a_shape

    a, b = keras.Input((4,)), keras.Input((4,), optional=True)
    model = keras.Model([a, b], keras.layers.Dense(2)(Sum()(a, b)))
    trainer = trained_by("sam", model)
    for x in ([X, None], [X, X], [X, None]):
        expected = to_numpy(model(x))
        np.testing.assert_allclose(trainer.predict_on_batch(x), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["plain", "sam"])
def test_a_layer_may_update_a_metric(kind):
    class Watched(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.mean = keras.metrics.Mean(name="mean_of_inputs")

        def call(self, x):
            self.mean.update_state(x)
            return x

    found = []
    for jit in (False, True):
        keras.utils.set_random_seed(0)
        pixels = keras.Input((4,))
        model = keras.Model(pixels, Watched()(keras.layers.Dense(3)(pixels)))
        if kind == "plain":
            model = kerasvit.SAM(model, 0)
        trainer = trained_by(kind, model, jit)
        logs = [trainer.train_on_batch(X, X[:, :3], return_dict=True) for _ in range(3)]
        found.append([list(each.values()) for each in logs])
    assert "mean_of_inputs" in logs[0]
    np.testing.assert_allclose(*found, atol=1e-5)


@pytest.mark.long
@on_torch
def test_adapters_may_be_replaced_by_as_many(tmp_path):
    model = TinyViT(image_size=8, num_classes=3)
    kerasvit.add_lora(model, rank=2)
    rng = np.random.default_rng(0)
    for each in model.trainable_variables:
        each.assign(rng.normal(size=each.shape))
    kerasvit.save_adapters(model, tmp_path / "adapters.safetensors")
    for each in model.trainable_variables:
        each.assign(0 * each)
    trainer = trained_by("sam", model)
    x = rng.normal(size=(6, 8, 8, 3)).astype("float32")
    before = trainer.predict_on_batch(x)
    kerasvit.merge_lora(model)
    kerasvit.load_adapters(model, tmp_path / "adapters.safetensors")
    found = trainer.predict_on_batch(x)
    assert abs(found - before).max() > 0.1
    np.testing.assert_allclose(found, to_numpy(model(x)), atol=1e-4)


@on_torch
def test_variables_that_the_optimizer_does_not_know_are_refused():
    model = TinyViT(image_size=8, num_classes=3)
    kerasvit.add_lora(model, rank=2)
    trainer = trained_by("sam", model)
    batch = np.ones((6, 8, 8, 3)), np.ones((6, 3))
    trainer.train_on_batch(*batch)
    kerasvit.merge_lora(model)
    kerasvit.add_lora(model, rank=2)
    with pytest.raises(ValueError, match="Unknown variable"):
        trainer.train_on_batch(*batch)


@on_torch
def test_a_layer_may_be_replaced():
    layers = keras.Input((4,)), keras.layers.Dense(5), keras.layers.Dense(3)
    model = keras.Sequential(layers)
    trainer = trained_by("sam", model)
    before = trainer.predict_on_batch(X)
    model.pop()
    model.add(keras.layers.Dense(3, kernel_initializer="ones"))
    trainer.compile(jit_compile=True)
    found = trainer.predict_on_batch(X)
    assert abs(found - before).max() > 0.1
    np.testing.assert_allclose(found, to_numpy(model(X)), atol=1e-5)


@on_torch
def test_a_step_may_be_an_attribute():
    model, calls = TinyViT(image_size=8, num_classes=3), []
    model.compile("sgd", "mse", jit_compile=True)
    step = model.train_step
    model.train_step = lambda data: calls.append(data) or step(data)
    model.train_on_batch(np.ones((6, 8, 8, 3)), np.ones((6, 3)))
    assert len(calls) == 1
