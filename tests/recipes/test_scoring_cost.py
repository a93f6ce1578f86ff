"""The columns of parameters, multiply-adds and speed in the tables of `evaluate.py`."""

import dataclasses
import types

import keras
import pytest
from benchmarks import results
from devices import device_name
from scoring import catalogue, cost, multiply_adds

import kerasvit
from tests.models.counting import outlined
from tests.models.tiny import TINY
from tests.once import on_last_backend, rest_long_elsewhere

pytestmark = pytest.mark.slow

# Counted on JAX, whose counts of all variants are compared with published numbers.
COUNTS = {
    "VisionTransformer": 52_048,
    "RotaryVisionTransformer": 52_048,
    "BEiTTransformer": 52_048,
    "DistilledVisionTransformer": 55_008,
    "HybridVisionTransformer": 638_544,
    "MLPMixer": 10_264,
    "SwinTransformer": 47_664,
    "PoolingVisionTransformer": 222_640,
    "AlterNet": 464_920,
    "PreActResNet": 268_384,
    "ResNeXt": 141_360,
    "VisionTransformerAblation": 52_048,
    "BigTransfer": 1_071_872,
}
BATCH, SECONDS = 4, [0.5, 0.1, 0.2]


def candidate(model):
    transform = kerasvit.Preprocessing(model.input_shape[1:3])
    known = {"name": "model", "model": model, "transform": transform, "passes": 1}
    return types.SimpleNamespace(**known)


def measured(**changes):
    """A saved result of the benchmark for ViTTi4CIFAR."""
    about = {
        "model": "ViTTi4CIFAR",
        "image_size": 32,
        "batch_size": BATCH,
        "dtype": "float32",
        "backend": keras.backend.backend(),
        "device": device_name.of_first(),
    }
    seconds = {"kerasvit": SECONDS, "timm": [9.0]}
    return results.Result("forward", "", [], [], "", about | changes, seconds)


def zoo_model(**options):
    """A variant with shapes instead of weights, which take no time to compile."""
    return candidate(outlined("ViTTi4CIFAR", num_classes=3, **options))


@pytest.mark.not_on("jax", reason="counted there")
@pytest.mark.parametrize("name", rest_long_elsewhere(TINY))
def test_multiply_adds_of_all_builders(name):
    assert multiply_adds.of(getattr(kerasvit, name)(**TINY[name])) == COUNTS[name]


def test_multiply_adds_of_groups_by_hand():
    """JAX joins groups on CPUs, and multiplies with zeros."""
    model = kerasvit.ResNeXt(**{**TINY["ResNeXt"], "groups": 16, "group_width": 1})
    first = 16 * 16 * (27 * 8 + 8 * 16 + 9 * 1 * 16 + 16 * 8)
    second = 16 * 16 * 8 * 32 + 8 * 8 * (9 * 2 * 32 + 32 * 16 + 8 * 16)
    assert multiply_adds.of(model) == first + second + 16 * 3


def test_multiply_adds_of_a_vit_by_hand():
    model = kerasvit.VisionTransformer(**TINY["VisionTransformer"])
    d, m, patches, classes = 16, 24, 4 * 4, 3
    n = patches + 1  # with the class token
    block = 4 * n * d * d + 2 * n * n * d + 2 * n * d * m
    assert multiply_adds.of(model) == patches * 4 * 4 * 3 * d + block + d * classes


def test_multiply_adds_of_layers_of_keras():
    image = keras.Input((9, 9, 3))
    x = keras.layers.Conv2D(8, 3, strides=2)(image)  # 4 × 4 × 8
    x = keras.layers.DepthwiseConv2D(3)(x)  # 2 × 2 × 8
    x = keras.layers.Dense(5)(keras.layers.Flatten()(x))
    expected = 4 * 4 * 8 * 9 * 3 + 2 * 2 * 8 * 9 + 32 * 5
    assert multiply_adds.of(keras.Model(image, x)) == expected


