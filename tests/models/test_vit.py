import json

import keras
import numpy as np
import pytest

import kerasvit
from tests.contract import to_numpy
from tests.once import mainly_on_last, on_last_backend

pytestmark = pytest.mark.slow

SMALL = {"patch_size": 4, "width": 16, "depth": 2, "num_heads": 2, "mlp_dim": 24}


def small(**changes):
    kwargs = {**SMALL, "image_size": (8, 12), "num_classes": 5, **changes}
    model = kerasvit.VisionTransformer(**kwargs)
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape, scale=0.3) for w in model.weights])
    return model


def images(batch=3, height=8, width=12):
    shape = (batch, height, width, 3)
    return np.random.default_rng(1).normal(size=shape).astype("float32")


EVERY = [
    {},
    {"pool": "average"},
    {"pool": "average", "class_token": True, "register_tokens": 2},
    {"pool": "average_then_norm"},
    {"pool": "token_and_average", "register_tokens": 2},
    {"pool": "attention"},
    {"register_tokens": 2},
    {"register_tokens": 2, "positions": "patches"},
    {"positions": "patches"},
    {"positions": "sincos2d", "pool": "average"},
    {"representation_size": 7},
    {"layer_scale": 0.1, "qkv_bias": False},
    {"activation": "gelu_tanh", "epsilon": 1e-12},
    {"activation": "quick_gelu", "pre_norm": True, "patch_bias": False},
    {"mlp": "swiglu"},
    {"dropout": 0.1, "stochastic_depth": 0.1},
    {"num_classes": 0},
    {"normalization": {"mean": [0.5, 0.4, 0.3], "std": [0.5, 0.25, 0.2]}},
]


@pytest.mark.parametrize("changes", mainly_on_last(EVERY), ids=str)
def test_keras_file_gives_the_same_logits_and_record(changes, tmp_path):
    model = small(**changes)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again) is kerasvit.ImageModel
    assert again.record == model.record
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
    x = images()
    np.testing.assert_allclose(to_numpy(again(x)), to_numpy(model(x)), atol=1e-6)


@pytest.mark.parametrize("changes", mainly_on_last(EVERY), ids=str)
def test_weights_file_gives_the_same_logits(changes, tmp_path):
    model = small(**changes)
    model.save_weights(tmp_path / "model.weights.h5")
    again = kerasvit.VisionTransformer(**model.record["kwargs"])
    again.load_weights(tmp_path / "model.weights.h5")
    x = images()
    np.testing.assert_array_equal(to_numpy(again(x)), to_numpy(model(x)))


@pytest.mark.parametrize("changes", mainly_on_last(EVERY, 2), ids=str)
def test_one_training_step(changes):
    model = small(**changes)
    loss = "mse" if changes.get("num_classes") == 0 else None
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    target = model.output_shape[1:] if loss == "mse" else ()
    history = model.fit(images(), np.zeros((3, *target)), verbose=0)
    assert np.isfinite(history.history["loss"][0])


def test_mixed_bfloat16_is_near_and_ends_in_float32():
    model = small()
    keras.config.set_dtype_policy("mixed_bfloat16")
    half = small()
    x = images()
    logits = half(x)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    exact = to_numpy(model(x))
    assert np.abs(to_numpy(logits) - exact).max() < 0.05 * np.abs(exact).max()


def test_paths_are_those_of_the_checkpoint_format():
    paths = {w.path for w in small(layer_scale=1e-5, representation_size=7).weights}
    assert {
        "embedding/kernel",
        "class_token/tokens",
        "position_embedding/table",
        "encoder_block_1/attention_norm/gamma",
        "encoder_block_1/attention/query/kernel",
        "encoder_block_1/attention_scale",
        "encoder_block_1/mlp/dense_0/bias",
        "encoder_norm/beta",
        "pre_logits/kernel",
        "head/bias",
    } <= paths
    assert not any("." in layer.name for layer in small().layers)


def test_clips_normalise_the_tokens_before_the_first_block():
    model = small(pre_norm=True, patch_bias=False, epsilon=1e-3)
    assert "embedding/bias" not in {w.path for w in model.weights}
    taps = [model.get_layer("position_embedding").output]
    taps += [
        model.get_layer("pre_norm").output,
        model.get_layer("encoder_block_0").input,
    ]
    tokens, normal, first = (
        to_numpy(x) for x in keras.Model(model.input, taps)(images())
    )
    gamma, beta = (to_numpy(w) for w in model.get_layer("pre_norm").weights)
    deviation = np.sqrt(tokens.var(-1, keepdims=True) + 1e-3)
    expected = (tokens - tokens.mean(-1, keepdims=True)) / deviation * gamma + beta
    np.testing.assert_allclose(normal, expected, atol=1e-5)
    np.testing.assert_array_equal(first, normal)


