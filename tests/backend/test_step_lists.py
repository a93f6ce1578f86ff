"""Lists that a compiled step on PyTorch keeps are those that Keras would make."""

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.backend.clones import ClonableModel
from kerasvit.backend.step_lists import keeping, of_step

pytestmark = pytest.mark.only_on(
    "torch", reason="other backends compile the whole step"
)
X, Y = np.ones((4, 3), "float32"), np.arange(4) % 2


class Measured(keras.layers.Dense):
    """A dense layer with a metric of its own."""

    def __init__(self, units, **options):
        super().__init__(units, **options)
        self.mean = keras.metrics.Mean(name="mean_of_outputs")


def compiled(kind="plain", **options):
    keras.utils.set_random_seed(0)
    pixels = keras.Input((3,))
    model = ClonableModel(pixels, keras.layers.Dense(2)(Measured(4)(pixels)))
    trainer = kerasvit.SAM(model, 0.1) if kind == "sam" else model
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(kerasvit.AdamW(0.1), loss, jit_compile=True, **options)
    return trainer, model


def freeze_layer(model):
    model.layers[1].trainable = False


def freeze_variable(model):
    model.layers[1].bias.trainable = False


def freeze_model(model):
    model.trainable = False


def add_metric(model):
    model.layers[1]._tracker.unlock()  # as Keras's `enable_lora` does
    model.layers[1].other = keras.metrics.Mean(name="another")


def add_variable(model):
    model.layers[1]._tracker.unlock()
    model.layers[1].other = model.layers[1].add_weight(
        shape=(), name="another", trainable=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "sam"])
@pytest.mark.parametrize(
    "change", [freeze_layer, freeze_variable, freeze_model, add_metric, add_variable]
)
@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
def test_lists_of_a_changed_model_are_kerass(kind, change):
    trainer, model = compiled(kind, metrics=["accuracy"])
    for changed in (False, True):
        if changed:
            change(model)
        trainer.train_on_batch(X, Y)
        kept = trainer.train_function.kept
        assert kept and of_step() is None
        kept.renew()
        for name in ("trainable_variables", "metrics"):
            with keeping(kept):
                found = [*map(id, getattr(trainer, name))]
            assert found == [*map(id, getattr(keras.Model, name).fget(trainer))]
    names = {metric.name for metric in trainer.metrics}
    assert "mean_of_outputs" in names
    assert ("another" in names) == (change is add_metric)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "sam"])
def test_a_step_does_not_look_through_the_layers(kind, monkeypatch):
    trainer, _ = compiled(kind, metrics=["accuracy"])
    for _ in range(2):
        trainer.train_on_batch(X, Y)
        trainer.test_on_batch(X, Y)
    looks = []
    flatten = keras.layers.Layer._flatten_layers
    monkeypatch.setattr(
        keras.layers.Layer,
        "_flatten_layers",
        lambda layer, *a, **k: looks.append(layer.name) or flatten(layer, *a, **k),
    )
    before, *_ = trainer.train_on_batch(X, Y)
    assert not looks
    after, *_ = trainer.test_on_batch(X, Y)
    assert after < before and len(looks) == 1  # Keras's, for losses of layers


@pytest.mark.slow
def test_quantised_layers_are_refused_when_they_are_trained_again():
    model = kerasvit.VisionTransformer(
        patch_size=4, image_size=8, depth=1, width=8, num_heads=2, mlp_dim=8
    )
    model.quantize("int8", filters="mlp")
    quantised = [x for x in model._flatten_layers() if x.quantization_mode]
    for layer in quantised:
        layer.trainable = False
    model.compile("sgd", "mse", jit_compile=True)
    batch = np.ones((2, 8, 8, 3)), np.ones((2, *model.output_shape[1:]))
    assert quantised and np.isfinite(model.train_on_batch(*batch))
    quantised[0].trainable = True
    with pytest.raises(ValueError, match="cannot be trained"):
        model.train_on_batch(*batch)
