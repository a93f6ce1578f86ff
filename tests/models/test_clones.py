"""Clones and parts of models have a record only if it is true."""

import keras
import numpy as np
import pytest

import kerasvit
from tests.contract import to_numpy
from tests.models.tiny import TINY, tiny
from tests.once import on_last_backend

pytestmark = pytest.mark.slow

IMAGE = np.random.default_rng(1).integers(0, 256, (16, 16, 3)).astype("uint8")
X = np.random.default_rng(2).normal(size=(2, 16, 16, 3)).astype("float32")


def named(name="VisionTransformer", **changes):
    model = tiny(name, **changes)
    model.record["label_names"] = ["ant", "bee", "cat"]
    return model


def reloaded(model, folder):
    """The model after a save and a load."""
    return kerasvit.from_pretrained(kerasvit.save_pretrained(model, folder))


@pytest.mark.parametrize(
    "name",
    [
        name
        if name in ("VisionTransformer", "AlterNet")
        else pytest.param(name, marks=on_last_backend)
        for name in TINY
    ],
)
def test_a_clone_classifies_and_is_saved(name, tmp_path):
    model = named(name)
    clone = keras.models.clone_model(model)
    assert clone.record == model.record and clone.record is not model.record
    clone.set_weights(model.get_weights())
    assert kerasvit.classify(clone, IMAGE) == kerasvit.classify(model, IMAGE)
    loaded = reloaded(clone, tmp_path)
    np.testing.assert_allclose(
        to_numpy(loaded(X)), to_numpy(model(X)), rtol=1e-5, atol=1e-5
    )
    clone.record["label_names"][0] = "ape"
    assert model.record["label_names"][0] == "ant"


@pytest.mark.parametrize("name", ["VisionTransformer", "BigTransfer"])
def test_a_functional_model_of_the_same_ends(name, tmp_path):
    model = named(name)
    same = keras.Model(model.input, model.output)
    assert type(same) is not type(model)
    assert kerasvit.classify(same, IMAGE) == kerasvit.classify(model, IMAGE)
    loaded = reloaded(same, tmp_path)
    np.testing.assert_allclose(
        to_numpy(loaded(X)), to_numpy(model(X)), rtol=1e-5, atol=1e-5
    )
    model.record = {**model.record, "label_names": ["x", "y", "z"]}
    assert kerasvit.classify(same, IMAGE)[0][0] in "xyz"
    assert kerasvit.resize(same, 20).record["label_names"] == ["x", "y", "z"]


@on_last_backend
def test_the_record_survives_deletion_of_the_first_model():
    import gc

    model = named()
    same = keras.Model(model.input, model.output)
    del model
    gc.collect()
    assert len(kerasvit.classify(same, IMAGE)) == 3


@on_last_backend
def test_a_model_that_computes_something_else_has_none(tmp_path):
    model = named()
    block = model.get_layer("encoder_block_0")
    image = keras.Input((16, 16, 3))
    others = {
        "cut": keras.Model(model.input, block.output),
        "cut, as its class": kerasvit.ImageModel(model.input, block.output),
        "features": keras.Model(model.input, model.get_layer("head").input),
        "behind": keras.Model(block.output, model.output),
        "more": keras.Model(model.input, keras.layers.Softmax()(model.output)),
        "within": keras.Model(image, model(image)),
        "within, as its class": kerasvit.ImageModel(image, model(image)),
        "two": keras.Model(model.input, [model.output, block.output]),
    }
    for other in others.values():
        for use in (
            lambda m: kerasvit.classify(m, IMAGE),
            lambda m: kerasvit.save_pretrained(m, tmp_path / "folder"),
            lambda m: kerasvit.resize(m, 20),
        ):
            with pytest.raises(ValueError, match="record"):
                use(other)
    assert not (tmp_path / "folder").exists()
    assert kerasvit.ImageModel(model.input, model.output).record == model.record


def replaced(**layers):
    """A clone function that replaces layers by name."""

    def clone(layer):
        make = layers.get(layer.name)
        config = layer.get_config()
        return make(config) if make else type(layer).from_config(config)

    return clone


