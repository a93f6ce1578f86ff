"""What is assigned to a trainer, or changed in its model, after its first steps."""

import keras
import numpy as np
import pytest

import kerasvit
from tests.contract import to_numpy
from tests.once import rest_long_elsewhere
from tests.tiny_vit import TinyViT

pytestmark = pytest.mark.slow
X = np.random.default_rng(0).normal(size=(4, 4)).astype("float32")
Y = np.array([0, 1, 2, 0])


def one_layer(seed=0):
    keras.utils.set_random_seed(seed)
    pixels = keras.Input((4,))
    return keras.Model(pixels, keras.layers.Dense(3)(pixels))


def gsam(model, **options):
    options = {"rho_max": 0.5, "rho_min": 0.1, "lr_max": 0.5, "lr_min": 0.0, **options}
    return kerasvit.GSAM(model, **options)


def distilled(model, teacher=1, **options):
    options = {"distill": "soft", "probabilities": False, **options}
    return kerasvit.DistillationTrainer(model, one_layer(teacher), **options)


def in_gsam(model, **options):
    return gsam(distilled(model, **options))


MAKE = {
    "gsam": (gsam, {"alpha": 3.0, "lr_max": 0.9, "rho_min": 0.4, "adaptive": True}),
    "asam": (kerasvit.ASAM, {"eta": 2.0, "biases": True}),
    "looksam": (kerasvit.LookSAM, {"alpha": 0.1}),
    "sam": (kerasvit.SAM, {"micro_batches": 2}),
    "distillation": (distilled, {"alpha": 0.9, "tau": 9.0}),
    "inside": (in_gsam, {"alpha": 0.9, "tau": 9.0}),
}


def compiled(trainer):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(keras.optimizers.SGD(0.3), loss)
    return trainer


def weights_after(trainer, steps=1):
    for _ in range(steps):
        trainer.train_on_batch(X, Y)
    return np.concatenate([to_numpy(v).ravel() for v in trainer.trainable_variables])


@pytest.mark.parametrize("kind", rest_long_elsewhere(MAKE, 2))
def test_a_setting_acts_from_the_next_step_on(kind):
    """Two steps with the new value are those of a trainer that was made with it."""
    make, settings = MAKE[kind]
    options = {"k": 1} if kind == "looksam" else {}
    trainer = compiled(make(one_layer(), **options))
    start = [to_numpy(v) for v in trainer.trainable_variables]
    weights_after(trainer)
    for name, value in settings.items():
        inner = trainer.model if kind == "inside" else trainer
        setattr(inner, name, value)
    for variable, value in zip(trainer.trainable_variables, start, strict=True):
        variable.assign(value)
    found = weights_after(trainer, 2)
    other = compiled(make(one_layer(), **options, **settings))
    np.testing.assert_allclose(found, weights_after(other, 2), atol=1e-5)


def test_a_setting_is_checked_when_it_is_assigned():
    trainer = gsam(one_layer())
    for name, value in {"alpha": -1, "rho_min": 0.6, "lr_min": 1, "lr_max": 0}.items():
        before = getattr(trainer, name)
        with pytest.raises(ValueError, match=f"{name}"):
            setattr(trainer, name, value)
        assert getattr(trainer, name) == before
    with pytest.raises(ValueError, match="micro_batches"):
        trainer.micro_batches = 0


def test_another_teacher_teaches_from_the_next_step_on():
    trainer = compiled(distilled(one_layer()))
    start = [to_numpy(v) for v in trainer.trainable_variables]
    weights_after(trainer)
    trainer.set_teacher(one_layer(2))
    for variable, value in zip(trainer.trainable_variables, start, strict=True):
        variable.assign(value)
    found = weights_after(trainer, 2)
    other = compiled(distilled(one_layer(), teacher=2))
    np.testing.assert_allclose(found, weights_after(other, 2), atol=1e-5)


def around(kind, model):
    if kind == "trainer":
        return kerasvit.SAM(model, 0.1)
    if kind == "model":
        return keras.Sequential([model])
    return kerasvit.features(model)


def adapt(model):
    kerasvit.add_lora(model, rank=2)
    for variable in model.trainable_variables:
        variable.assign(keras.random.normal(variable.shape, seed=1))


@pytest.mark.parametrize("change", ["add_lora", "merge_lora", "quantize"])
@pytest.mark.parametrize("kind", rest_long_elsewhere(["trainer", "model", "features"]))
def test_models_around_compute_with_what_the_model_has_become(kind, change):
    model = TinyViT(image_size=8, num_classes=3)
    if change == "merge_lora":
        adapt(model)
    outer = around(kind, model)
    if kind == "trainer":
        compiled(outer)
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    outer.predict(x, verbose=0)
    if change == "add_lora":
        adapt(model)
    elif change == "merge_lora":
        kerasvit.merge_lora(model)
        for variable in model.trainable_variables:
            variable.assign(variable + 0.1)
    else:
        for variable in model.trainable_variables:
            variable.assign(variable + 0.1)
        model.quantize("int8")
    found = keras.tree.flatten(outer.predict(x, verbose=0))
    expected = keras.tree.flatten(outer(x, training=False))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, to_numpy(b), atol=1e-3)


@pytest.mark.parametrize("kind", ["plain", "trainer"])
def test_layers_are_frozen_between_steps(kind):
    """They stay as they are, or an error says what to call."""
    model = TinyViT(image_size=8, num_classes=3)
    trainer = compiled(model if kind == "plain" else kerasvit.SAM(model, 0.1))
    x = np.random.default_rng(0).normal(size=(4, 8, 8, 3)).astype("float32")
    trainer.train_on_batch(x, Y)
    frozen = model.layers[-1]
    frozen.trainable = False
    before = [to_numpy(v) for v in frozen.variables]
    if keras.backend.backend() == "jax":
        with pytest.raises(ValueError, match="Call `compile` again"):
            trainer.train_on_batch(x, Y)
        compiled(trainer)
    trainer.train_on_batch(x, Y)
    for a, b in zip(before, frozen.variables, strict=True):
        np.testing.assert_array_equal(a, to_numpy(b))
