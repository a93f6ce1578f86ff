"""Sharpness by component, the norms of weights and activations."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import kerasvit
from kerasvit.inspection import Hessian, sharpness_table
from kerasvit.inspection.curvature.sharpness_table import components_of
from tests.models.tiny import TINY, tiny
from tests.once import on_last_backend

CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
X = np.random.default_rng(0).standard_normal((6, 4)).astype("float32")
Y = np.array([0, 1, 2, 1, 1, 2])


def dense_net():
    rng = np.random.default_rng(1)
    image = keras.Input((4,))
    x = layers.Dense(5, activation="tanh", name="hidden")(image)
    model = keras.Model(image, layers.Dense(3, name="head")(x))
    model.set_weights([rng.standard_normal(w.shape) for w in model.weights])
    return model


def test_numbers_of_a_dense_network():
    model = dense_net()
    found = sharpness_table(
        model, X, Y, CROSS_ENTROPY, activations=["hidden"], batch_size=4,
        components={"first": "hidden/", "kernels": "kernel$", "whole": ""},
        tolerance=1e-5,
    )  # fmt: skip
    whole = Hessian(model, X, Y, CROSS_ENTROPY)
    matrix = np.stack([whole @ unit for unit in np.eye(43)]).astype("float64")
    inside = {
        "first": np.arange(43) < 25,
        "kernels": np.repeat([True, False, True, False], [20, 5, 15, 3]),
        "whole": np.ones(43, bool),
    }
    assert [*found.eigenvalues] == [*inside] == [*found.residuals]
    for name, chosen in inside.items():
        largest = np.linalg.eigvalsh(matrix[chosen][:, chosen])[-1]
        np.testing.assert_allclose(found.eigenvalues[name], largest, rtol=1e-4)
    weights = [ops.convert_to_numpy(w) for w in model.weights]
    expected = np.sqrt(sum((w**2).sum() for w in weights))
    np.testing.assert_allclose(found.weight_norm, expected, rtol=1e-6)
    hidden = np.tanh(X @ weights[0] + weights[1])
    expected = np.linalg.norm(hidden, axis=1).mean()
    np.testing.assert_allclose(found.activation_norms["hidden"], expected, rtol=1e-5)
    assert found.products > 0


@pytest.mark.slow
@on_last_backend
def test_the_row_of_a_mixer():
    model = tiny("MLPMixer", image_size=8)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 8, 8, 3)).astype("float32")
    y = rng.integers(0, 3, 3)
    trainer = kerasvit.SAM(model)
    trainer.compile("sgd", CROSS_ENTROPY)
    found = sharpness_table(trainer, x, y)
    names = ["embedding", "token mixing", "channel mixing", "mixer_block_0", "whole"]
    assert [*found.eigenvalues] == names
    assert found.eigenvalues["whole"] >= max(found.eigenvalues.values()) * (1 - 1e-3)
    mixing = Hessian(model, x, y, CROSS_ENTROPY, variables="token_mixing")
    largest = mixing.eigenpairs().values[0]
    np.testing.assert_allclose(found.eigenvalues["token mixing"], largest, rtol=1e-3)
    tokens = model.get_layer("mixer_block_0")(model.get_layer("stem")(x))
    norms = np.linalg.norm(ops.convert_to_numpy(tokens).reshape(3, -1), axis=1)
    expected = {"mixer_block_0": pytest.approx(norms.mean(), rel=1e-5)}
    assert found.activation_norms == expected


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize(
    ("builder", "kinds", "blocks"),
    [
        ("VisionTransformer", "attention MLP", "encoder_block_0"),
        ("DistilledVisionTransformer", "attention MLP", "encoder_block_0"),
        ("VisionTransformerAblation", "attention MLP", "encoder_block_0"),
        ("HybridVisionTransformer", "attention MLP", "stage_0_unit_0 encoder_block_0"),
        (
            "SwinTransformer",
            "attention MLP",
            "stage_0_block_0 stage_0_block_1 stage_1_block_0",
        ),
        (
            "PoolingVisionTransformer",
            "attention MLP",
            "stage_0_block_0 stage_1_block_0 stage_1_block_1",
        ),
        ("BigTransfer", "convolutions", "stage_0_unit_0 stage_1_unit_0"),
        ("PreActResNet", "convolutions", "stage_0_unit_0 stage_1_unit_0"),
        ("ResNeXt", "convolutions", "stage_0_unit_0 stage_1_unit_0"),
        (
            "AlterNet",
            "convolutions attention",
            "stage_0_unit_0 stage_1_unit_0 stage_1_unit_1",
        ),
    ],
)
def test_components_of_a_family(builder, kinds, blocks):
    model = getattr(kerasvit, builder)(**TINY[builder])
    found = components_of(model)
    assert [*found] == ["embedding", *kinds.split(), *blocks.split(), "whole"]
    for pattern in found.values():  # each selects weights
        Hessian(model, X, Y, CROSS_ENTROPY, variables=pattern)
    embedding = Hessian(model, X, Y, CROSS_ENTROPY, variables=found["embedding"])
    layer = [v.path.split("/")[0] for v in embedding.variables]
    assert set(layer) <= {"embedding", "stem", "root_conv"} and len(set(layer)) == 1


@on_last_backend
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"components": ["hidden"]}, "`components` must be a dictionary"),
        ({}, "`components` must be given .*hidden/kernel … head/bias"),
        (
            {"components": {"first": "hiden"}},
            "regular expression that is found in .*Received: 'hiden'",
        ),
        (
            {"components": {"whole": ""}, "activations": ["hiden"]},
            r"`activations` must be names .*\['hiden'\].*'hidden', 'head'",
        ),
    ],
)
def test_arguments(options, expected):
    with pytest.raises(ValueError, match=expected):
        sharpness_table(dense_net(), X, Y, CROSS_ENTROPY, **options)


@on_last_backend
def test_a_component_without_trainable_weights_is_named():
    model = tiny("MLPMixer", image_size=8)
    model.get_layer("stem").trainable = False
    x = np.zeros((2, 8, 8, 3), "float32")
    with pytest.raises(ValueError, match="for 'embedding'.*weights frozen?"):
        sharpness_table(model, x, Y[:2], CROSS_ENTROPY)


@on_last_backend
def test_activations_that_are_not_finite():
    with pytest.raises(ValueError, match="finite. Received: Inf or NaN from 'hidden'"):
        sharpness_table(
            dense_net(), X * np.nan, Y, CROSS_ENTROPY, components={"whole": ""},
            activations=["hidden", "head"],
        )  # fmt: skip