SAME = {
    "a dropout": {"dropout": lambda c: keras.layers.Dropout(0.5, name=c["name"])},
    "an initializer": {
        "head": lambda c: keras.layers.Dense(
            3, kernel_initializer="ones", kernel_regularizer="l2", name="head"
        )
    },
    "a frozen layer": {
        "embedding": lambda c: kerasvit.layers.PatchEmbedding(
            4, width=16, name=c["name"], trainable=False
        )
    },
    "precision, and the layer of Keras": {
        "encoder_norm": lambda c: keras.layers.LayerNormalization(
            epsilon=c["epsilon"], name=c["name"], dtype="float64"
        )
    },
}
OTHER = {
    "an activation": {
        "head": lambda c: keras.layers.Dense(3, activation="relu", name="head")
    },
    "an epsilon": {
        "encoder_norm": lambda c: keras.layers.LayerNormalization(
            epsilon=0.1, name=c["name"]
        )
    },
    "a class": {"dropout": lambda c: keras.layers.ReLU(name=c["name"])},
    "a name": {"head": lambda c: keras.layers.Dense(3, name="classifier")},
    "classes": {"head": lambda c: keras.layers.Dense(5, name="head")},
    "a layer inside": {
        "encoder_block_0": lambda c: kerasvit.layers.EncoderBlock(
            kerasvit.layers.Attention(2, name="attention"),
            kerasvit.layers.MLP(24, activation="gelu_tanh", name="mlp"),
            epsilon=1e-6,
            name=c["name"],
        )
    },
}


@pytest.mark.parametrize("change", SAME)
def test_a_clone_with_layers_that_compute_the_same_keeps_it(change, tmp_path):
    model = named()
    clone = keras.models.clone_model(model, clone_function=replaced(**SAME[change]))
    assert clone.record == model.record
    for variable in clone.weights:
        variable.assign(next(v for v in model.weights if v.path == variable.path))
    loaded = reloaded(clone, tmp_path)
    for one in (clone, loaded):
        np.testing.assert_allclose(
            to_numpy(one(X)), to_numpy(model(X)), rtol=1e-5, atol=1e-5
        )


@on_last_backend
def test_parts_of_layers_may_be_those_of_keras():
    model = named("AlterNet")

    def clone(layer):
        config = layer.get_config()
        if isinstance(layer, kerasvit.layers.PreactUnit):
            for norm in config["norms"]:
                norm |= {"module": "keras.layers", "registered_name": None}
        return type(layer).from_config(config)

    other = keras.models.clone_model(model, clone_function=clone)
    units = [x for x in other.layers if isinstance(x, kerasvit.layers.PreactUnit)]
    assert {type(x) for x in units[0].norms} == {keras.layers.BatchNormalization}
    assert other.record == model.record


@on_last_backend
@pytest.mark.parametrize("change", OTHER)
def test_a_clone_with_layers_that_compute_something_else_has_none(change, tmp_path):
    clone = keras.models.clone_model(named(), clone_function=replaced(**OTHER[change]))
    assert clone.record is None
    with pytest.raises(ValueError, match="record"):
        kerasvit.save_pretrained(clone, tmp_path / "folder")


@on_last_backend
def test_clones_on_other_inputs_and_with_other_calls():
    model = named()
    image = keras.Input((16, 16, 3), batch_size=2, name="photo")
    assert keras.models.clone_model(model, input_tensors=image).record == model.record
    shared = keras.models.clone_model(model, clone_function=lambda layer: layer)
    assert shared.record == model.record
    twice = keras.models.clone_model(keras.models.clone_model(model))
    assert twice.record == model.record

    def with_noise(layer, *args, **kwargs):
        x = layer(*args, **kwargs)
        return keras.layers.GaussianNoise(1.0)(x) if layer.name == "embedding" else x

    noisy = keras.models.clone_model(model, call_function=with_noise)
    assert noisy.record is None
    resnet = named("BigTransfer")  # its layers take images of any size
    image = keras.Input((32, 32, 3))
    assert keras.models.clone_model(resnet, input_tensors=image).record is None


@on_last_backend
def test_a_layer_that_cannot_be_described_is_cloned_all_the_same():
    class Bare(kerasvit.layers.Attention):
        def get_config(self):
            raise NotImplementedError

    def clone(layer):
        if layer.name != "encoder_block_0":
            return type(layer).from_config(layer.get_config())
        return kerasvit.layers.EncoderBlock(
            Bare(2), kerasvit.layers.MLP(24), epsilon=1e-6, name=layer.name
        )

    assert keras.models.clone_model(named(), clone_function=clone).record is None


@on_last_backend
def test_files_of_keras_keep_the_record_of_a_clone(tmp_path):
    clone = keras.models.clone_model(named())
    clone.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.record == clone.record
    assert kerasvit.classify(keras.Model(loaded.input, loaded.output), IMAGE)
