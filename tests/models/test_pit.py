import json

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit.checkpoints.sources.timm_pit import TimmPiT
from kerasvit.layers.resampling import resample_grid
from tests.contract import call, check_key_map, to_numpy
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

pytestmark = pytest.mark.slow

NUMBERS = {
    "patch_size": 4,
    "stride": 2,
    "width": 8,
    "depths": [1, 2],
    "num_heads": [1, 2],
    "distilled": False,
}
# Maps of 4 × 7 and 2 × 4 cells; a column of pixels is left.
SMALL = {**NUMBERS, "image_size": (10, 17), "num_classes": 5}


def small(**changes):
    model = kerasvit.PoolingVisionTransformer(**{**SMALL, **changes})
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape, scale=0.3) for w in model.weights])
    return model


def images(height=10, width=17):
    shape = (2, height, width, 3)
    return np.random.default_rng(1).normal(size=shape).astype("float32")


def logits(model, *size):
    return to_numpy(call(model, images(*size)))


@pytest.mark.parametrize(
    "changes",
    mainly_on_last(
        [
            {"distilled": True, "normalization": {"mean": [0.5] * 3, "std": [0.2] * 3}},
            {"qkv_bias": False, "mlp_ratio": 2.6, "epsilon": 1e-3},  # not timm's
            {"num_classes": 0, "distilled": True},
            {"num_classes": 0, "depths": [1], "num_heads": [2], "stride": 4},
        ],
        0,
    ),
    ids=str,
)
def test_files_give_the_same_logits_and_record(changes, tmp_path):
    model = small(**changes)
    expected = logits(model)
    model.save(tmp_path / "model.keras")
    kerasvit.save_pretrained(model, tmp_path / "folder")
    whole = keras.saving.load_model(tmp_path / "model.keras")
    for again in (whole, kerasvit.from_pretrained(tmp_path / "folder")):
        assert again.record["kwargs"] == model.record["kwargs"]
        np.testing.assert_allclose(logits(again), expected, atol=1e-5)


@on_last_backend
def test_paths_are_those_of_the_checkpoint_format():
    paths = {w.path for w in small(distilled=True).weights}
    assert {
        "embedding/kernel",
        "position_embedding/table",
        "class_token/tokens",
        "stage_0_block_0/attention/query/kernel",
        "stage_1_pooling/kernel",
        "stage_1_pooling/dense/bias",
        "stage_1_block_1/mlp/dense_0/bias",
        "encoder_norm/beta",
        "head/bias",
        "head_distillation/bias",
    } <= paths


def test_images_of_any_size_have_the_logits_of_the_resized_model():
    model = small(distilled=True, depths=[1, 1])
    dynamic = kerasvit.resize(model, (None, None))
    fixed = kerasvit.resize(model, (13, 9))
    np.testing.assert_allclose(logits(dynamic, 13, 9), logits(fixed, 13, 9), atol=1e-5)
    table, resampled = (
        to_numpy(m.get_layer("position_embedding").table)[0] for m in (model, fixed)
    )
    expected = resample_grid(table, (5, 3), "bicubic_antialias")
    np.testing.assert_allclose(resampled, expected, atol=1e-6)


def test_mixed_bfloat16_is_near_and_ends_in_float32():
    options = {"distilled": True, "depths": [1, 1]}
    exact = logits(small(**options))
    found = call(small(**options, dtype="mixed_bfloat16"), images())
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    assert np.abs(to_numpy(found) - exact).max() < 0.05 * np.abs(exact).max()


@long_elsewhere
def test_one_compiled_step_inside_sam():
    model = small(distilled=True, stochastic_depth=0.1)
    before = [w.copy() for w in model.get_weights()]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer = kerasvit.SAM(model, rho=0.05)
    compiled = keras.backend.backend() != "torch"
    trainer.compile("sgd", loss, jit_compile=compiled)
    history = trainer.fit(images(), np.zeros(2), verbose=0)
    assert np.isfinite(history.history["loss"][0])
    for weight, old in zip(model.weights, before, strict=True):
        moved = np.abs(to_numpy(weight) - old).max()
        assert moved > 0 or weight.path.endswith(("key/bias", "_state")), weight.path


