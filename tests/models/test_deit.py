import json

import keras
import numpy as np
import pytest

import kerasvit
from tests.contract import check_key_map, to_numpy
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

pytestmark = pytest.mark.slow

SMALL = {"patch_size": 4, "width": 16, "depth": 2, "num_heads": 2, "mlp_dim": 24}
Small = kerasvit.Variant("Small", kerasvit.DistilledVisionTransformer, **SMALL)
EVERY = [
    {},
    {"num_classes": 0},
    {"layer_scale": 0.1, "qkv_bias": False, "activation": "gelu_tanh"},
    {"epsilon": 1e-12, "dropout": 0.1, "stochastic_depth": 0.1},
    {"normalization": {"mean": [0.5, 0.4, 0.3], "std": [0.5, 0.25, 0.2]}},
]
HEADS = ("head", "head_distillation")


def small(**changes):
    model = Small(**{"image_size": (8, 12), "num_classes": 5, **changes})
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape, scale=0.3) for w in model.weights])
    return model


def images(batch=3, height=8, width=12):
    shape = (batch, height, width, 3)
    return np.random.default_rng(1).normal(size=shape).astype("float32")


def same_logits(one, other):
    x = images(2, *one.input_shape[1:3])
    np.testing.assert_allclose(to_numpy(one(x)), to_numpy(other(x)), atol=1e-6)


def tokens(model, x):
    last = model.get_layer("encoder_norm").output
    return to_numpy(keras.Model(model.input, last)(x))


def test_two_tokens_precede_the_patches():
    model = small()
    assert model.get_layer("encoder_norm").output.shape == (None, 2 + 2 * 3, 16)
    assert model.get_layer("position_embedding").table.shape == (1, 2 + 2 * 3, 16)
    start = keras.Model(model.input, model.get_layer("class_token").output)
    found = to_numpy(start(images()))
    for i, name in enumerate(("class_token", "distillation_token")):
        token = to_numpy(model.get_layer(name).tokens)[0]
        np.testing.assert_array_equal(found[:, i], np.repeat(token, 3, axis=0))


def test_logits_are_the_mean_of_both_heads():
    model, x = small(), images()
    last, expected = tokens(model, x), 0
    for i, name in enumerate(HEADS):
        kernel, bias = map(to_numpy, model.get_layer(name).weights)
        expected += (last[:, i] @ kernel + bias) / 2
    np.testing.assert_allclose(to_numpy(model(x)), expected, atol=1e-5)


def test_features_are_the_mean_of_both_tokens():
    # As timm's `forward_head(pre_logits=True)`.
    model, x = small(num_classes=0), images()
    expected = tokens(model, x)[:, :2].mean(axis=1)
    assert model.output_shape == (None, 16)
    np.testing.assert_allclose(to_numpy(model(x)), expected, atol=1e-6)


def test_fresh_heads_are_zero_and_fresh_tokens_differ():
    model = kerasvit.DistilledVisionTransformer(**SMALL, image_size=8)
    assert np.abs(to_numpy(model(images(1, 8, 8)))).max() == 0
    assert np.abs(to_numpy(model.get_layer("distillation_token").tokens)).max() > 0


@pytest.mark.parametrize("changes", mainly_on_last(EVERY), ids=str)
def test_keras_file_gives_the_same_logits_and_record(changes, tmp_path):
    model = small(**changes)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.record == model.record
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
    same_logits(model, again)


@pytest.mark.parametrize("changes", mainly_on_last(EVERY), ids=str)
def test_a_folder_gives_the_same_model(changes, tmp_path):
    model = small(**changes)
    kerasvit.save_pretrained(model, tmp_path)
    again = kerasvit.from_pretrained(tmp_path)
    assert again.record == model.record
    same_logits(model, again)
    config = json.loads((tmp_path / "config.json").read_text())
    timm = model.record["kwargs"]["epsilon"] == 1e-6
    assert ("architecture" in config) == timm
    if timm:
        assert config["architecture"] == "deit_base_distilled_patch16_224"


@pytest.mark.parametrize("changes", mainly_on_last(EVERY), ids=str)
def test_key_map_round_trips(changes):
    from kerasvit.checkpoints.sources.timm_deit import TimmDeiT
    from kerasvit.checkpoints.sources.transformers_deit import TransformersDeiT

    model = small(**changes)
    tensors = check_key_map(TimmDeiT().key_map(model.record["kwargs"]), model)
    assert tensors["pos_embed"].shape == (1, 8, 16)
    if "layer_scale" not in changes:  # transformers has no LayerScale
        key_map = TransformersDeiT().key_map(model.record["kwargs"])
        tensors = check_key_map(key_map, model)
        assert "embeddings.distillation_token" in tensors


