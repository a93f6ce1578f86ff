import json

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.layers import Attention, EncoderBlock, NeighborhoodAttention
from tests.contract import to_numpy
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

pytestmark = pytest.mark.slow

SMALL = {"patch_size": 4, "width": 16, "depth": 2, "num_heads": 2, "mlp_dim": 24}
PLAIN = {"window": None, "pool": "token", "norm": "pre"}
Small = kerasvit.Variant("Small", kerasvit.VisionTransformerAblation, **SMALL, **PLAIN)
EVERY = [
    {},
    {"window": 3},
    {"window": 5, "pool": "average"},
    {"norm": "post", "stochastic_depth": 0.2},
]


def filled(model):
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape, scale=0.3) for w in model.weights])
    return model


def small(**changes):
    return filled(Small(**{"image_size": (12, 16), "num_classes": 5, **changes}))


def images(batch=3, height=12, width=16):
    shape = (batch, height, width, 3)
    return np.random.default_rng(1).normal(size=shape).astype("float32")


@pytest.mark.parametrize("pool", ["token", "average"])
def test_without_a_change_it_is_the_vision_transformer(pool):
    model = small(pool=pool)
    same = {"image_size": (12, 16), "num_classes": 5, "pool": pool}
    plain = kerasvit.VisionTransformer(**SMALL, **same, qkv_bias=False, epsilon=1e-5)
    assert [w.path for w in model.weights] == [w.path for w in plain.weights]
    plain.set_weights(model.get_weights())
    x = images()
    np.testing.assert_array_equal(to_numpy(model(x)), to_numpy(plain(x)))


def test_a_window_over_all_patches_is_global_and_a_small_one_is_not():
    x, model = images(), small()
    logits = to_numpy(model(x))
    np.testing.assert_allclose(to_numpy(small(window=7)(x)), logits, atol=1e-5)
    assert np.abs(to_numpy(small(window=3)(x)) - logits).max() > 1e-3


@on_last_backend
def test_layers_match_the_arguments():
    local = small(window=3).get_layer("encoder_block_1").attention
    assert type(local) is NeighborhoodAttention
    assert (local.grid, local.window, local.prefix) == ((3, 4), 3, 1)
    block = small().get_layer("encoder_block_0")
    assert type(block) is EncoderBlock and type(block.attention) is Attention
    assert {w.path for w in small().weights} - {
        w.path for w in small(norm="post").weights
    } == {"encoder_norm/gamma", "encoder_norm/beta"}


def test_post_norm_ends_in_the_block_and_average_takes_every_patch():
    model = small(norm="post", pool="average")
    tokens = keras.Model(model.input, model.get_layer("encoder_block_1").output)
    features = keras.Model(model.input, model.get_layer("head").input)
    x = images()
    expected = to_numpy(tokens(x)).mean(axis=1)
    np.testing.assert_allclose(to_numpy(features(x)), expected, atol=1e-5)


def test_influence_spreads_by_half_a_window_a_block():
    # In a row of 9 patches without a class token, the first sees the second in the
    # first block, the third through it in the second, and no further.
    model = small(window=3, pool="average", image_size=(4, 36))
    tokens = keras.Model(model.input, model.get_layer("encoder_block_1").output)
    x = images(1, 4, 36)
    for patch in range(9):
        other = x.copy()
        other[:, :, 4 * patch : 4 * patch + 4] += 1
        moved = np.abs(to_numpy(tokens(other)) - to_numpy(tokens(x)))[0, 0].max()
        assert (moved > 0) == (patch <= 2), patch


@pytest.mark.parametrize("changes", mainly_on_last(EVERY), ids=str)
def test_keras_file_and_folder_give_the_same_logits_and_record(changes, tmp_path):
    model, x = small(**changes), images()
    json.dumps(model.record)
    model.save(tmp_path / "model.keras")
    kerasvit.save_pretrained(model, tmp_path)
    whole = keras.saving.load_model(tmp_path / "model.keras")
    for again in (whole, kerasvit.from_pretrained(tmp_path)):
        assert type(again) is kerasvit.ImageModel
        assert again.record == model.record
        assert [w.path for w in again.weights] == [w.path for w in model.weights]
        np.testing.assert_allclose(to_numpy(again(x)), to_numpy(model(x)), atol=1e-6)