@on_last_backend
def test_heads_of_a_distilled_model():
    model = small(distilled=True)
    both = kerasvit.distillation_heads(model)(images())
    mean = (to_numpy(both["head"]) + to_numpy(both["head_distillation"])) / 2
    np.testing.assert_allclose(logits(model), mean, atol=1e-6)
    with pytest.raises(ValueError, match="must be distilled"):
        kerasvit.distillation_heads(small())


@on_last_backend
def test_features_of_stages():
    levels = kerasvit.features(small(distilled=True), prefix=True)
    assert (levels.strides, levels.channels) == ((2, 4), (8, 16))
    shapes = [[tuple(part.shape) for part in each] for each in levels(images())]
    assert shapes == [[(2, 4, 7, 8), (2, 2, 8)], [(2, 2, 4, 16), (2, 2, 16)]]


@on_last_backend
def test_attention_and_features_of_stages():
    model = small(distilled=True)
    maps = kerasvit.inspection.attention_maps(model, images())
    found = [(each.grid, each.prefix) for each in maps.layers.values()]
    assert found == [((4, 7), 2), ((2, 4), 2), ((2, 4), 2)]
    assert kerasvit.inspection.Activations(model).layouts() == found
    assert maps.rollout is None
    # Cells are 4 pixels apart in the last stage: the farthest are two corners.
    last = [*maps.layers.values()][-1]
    assert 0 < last.distance.min() and last.distance.max() < np.hypot(4, 12)
    uniform = small()
    for name in ("query", "key"):
        layer = getattr(uniform.get_layer("stage_0_block_0").attention, name)
        layer.set_weights([np.zeros(w.shape) for w in layer.weights])
    first = kerasvit.inspection.attention_maps(uniform, images(), layers="stage_0")
    (first,) = first.layers.values()
    places = 2 * np.indices((4, 7)).reshape(2, -1)  # 2 pixels apart
    apart = np.hypot(*(places[:, :, None] - places[:, None]))
    np.testing.assert_allclose(first.distance, apart.mean() * 28 / 29, rtol=1e-5)


@on_last_backend
def test_attention_to_images_of_any_size():
    dynamic = kerasvit.resize(small(), (None, None))
    maps = kerasvit.inspection.attention_maps(dynamic, images(20, 13))
    assert [each.grid for each in maps.layers.values()] == [(9, 5), (5, 3), (5, 3)]


@on_last_backend
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"image_size": (15, 224)}, "at least the patch size, 16. Received: 15 × 224"),
        ({"image_size": 5000}, "at most 262,144 patches, at a distance of 8"),
        ({"stride": 17}, r"`stride`.*\[1, 16\], at most the patch size"),
        ({"stride": 0}, "`stride`"),
        ({"patch_size": (16, 8)}, "`patch_size`"),
        ({"depths": [2, 2]}, "`num_heads` must be a list of 2"),
        ({"num_heads": [2, 4, 7]}, "`num_heads` must divide"),
        ({"mlp_ratio": 0}, "`mlp_ratio`"),
        ({"distilled": None}, "`distilled`"),
        ({"image_size": (None, None), "resampling": {"image_size": 8}}, "at least the"),
    ],
    ids=str,
)
def test_a_wrong_argument_suggests_the_right_one(changes, message):
    with pytest.raises(ValueError, match=message):
        kerasvit.PiTTi16(**changes)


# --- timm's files


def written(model, folder, **config):
    """Writes a model in timm's format; `config` gives the fields of config.json."""
    tensors = check_key_map(TimmPiT().key_map(model.record["kwargs"]), model)
    path = folder / "pit.safetensors"
    save_file({n: np.ascontiguousarray(t) for n, t in tensors.items()}, path)
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return path