def test_resize_keeps_both_tokens_rows():
    model = small()
    resized = kerasvit.resize(model, (16, 12))
    old, new = (
        to_numpy(m.get_layer("position_embedding").table) for m in (model, resized)
    )
    assert new.shape == (1, 2 + 4 * 3, 16)
    np.testing.assert_array_equal(old[:, :2], new[:, :2])


def test_mixed_bfloat16_is_near_and_ends_in_float32():
    model, x = small(), images()
    keras.config.set_dtype_policy("mixed_bfloat16")
    logits = small()(x)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    exact = to_numpy(model(x))
    assert np.abs(to_numpy(logits) - exact).max() < 0.05 * np.abs(exact).max()


def test_separate_heads_equal_the_heads_of_the_mean():
    model, x = small(), images()
    heads = kerasvit.distillation_heads(model)
    apart = {name: to_numpy(logits) for name, logits in heads(x).items()}
    assert list(apart) == list(HEADS) == heads.output_names
    mean = (apart["head"] + apart["head_distillation"]) / 2
    np.testing.assert_allclose(to_numpy(model(x)), mean, atol=1e-6)
    assert [id(w) for w in heads.weights] == [id(w) for w in model.weights]


@long_elsewhere
@pytest.mark.parametrize(
    "wrap", mainly_on_last([kerasvit.SAM, lambda m: m]), ids=["SAM", "plain"]
)
def test_hard_distillation_trains_the_model(wrap):
    """Equation 3 of the paper; the two heads learn different labels."""
    model = Small(image_size=8, num_classes=2)
    labels = np.arange(32) % 2
    noise = np.random.default_rng(0).normal(size=(32, 8, 8, 3), scale=0.3)
    x = (noise + (2 * labels - 1)[:, None, None, None]).astype("float32")
    y = {"head": labels, "head_distillation": 1 - labels}
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    losses = dict.fromkeys(HEADS, crossentropy)
    trainer = wrap(kerasvit.distillation_heads(model))
    trainer.compile(
        keras.optimizers.Adam(0.01), losses, loss_weights=dict.fromkeys(losses, 0.5)
    )
    first = trainer.evaluate(x, y, verbose=0, return_dict=True)
    np.testing.assert_allclose(first["loss"], np.log(2), atol=1e-5)
    trainer.fit(x, y, batch_size=8, epochs=6, verbose=0)
    logits = kerasvit.distillation_heads(model).predict(x, verbose=0)
    for name, expected in y.items():
        assert (logits[name].argmax(-1) == expected).mean() > 0.9
    last = trainer.evaluate(x, y, verbose=0, return_dict=True)
    each = [float(crossentropy(expected, logits[name])) for name, expected in y.items()]
    np.testing.assert_allclose(last["loss"], np.mean(each), atol=1e-4)


@long_elsewhere
def test_the_mean_is_trained_like_any_model():
    model = small(num_classes=2)
    trainer = kerasvit.SAM(model)
    trainer.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = to_numpy(model.get_layer("head_distillation").kernel)
    history = trainer.fit(images(), np.zeros(3), verbose=0)
    assert np.isfinite(history.history["loss"][0])
    moved = to_numpy(model.get_layer("head_distillation").kernel) - before
    assert np.abs(moved).max() > 0


@on_last_backend
@pytest.mark.parametrize(
    "model",
    [
        small(num_classes=0),
        kerasvit.VisionTransformer(**SMALL, image_size=8),
        None,
    ],
    ids=["no heads", "ViT", "None"],
)
def test_heads_of_another_model(model):
    with pytest.raises(ValueError, match="DeiTS16Distilled.*num_classes"):
        kerasvit.distillation_heads(model)


@on_last_backend
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"image_size": 10}, "10 × 10. The nearest that fits is 8 × 8"),
        ({"num_classes": -1}, "`num_classes`.*-1"),
        ({"depth": 0}, "`depth`"),
        ({"num_heads": 3}, "num_heads=3"),
        ({"activation": "relu"}, "`activation`.*relu"),
        ({"epsilon": -1}, "`epsilon`"),
        ({"normalization": True}, "`normalization`"),
        ({"pool": "average"}, "no argument pool"),
    ],
)
def test_a_wrong_argument_suggests_the_right_one(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


@on_last_backend
def test_deit_and_deit_3_are_vits():
    rows = [getattr(kerasvit, n) for n in kerasvit.list_models("deit*16")]
    assert len(rows) == 7
    for row in rows:
        assert row.builder is kerasvit.VisionTransformer
        assert row.preprocessing().mean == (0.485, 0.456, 0.406)
    model = kerasvit.DeiT3S16(
        depth=1, width=12, mlp_dim=8, image_size=32, num_classes=2
    )
    assert model.get_layer("position_embedding").table.shape == (1, 4, 12)
    scale = to_numpy(model.get_layer("encoder_block_0").attention_scale)
    np.testing.assert_array_equal(scale, np.float32(1e-6))