def test_average_leaves_class_and_register_tokens_out():
    model = small(pool="average", class_token=True, register_tokens=2)
    tokens = keras.Model(model.input, model.get_layer("encoder_norm").output)
    features = keras.Model(model.input, model.get_layer("head").input)
    x = images()
    expected = to_numpy(tokens(x))[:, 3:].mean(axis=1)
    np.testing.assert_allclose(to_numpy(features(x)), expected, atol=1e-5)


@on_last_backend
def test_numbers_of_numpy_are_numbers():
    model = small(
        image_size=np.array([8, 8]),
        num_classes=np.int32(5),
        epsilon=np.float32(1e-6),
        qkv_bias=np.True_,
    )
    json.dumps(model.record)
    assert model.record["kwargs"]["image_size"] == [8, 8]
    assert type(model.record["kwargs"]["num_classes"]) is int


@on_last_backend
def test_stochastic_depth_grows_from_the_first_block_to_the_last():
    model = small(depth=3, stochastic_depth=0.2)
    rates = [model.get_layer(f"encoder_block_{i}").stochastic_depth for i in range(3)]
    assert rates == [0.0, 0.1, 0.2]


def test_fresh_head_is_zero():
    model = kerasvit.VisionTransformer(**SMALL, image_size=8)
    assert np.abs(to_numpy(model(images(1, 8, 8)))).max() == 0


def test_built_in_normalisation_takes_pixels():
    plain = small()
    mean, std = [0.5, 0.4, 0.3], [0.5, 0.25, 0.2]
    model = small(normalization={"mean": mean, "std": std})
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 12, 3)).astype("float32")
    expected = to_numpy(plain(((pixels / 255 - mean) / std).astype("float32")))
    np.testing.assert_allclose(to_numpy(model(pixels)), expected, atol=1e-4)


@on_last_backend
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"image_size": 10}, "10 × 10. The nearest that fits is 8 × 8"),
        ({"image_size": (8, 2)}, "8 × 2. The nearest that fits is 8 × 4"),
        ({"image_size": "8"}, "`image_size`"),
        ({"image_size": (8, 8, 3)}, "`image_size`"),
        ({"image_size": 8.0}, "`image_size`.*8.0"),
        ({"image_size": True}, "`image_size`.*True"),
        ({"image_size": -8}, "`image_size`.*-8"),
        ({"pool": "max"}, "average_then_norm.*'max'"),
        ({"positions": "rotary"}, "sincos2d.*'rotary'"),
        ({"class_token": False}, '`pool="token"` needs a class token'),
        (
            {"class_token": False, "pool": "token_and_average"},
            '`pool="token_and_average"` needs a class token',
        ),
        ({"num_classes": -1}, "`num_classes`.*-1"),
        ({"register_tokens": 1.5}, "`register_tokens`.*1.5"),
        ({"num_heads": 3}, "num_heads=3"),
        ({"activation": "relu"}, "`activation`.*relu"),
        ({"stochastic_depth": 1.0}, "`stochastic_depth`"),
        ({"dropout": 1.5}, "1.5"),
        ({"dropout": "a"}, "`dropout`.*'a'"),
        ({"class_token": "yes"}, "`class_token`"),
        ({"qkv_bias": "no"}, "`qkv_bias`"),
        ({"activation": ["gelu"]}, "`activation`"),
        ({"mlp": "glu"}, "`mlp`.*swiglu.*'glu'"),
        ({"pre_norm": 1.5}, "`pre_norm`"),
        ({"patch_bias": None}, "`patch_bias`"),
        ({"epsilon": -1}, "`epsilon`"),
        ({"epsilon": None}, "`epsilon`"),
        ({"layer_scale": "x"}, "`layer_scale`"),
        ({"layer_scale": True}, "`layer_scale`"),
        ({"normalization": True}, "`normalization`"),
        ({"normalization": {"mean": [0.5] * 3, "std": [0.0] * 3}}, "`std`"),
        ({"depth": 0}, "`depth`"),
        ({"width": 18, "positions": "sincos2d"}, "multiple of 4"),
    ],
)
def test_a_wrong_argument_suggests_the_right_one(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


def test_pixels_beyond_the_patches_are_cut_only_on_request():
    from tests.models.tiny import tiny

    model = tiny("VisionTransformer", image_size=(19, 17), partial_patches=True)
    whole = tiny("VisionTransformer", image_size=16)
    assert model.get_layer("position_embedding").grid == (4, 4)
    x = np.random.default_rng(0).normal(size=(2, 19, 17, 3)).astype("float32")
    np.testing.assert_allclose(
        to_numpy(model(x)), to_numpy(whole(x[:, :16, :16])), rtol=1e-5, atol=1e-6
    )
    with pytest.raises(ValueError, match="multiple of the patch size, 4"):
        tiny("VisionTransformer", image_size=(19, 17))
    with pytest.raises(ValueError, match="at least the patch size, 4. Received: 3 ×"):
        tiny("VisionTransformer", image_size=(3, 16), partial_patches=True)