TINY = kerasvit.Variant(None, kerasvit.PoolingVisionTransformer, **NUMBERS)


@on_last_backend
def test_a_bare_file_determines_the_grid(tmp_path, caplog):
    path = written(small(), tmp_path)
    kwargs = TINY(path).record["kwargs"]
    assert kwargs == {**small().record["kwargs"], "image_size": [10, 16]}
    assert "stride=2, num_heads=[1, 2]" in caplog.text
    model = TINY(path, image_size=(13, 9))
    table = load_file(path)["pos_embed"][0].transpose(1, 2, 0)
    found = to_numpy(model.get_layer("position_embedding").table)[0]
    expected = resample_grid(table, (5, 3), "bicubic_antialias")
    np.testing.assert_allclose(found, expected, atol=1e-6)


@on_last_backend
def test_the_configuration_states_stride_heads_and_size(tmp_path):
    model = small(stride=3, image_size=(11, 18), num_heads=[2, 4], distilled=True)
    args = {"img_size": [11, 18], "stride": 3, "heads": [2, 4]}
    written(model, tmp_path, architecture="pit_s_distilled_224", model_args=args)
    again = kerasvit.from_pretrained(tmp_path / "pit.safetensors")
    assert again.record["kwargs"] == model.record["kwargs"]


@on_last_backend
def test_names_of_the_authors(tmp_path):
    path = written(small(), tmp_path)
    tensors = load_file(path)
    old = {n.replace("transformers.1.pool", "pools.0"): t for n, t in tensors.items()}
    assert old.keys() != tensors.keys()
    save_file(old, tmp_path / "authors.safetensors")
    both = TINY(path), TINY(tmp_path / "authors.safetensors")
    for one, other in zip(*(model.get_weights() for model in both), strict=True):
        np.testing.assert_array_equal(one, other)


@on_last_backend
@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"global_pool": ""}, "pooling ''"),
        ({"norm_layer": "rms"}, "arguments norm_layer"),
        ({"img_size": [32, 32]}, "4 × 7 patches.*images of 32 × 32"),
        ({"stride": 5, "heads": [1, 2]}, "describes a model .*`stride`"),
        ({"heads": 3}, "describes a model .*`num_heads`"),
    ],
    ids=str,
)
def test_unsupported_arguments_of_timm_raise(args, message, tmp_path):
    path = written(small(), tmp_path, architecture="pit_s_224", model_args=args)
    with pytest.raises(kerasvit.CheckpointError, match=message):
        kerasvit.from_pretrained(path)


@on_last_backend
def test_a_file_of_another_variant_names_it(tmp_path):
    path = written(small(distilled=True), tmp_path)
    with pytest.raises(ValueError, match="distilled True, not False"):
        TINY(path)


@on_last_backend
def test_the_configuration_for_timm():
    config = TimmPiT().config(small(distilled=True).record)
    assert config["pretrained_cfg"]["classifier"] == ["head", "head_dist"]
    assert config["model_args"] == {
        "img_size": [10, 17],
        "patch_size": 4,
        "stride": 2,
        "base_dims": [8, 8],
        "depth": [1, 2],
        "heads": [1, 2],
        "mlp_ratio": 4.0,
        "distilled": True,
    }
    dynamic = kerasvit.resize(small(), (None, None)).record
    for record in (small(epsilon=1e-5).record, small(qkv_bias=False).record, dynamic):
        assert TimmPiT().config(record) is None


@on_last_backend
def test_patches_of_another_size(tmp_path):
    path = written(small(), tmp_path)
    model = TINY(path, patch_size=8, stride=3)
    assert model.get_layer("embedding").output.shape == (None, 1, 3, 8)
    assert model.get_layer("position_embedding").grid == (1, 3)
    assert TINY(path, patch_size=2).get_layer("position_embedding").grid == (5, 8)