@pytest.mark.parametrize("changes", mainly_on_last(EVERY), ids=str)
def test_another_size_keeps_the_window(changes):
    resized = kerasvit.resize(small(**changes), (16, 12))
    assert resized(images(1, 16, 12)).shape == (1, 5)
    attention = resized.get_layer("encoder_block_0").attention
    if changes.get("window"):
        assert (attention.grid, attention.window) == ((4, 3), changes["window"])


@on_last_backend
def test_weights_of_another_ablation_raise(tmp_path):
    kerasvit.save_pretrained(small(window=3, stochastic_depth=0.1), tmp_path)
    with pytest.raises(kerasvit.CheckpointError, match="window 3, not None"):
        Small(tmp_path)
    Local = kerasvit.Variant(
        "Local", kerasvit.VisionTransformerAblation, **SMALL, **{**PLAIN, "window": 3}
    )
    assert Local(tmp_path).record["kwargs"]["stochastic_depth"] == 0.1
    kerasvit.save_pretrained(small(), tmp_path)
    with pytest.raises(kerasvit.CheckpointError, match="window None, not 3"):
        Local(tmp_path)


@long_elsewhere
@pytest.mark.parametrize("changes", EVERY[1::2], ids=str)
def test_one_step_of_sam(changes):
    trainer = kerasvit.SAM(small(**changes), rho=0.05)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile("sgd", loss)
    history = trainer.fit(images(), np.arange(3), verbose=0)
    assert np.isfinite(history.history["loss"][0])


@pytest.mark.parametrize("changes", mainly_on_last(EVERY, 2), ids=str)
def test_mixed_bfloat16_is_near_and_ends_in_float32(changes):
    x, exact = images(), to_numpy(small(**changes)(images()))
    keras.config.set_dtype_policy("mixed_bfloat16")
    logits = small(**changes)(x)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert np.abs(to_numpy(logits) - exact).max() < 0.05 * np.abs(exact).max()


def test_features_and_built_in_normalisation():
    assert small(num_classes=0, window=3)(images()).shape == (3, 16)
    mean, std = [0.5, 0.4, 0.3], [0.5, 0.25, 0.2]
    model = small(normalization={"mean": mean, "std": std})
    pixels = np.random.default_rng(0).integers(0, 256, (2, 12, 16, 3))
    expected = small()(((pixels / 255 - mean) / std).astype("float32"))
    logits = model(pixels.astype("float32"))
    np.testing.assert_allclose(to_numpy(logits), to_numpy(expected), atol=1e-4)


@on_last_backend
def test_the_rows_differ_from_the_first_in_one_thing_each():
    names = ["Local3", "Local5", "Average", "PostNorm"]
    first = kerasvit.ViTTi4CIFAR
    rows = [getattr(kerasvit, f"ViTTi4CIFAR{name}") for name in names]
    differences = [dict(row.numbers.items() - first.numbers.items()) for row in rows]
    assert differences == [
        {"window": 3}, {"window": 5}, {"pool": "average"}, {"norm": "post"}
    ]  # fmt: skip
    transform = first.preprocessing()
    assert transform.size == (32, 32) and transform.mean == (0.5071, 0.4867, 0.4408)


@on_last_backend
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"window": 4}, "`window` must be an odd.*4"),
        ({"window": 0}, "`window`.*0"),
        ({"window": 2.5}, "`window`.*2.5"),
        ({"pool": "attention"}, "`pool`.*average.*attention"),
        ({"norm": "none"}, "`norm`.*post.*'none'"),
        ({"image_size": 10}, "10 × 10. The nearest that fits is 8 × 8"),
        ({"num_heads": 3}, "num_heads=3"),
        ({"depth": 0}, "`depth`"),
        ({"num_classes": -1}, "`num_classes`"),
        ({"stochastic_depth": 1.0}, "`stochastic_depth`"),
        ({"normalization": True}, "`normalization`"),
        ({"kernel_size": 3}, "kernel_size"),
    ],
)
def test_a_wrong_argument_suggests_the_right_one(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)
