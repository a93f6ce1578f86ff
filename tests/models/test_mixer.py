import json
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

import kerasvit
from kerasvit.checkpoints.sources.google_mixer import GoogleMixer
from kerasvit.checkpoints.sources.timm_mixer import TimmMixer
from tests.contract import check_key_map, to_numpy
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

from .counting import outlined

SMALL = {
    "patch_size": 4,
    "width": 12,
    "depth": 2,
    "tokens_mlp_dim": 5,
    "channels_mlp_dim": 20,
}
Small = kerasvit.Variant("Small", kerasvit.MLPMixer, **SMALL)
TIMM_KEYS = Path(__file__).parents[1] / "golden" / "timm_keys"
IN_TIMM = ["MixerS32", "MixerS16", "MixerB32", "MixerB16", "MixerL32", "MixerL16"]


def small(**changes):
    model = Small(**{"image_size": (8, 12), "num_classes": 5, **changes})
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape, scale=0.3) for w in model.weights])
    return model


def images(batch=3, height=8, width=12):
    shape = (batch, height, width, 3)
    return np.random.default_rng(1).normal(size=shape).astype("float32")


EVERY = [
    {},
    {"activation": "gelu_tanh", "epsilon": 1e-5},
    {"stochastic_depth": 0.1},
    {"num_classes": 0},
    {"normalization": {"mean": [0.5, 0.4, 0.3], "std": [0.5, 0.25, 0.2]}},
]