def test_multiply_adds_that_are_not_known_are_left_out():
    """Both compile an operation to a function, in which products may be hidden."""
    image = keras.Input((8, 8, 4))
    step = keras.layers.Lambda(lambda x: keras.ops.map(lambda y: y * 2, x))
    model = keras.Model(image, step(image))
    expected = 0 if keras.backend.backend() == "torch" else None  # which runs it
    assert multiply_adds.of(model) == expected


@on_last_backend
def test_parameters_are_those_that_were_trained():
    image = keras.Input((4, 4, 3))
    x = keras.layers.BatchNormalization()(keras.layers.Conv2D(2, 1)(image))
    model = keras.Model(image, keras.layers.Dense(3)(keras.layers.Flatten()(x)))
    model.layers[1].trainable = False
    found = cost.of(candidate(model), [])
    assert found.parameters == (3 * 2 + 2) + 2 * 2 + (32 * 3 + 3)  # no moving averages
    assert found.images_per_second is None


def test_frozen_layers_and_variables_stay_frozen():
    model = kerasvit.VisionTransformer(**TINY["VisionTransformer"])
    whole = cost.of(candidate(model), []).parameters
    block = model.get_layer("encoder_block_0")
    block.mlp.trainable = False
    block.attention.query.bias.trainable = False
    before = [weight.trainable for weight in model.weights]
    layers = [block.trainable, block.mlp.trainable, block.mlp.dense_0.trainable]
    assert cost.of(candidate(model), []).parameters == whole == model.count_params()
    assert [weight.trainable for weight in model.weights] == before
    assert (
        layers
        == [True, False, False]
        == [each.trainable for each in (block, block.mlp, block.mlp.dense_0)]
    )


@on_last_backend
def test_speed_is_that_of_the_same_model_on_this_device(monkeypatch):
    monkeypatch.setattr(multiply_adds, "of", lambda *_: None)  # it has no weights
    model = zoo_model()
    saved = [
        results.Result("forward", "", [], [], ""),  # of version 0.1
        dataclasses.replace(measured(), what="train"),
        measured(device="another"),
        measured(dtype="mixed_bfloat16"),
        measured(model="ViTTi16"),
        measured(image_size=64),
        measured(backend="another"),
    ]
    assert cost.of(model, saved).images_per_second is None
    saved += [measured(), measured(batch_size=1)]
    found = cost.of(model, saved)
    assert found.images_per_second == BATCH / 0.2  # the median, of the better batch
    other = zoo_model(pool="average")
    assert cost.of(other, saved).images_per_second is None


@on_last_backend
def test_the_command_for_a_speed_that_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(multiply_adds, "of", lambda *_: None)  # it has no weights
    model = zoo_model()
    costs = {"model": cost.of(model, [])}
    found = cost.missing([model], costs, tmp_path)
    backend = keras.backend.backend()
    assert f"{tmp_path} has no measurement" in found
    assert found.endswith(
        f"KERAS_BACKEND={backend} python -m recipes.benchmarks forward --model "
        "ViTTi4CIFAR --image-size 32 --dtype float32."
    )
    costs = {"model": cost.of(model, [measured()])}
    assert cost.missing([model], costs, tmp_path) == ""
    other = candidate(kerasvit.VisionTransformer(**TINY["VisionTransformer"]))
    assert cost.missing([other], {"model": cost.of(other, [])}, tmp_path) == ""


@on_last_backend
def test_columns_of_costs():
    rows = [
        ["top-1 in %", "digits"],
        ["ViTB16/sam", "1"],
        [f"  {catalogue.PAPER}", "2"],
        ["b", "3"],
        ["  minus ViTB16/sam", "4"],
    ]
    costs = {
        "ViTB16/sam": cost.Cost(86_567_656, 17_563_828_224, 1234.5),
        "b": cost.Cost(5_000, None, None),
    }
    assert cost.inserted(rows, costs) == [
        ["top-1 in %", "M params", "G MACs", "img/s", "digits"],
        ["ViTB16/sam", "86.6", "17.6", "1,234", "1"],
        [f"  {catalogue.PAPER}", "87", "", "863 (TPU core)", "2"],
        ["b", "0.005", "", "", "3"],
        ["  minus ViTB16/sam", "", "", "", "4"],
    ]