@pytest.mark.slow
@pytest.mark.parametrize("changes", mainly_on_last(EVERY), ids=str)
def test_files_and_folders_give_the_same_logits_and_record(changes, tmp_path):
    model, x = small(**changes), images()
    model.save(tmp_path / "model.keras")
    kerasvit.save_pretrained(model, tmp_path / "folder")
    for again in (
        keras.saving.load_model(tmp_path / "model.keras"),
        kerasvit.from_pretrained(tmp_path / "folder"),
    ):
        assert type(again) is kerasvit.ImageModel
        assert again.record == model.record
        assert [w.path for w in again.weights] == [w.path for w in model.weights]
        np.testing.assert_allclose(to_numpy(again(x)), to_numpy(model(x)), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("changes", mainly_on_last(EVERY), ids=str)
def test_one_training_step(changes):
    model = small(**changes)
    loss = "mse" if changes.get("num_classes") == 0 else None
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    target = model.output_shape[1:] if loss == "mse" else ()
    history = model.fit(images(), np.zeros((3, *target)), verbose=0)
    assert np.isfinite(history.history["loss"][0])


# torch.compile takes a minute.
COMPILED = keras.backend.backend() != "torch"


@long_elsewhere
@pytest.mark.parametrize(
    "policy, jit_compile", [("float32", False), ("mixed_bfloat16", COMPILED)]
)
def test_one_step_of_sam(policy, jit_compile):
    keras.config.set_dtype_policy(policy)
    model = small(stochastic_depth=0.1)
    before = model.get_weights()
    trainer = kerasvit.SAM(model, rho=0.05)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(keras.optimizers.SGD(0.1), loss, jit_compile=jit_compile)
    trainer.fit(images(8), np.arange(8) % 5, batch_size=8, verbose=0)
    for weight, old in zip(model.weights, before, strict=True):
        assert weight.dtype == "float32"
        moved = np.abs(to_numpy(weight) - old).max()
        # A value that is equal for all channels of a token is removed by normalisation.
        unseen = weight.path.endswith("token_mixing/dense_1/bias")
        assert moved < np.inf and (moved > 0 or unseen), weight.path


@pytest.mark.slow
def test_mixed_bfloat16_is_near_and_ends_in_float32():
    model, x = small(), images()
    keras.config.set_dtype_policy("mixed_bfloat16")
    logits = small()(x)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    exact = to_numpy(model(x))
    assert np.abs(to_numpy(logits) - exact).max() < 0.05 * np.abs(exact).max()


def test_paths_are_those_of_the_checkpoint_format():
    model = small()
    assert {
        "stem/kernel",
        "mixer_block_0/token_norm/gamma",
        "mixer_block_0/token_mixing/dense_0/kernel",
        "mixer_block_1/channel_norm/beta",
        "mixer_block_1/channel_mixing/dense_1/bias",
        "pre_head_norm/gamma",
        "head/bias",
    } <= {w.path for w in model.weights}
    assert not any("." in layer.name for layer in model.layers)


def test_features_are_the_average_of_normalised_tokens():
    model = small(num_classes=0)
    tokens = keras.Model(model.input, model.get_layer("pre_head_norm").output)
    x = images()
    expected = to_numpy(tokens(x)).mean(axis=1)
    np.testing.assert_allclose(to_numpy(model(x)), expected, atol=1e-5)


@pytest.mark.slow
def test_fresh_head_is_zero():
    model = kerasvit.MLPMixer(**SMALL, image_size=8)
    assert np.abs(to_numpy(model(images(1, 8, 8)))).max() == 0


def test_stochastic_depth_grows_from_the_first_block_to_the_last():
    model = small(depth=3, stochastic_depth=0.2)
    rates = [model.get_layer(f"mixer_block_{i}").stochastic_depth for i in range(3)]
    assert rates == [0.0, 0.1, 0.2]


@on_last_backend
def test_evaluation_is_that_of_timms_mixers():
    assert kerasvit.MixerB16.preprocessing().crop == 0.875


@on_last_backend
def test_numbers_of_numpy_are_numbers():
    model = small(image_size=np.array([8, 8]), tokens_mlp_dim=np.int64(6))
    json.dumps(model.record)
    assert model.record["kwargs"]["image_size"] == [8, 8]


@on_last_backend
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"image_size": 10}, "10 × 10. The nearest that fits is 8 × 8"),
        ({"image_size": "8"}, "`image_size`"),
        ({"patch_size": 0}, "`patch_size`.*0"),
        ({"width": 1.5}, "`width`.*1.5"),
        ({"depth": 0}, "`depth`.*0"),
        ({"tokens_mlp_dim": -1}, "`tokens_mlp_dim`.*-1"),
        ({"channels_mlp_dim": None}, "`channels_mlp_dim`.*None"),
        ({"num_classes": -1}, "`num_classes`.*-1"),
        ({"activation": "relu"}, "`activation`.*relu"),
        ({"stochastic_depth": 1.0}, "`stochastic_depth`"),
        ({"epsilon": -1}, "`epsilon`"),
        ({"normalization": True}, "`normalization`"),
        ({"num_heads": 2}, "no argument num_heads"),
    ],
)
def test_a_wrong_argument_suggests_the_right_one(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


# Another resolution.


@pytest.mark.slow
@pytest.mark.parametrize("size", [(16, 24), (4, 20), 8])
def test_resize_keeps_the_logits_of_a_constant_image(size):
    model = small()
    resized = kerasvit.resize(model, size)
    assert resized.record["kwargs"]["image_size"] == list(
        size if isinstance(size, tuple) else (size, size)
    )
    stem = model.get_layer("stem")
    colour = np.ones((1, 8, 12, 3), "float32")
    larger = np.ones((1, *resized.input_shape[1:]), "float32")
    np.testing.assert_allclose(
        to_numpy(resized.get_layer("stem")(larger))[0, :1],
        to_numpy(stem(colour))[0, :1],
        atol=1e-5,
    )
    # Its first block gets the same hidden values, whatever the grid.
    first = [m.get_layer("mixer_block_0") for m in (model, resized)]
    hidden = [
        to_numpy(block.token_mixing.dense_0(to_numpy(m.get_layer("stem")(x))[0].T))
        for m, block, x in zip((model, resized), first, (colour, larger), strict=True)
    ]
    np.testing.assert_allclose(hidden[1], hidden[0], atol=1e-4)


def test_resize_to_the_same_size_gives_the_same_logits():
    model, x = small(), images()
    again = kerasvit.resize(model, (8, 12))
    np.testing.assert_array_equal(to_numpy(again(x)), to_numpy(model(x)))


@pytest.mark.slow
def test_resize_round_trip_is_close_for_smooth_weights():
    model = small(image_size=32)
    for block in (model.get_layer(f"mixer_block_{i}") for i in range(2)):
        y = np.cos(np.pi * (np.arange(8) + 0.5) / 8)
        wave = np.tile((y[:, None] * y).reshape(-1, 1), 5).astype("float32")
        block.token_mixing.dense_0.kernel.assign(wave)
        block.token_mixing.dense_1.kernel.assign(wave.T)
        block.token_mixing.dense_1.bias.assign(wave[:, 0])
    again = kerasvit.resize(kerasvit.resize(model, 64), 32)
    x = images(2, 32, 32)
    expected = to_numpy(model(x))
    assert np.abs(to_numpy(again(x)) - expected).max() < 0.05 * np.abs(expected).max()


def test_a_kernel_can_be_a_name():
    model = small()
    one, other = (
        kerasvit.resize(model, 16, kernel=kernel).get_weights()
        for kernel in ("bicubic_antialias", "corner_linear")
    )
    assert max(np.abs(a - b).max() for a, b in zip(one, other, strict=True)) > 0.01


# timm.


@on_last_backend
@pytest.mark.parametrize("name", IN_TIMM)
def test_names_and_shapes_are_timms(name):
    model = outlined(name, depth=2)
    depth = getattr(kerasvit, name).numbers["depth"]
    kwargs = {**model.record["kwargs"], "depth": depth}
    keys = json.loads((TIMM_KEYS / f"{name}.json").read_text())
    expected = {key: tuple(shape) for key, shape in keys["rest"].items()}
    for i in range(2):
        for key, shape in keys["block"].items():
            expected[f"blocks.{i}.{key}"] = tuple(shape)
    zeros = {w.path: np.broadcast_to(np.float32(0), w.shape) for w in model.weights}
    tensors = TimmMixer().key_map(kwargs).write(zeros)
    assert {key: tensor.shape for key, tensor in tensors.items()} == expected
    assert keys["depth"] == depth
    config = TimmMixer().config({"builder": "MLPMixer", "kwargs": kwargs})
    assert config["architecture"] == f"mixer_{name[5:].lower()}_224"
    assert config["model_args"] == {"img_size": [224, 224], "mlp_ratio": [0.5, 4.0]}


@on_last_backend
def test_models_that_timm_lacks_keep_variable_paths(tmp_path):
    kerasvit.save_pretrained(small(), tmp_path)
    assert "stem/kernel" in load_file(tmp_path / "model.safetensors")


@on_last_backend
@pytest.mark.parametrize(
    "change", [{"activation": "gelu_tanh"}, {"epsilon": 1e-5}, {"depth": 9}]
)
def test_models_that_timm_cannot_compute_have_no_configuration(change):
    row = kerasvit.MixerS32
    kwargs = {**row.defaults, **row.numbers, "image_size": [224, 224]}
    assert TimmMixer().config({"kwargs": kwargs})
    assert TimmMixer().config({"kwargs": {**kwargs, **change}}) is None


@on_last_backend
@pytest.mark.parametrize("tokens, channels", [(57, 29), (1, 3000), (511, 4097)])
def test_timm_gets_any_hidden_size(tokens, channels):
    row = kerasvit.MixerS32
    sizes = {"tokens_mlp_dim": tokens, "channels_mlp_dim": channels}
    kwargs = {**row.defaults, **row.numbers, "image_size": [64, 96], **sizes}
    args = TimmMixer().config({"kwargs": kwargs})["model_args"]
    assert [int(ratio * 512) for ratio in args["mlp_ratio"]] == [tokens, channels]
    assert args["img_size"] == [64, 96]


@on_last_backend
@pytest.mark.parametrize("source", [TimmMixer(), GoogleMixer()])
def test_key_map_both_ways(source):
    model = small()
    check_key_map(source.key_map(model.record["kwargs"]), model)
