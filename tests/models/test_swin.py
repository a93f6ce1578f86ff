import json
import re
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit.checkpoints.sources.timm_swin import TimmSwin
from kerasvit.layers.resampling import resample_grid
from tests.contract import call, check_key_map, to_numpy
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

from .counting import outlined

pytestmark = pytest.mark.slow

TIMM_KEYS = Path(__file__).parents[1] / "golden" / "timm_keys"
NUMBERS = {"width": 8, "depths": [2, 2], "num_heads": [1, 2]}
# Maps of 4 × 8 and 2 × 4 cells: the last stage's windows shrink to 2 × 4.
SMALL = {**NUMBERS, "window_size": 4, "image_size": (16, 32), "num_classes": 5}
TINY = kerasvit.Variant(None, kerasvit.SwinTransformer, **NUMBERS)


def small(**changes):
    model = TINY(**{**SMALL, **changes})
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape, scale=0.3) for w in model.weights])
    return model


def images(height=16, width=32):
    shape = (2, height, width, 3)
    return np.random.default_rng(1).normal(size=shape).astype("float32")


@pytest.mark.parametrize(
    "changes",
    mainly_on_last(
        [
            {"normalization": {"mean": [0.5] * 3, "std": [0.25] * 3}},
            {"qkv_bias": False, "mlp_ratio": 2.6, "epsilon": 1e-3},  # not timm's
            {"num_classes": 0, "dropout": 0.1, "stochastic_depth": 0.1},
        ]
    ),
    ids=str,
)
def test_files_give_the_same_logits_and_record(changes, tmp_path):
    model, x = small(**changes), images()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.record == model.record
    np.testing.assert_allclose(
        to_numpy(call(again, x)), to_numpy(call(model, x)), atol=1e-5
    )
    kerasvit.save_pretrained(model, tmp_path / "folder")
    again = kerasvit.from_pretrained(tmp_path / "folder")
    assert again.record["kwargs"] == model.record["kwargs"]
    np.testing.assert_allclose(
        to_numpy(call(again, x)), to_numpy(call(model, x)), atol=1e-5
    )


def test_paths_are_those_of_the_checkpoint_format():
    assert {
        "embedding/kernel",
        "embedding_norm/gamma",
        "stage_0_block_1/attention/position_bias",
        "stage_0_block_1/attention/query/kernel",
        "stage_1_merging/norm/gamma",
        "stage_1_merging/reduction/kernel",
        "stage_1_block_0/mlp/dense_0/bias",
        "encoder_norm/beta",
        "head/bias",
    } <= {w.path for w in small().weights}


def test_every_other_block_is_shifted_where_the_map_is_larger():
    model = small()
    shifts = {
        layer.name: layer.attention.shift
        for layer in model.layers
        if layer.name.startswith("stage") and "block" in layer.name
    }
    assert shifts == {
        "stage_0_block_0": (0, 0),
        "stage_0_block_1": (0, 2),
        "stage_1_block_0": (0, 0),
        "stage_1_block_1": (0, 0),
    }


def test_features_are_the_input_of_the_head():
    model, x = small(), images()
    features = TINY(**{**SMALL, "num_classes": 0})
    features.set_weights(model.get_weights()[:-2])
    kernel, bias = model.get_weights()[-2:]
    found = to_numpy(call(features, x)) @ kernel + bias
    np.testing.assert_allclose(to_numpy(call(model, x)), found, atol=1e-5)


def test_mixed_bfloat16_is_near_and_ends_in_float32():
    exact = to_numpy(call(small(), images()))
    keras.config.set_dtype_policy("mixed_bfloat16")
    logits = call(small(), images())
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert np.abs(to_numpy(logits) - exact).max() < 0.05 * np.abs(exact).max()


@long_elsewhere
def test_one_compiled_step_inside_sam():
    numbers = {**NUMBERS, "depths": [2, 1]}
    model = small(**numbers, stochastic_depth=0.1)
    before = [w.copy() for w in model.get_weights()]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    compiled = keras.backend.backend() != "torch"
    trainer = kerasvit.SAM(model, rho=0.05)
    trainer.compile("sgd", loss, jit_compile=compiled)
    history = trainer.fit(images(), np.zeros(2), verbose=0)
    assert np.isfinite(history.history["loss"][0])
    for weight, old in zip(model.weights, before, strict=True):
        moved = np.abs(to_numpy(weight) - old).max()
        assert moved > 0 or weight.path.endswith(("key/bias", "_state")), weight.path


# --- image and window sizes


@on_last_backend
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"image_size": 225}, "a multiple of 224.*225 × 225.*224 × 224"),
        ({"image_size": (384, 500)}, "nearest that fits is 448 × 448"),
        (
            {"image_size": 200, "window_size": 12},
            "a multiple of 384, or 32, 96, 192. Received: 200 × 200.*192 × 192",
        ),
        ({"image_size": 224, "patch_size": 7}, "nearest that fits is 392 × 392"),
        ({"window_size": 0}, "`window_size`"),
        ({"window_size": (7, 7)}, "`window_size`"),
        ({"window_size": [7, 7, 14, 0]}, "`window_size`"),
        (
            {"window_size": [7, 7, 14, 7], "image_size": 256},
            r"windows of \[7, 7, 14, 7\].*a multiple of 224. .*nearest.*224 × 224",
        ),
        (
            {"window_size": [7, 7, 7, 14], "image_size": 300},
            "a multiple of 448, or 224.*nearest that fits is 224 × 224",
        ),
        ({"depths": [2, 2]}, "`num_heads` must be a list of 2"),
        ({"depths": 2}, "`depths`"),
        ({"num_heads": [3, 6, 12, 25]}, "`num_heads` must divide"),
        ({"mlp_ratio": 0}, "`mlp_ratio`"),
        ({"mlp_ratio": "4"}, "`mlp_ratio`"),
        ({"width": 0}, "`width`"),
        ({"stochastic_depth": 1}, "`stochastic_depth`"),
        ({"epsilon": -1}, "`epsilon`"),
        ({"qkv_bias": 2}, "`qkv_bias`"),
    ],
    ids=str,
)
def test_a_wrong_argument_suggests_the_right_one(changes, message):
    with pytest.raises(ValueError, match=message):
        kerasvit.SwinT(**changes)


@on_last_backend
@pytest.mark.parametrize("size", [32, 96, (32, 192)])
def test_sizes_that_the_error_names_do_fit(size):
    numbers = {"width": 2, "depths": [1] * 4, "num_heads": [1] * 4}
    model = kerasvit.SwinTransformer(**numbers, window_size=12, image_size=size)
    assert model.output_shape == (None, 1000)


def test_resize_resamples_the_tables_of_windows_that_change():
    model = small()  # maps of 4 × 8, 2 × 4
    larger = kerasvit.resize(model, (32, 32))  # of 8 × 8, 4 × 4
    assert larger.record["kwargs"]["image_size"] == [32, 32]
    old, new = ({w.path: to_numpy(w) for w in m.weights} for m in (model, larger))
    for path, values in new.items():
        if path.startswith("stage_1") and path.endswith("position_bias"):
            expected = resample_grid(
                old[path].reshape(3, 7, 2), (7, 7), "geometric_linear"
            )
            np.testing.assert_allclose(values, expected.reshape(49, 2), atol=1e-6)
        else:
            np.testing.assert_array_equal(values, old[path])
    assert larger.predict(images(32, 32), verbose=0).shape == (2, 5)


# --- timm's files


def written(model, folder, **config):
    """Writes a model in timm's format; `config` gives the fields of config.json."""
    tensors = check_key_map(TimmSwin().key_map(model.record["kwargs"]), model)
    folder.mkdir(exist_ok=True)
    path = folder / "swin.safetensors"
    tensors = {name: np.ascontiguousarray(t) for name, t in tensors.items()}
    save_file(tensors, path)
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return path


@on_last_backend
def test_a_bare_file_determines_window_and_image_size(tmp_path):
    square = small(image_size=32, mlp_ratio=3.3)
    kwargs = TINY(written(square, tmp_path)).record["kwargs"]
    assert kwargs == {**square.record["kwargs"], "mlp_ratio": 52 / 16}


@on_last_backend
def test_windows_determine_the_image_size_before_the_preprocessing(tmp_path):
    config = {"pretrained_cfg": {"input_size": [3, 56, 56], "crop_pct": 0.5}}
    record = TINY(written(small(image_size=32), tmp_path, **config)).record
    assert record["kwargs"]["image_size"] == record["preprocessing"]["size"] == [32, 32]
    assert record["preprocessing"]["crop"] == 0.5


@on_last_backend
def test_a_larger_window_is_resampled_on_request_only(tmp_path):
    path = written(small(image_size=32), tmp_path)
    with pytest.raises(ValueError, match="another `window_size`"):
        TINY(path, image_size=48)
    model = TINY(path, image_size=48, window_size=6)
    table = load_file(path)["layers.1.blocks.1.attn.relative_position_bias_table"]
    expected = resample_grid(table.reshape(7, 7, 2), (11, 11), "geometric_linear")
    found = to_numpy(model.get_layer("stage_1_block_1").attention.position_bias)
    np.testing.assert_allclose(found, expected.reshape(121, 2), atol=1e-6)
    cubic = TINY(path, image_size=48, window_size=6, kernel="bicubic")
    found = to_numpy(cubic.get_layer("stage_1_block_1").attention.position_bias)
    expected = resample_grid(table.reshape(7, 7, 2), (11, 11), "bicubic")
    np.testing.assert_allclose(found, expected.reshape(121, 2), atol=1e-6)


@on_last_backend
def test_windows_that_are_no_squares_need_the_configuration(tmp_path):
    model = small(window_size=8)  # windows of 4 × 8 and 2 × 4
    config = {"model_args": {"img_size": [16, 32], "window_size": [8, 8]}}
    loaded = TINY(written(model, tmp_path, **config))
    assert loaded.record["kwargs"] == model.record["kwargs"]


@on_last_backend
def test_buffers_of_older_files_and_microsofts_names(tmp_path):
    path = written(small(image_size=32), tmp_path)
    model = TINY(path)
    tensors = load_file(path)
    old = {
        name.replace("layers.1.downsample", "layers.0.downsample").replace(
            "head.fc", "head"
        ): tensor
        for name, tensor in tensors.items()
    }
    for block in ("layers.0.blocks.1", "layers.1.blocks.0"):
        old[f"{block}.attn_mask"] = np.zeros((4, 16, 16), "float32")
        old[f"{block}.attn.relative_position_index"] = np.zeros((16, 16), "int32")
    save_file(old, tmp_path / "microsoft.safetensors")
    again = TINY(tmp_path / "microsoft.safetensors")
    for weight, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), to_numpy(other))


@on_last_backend
@pytest.mark.parametrize(
    "args",
    [
        {"window_size": [4, 4, 8, 4]},
        {"window_size": [4, 8]},
        {"global_pool": "max"},
        {"always_partition": True},
    ],
    ids=str,
)
def test_unsupported_arguments_of_timm_raise(args, tmp_path):
    path = written(small(image_size=32), tmp_path, model_args=args)
    with pytest.raises(kerasvit.CheckpointError, match=next(iter(args))[:6]):
        TINY(path)


@on_last_backend
def test_a_size_that_timm_pads_names_the_file(tmp_path):
    args = {"img_size": 40, "window_size": 4}
    path = written(small(image_size=32), tmp_path, model_args=args)
    message = f"{re.escape(str(path))}.*`image_size`.*40 ×"
    with pytest.raises(kerasvit.CheckpointError, match=message):
        TINY(path)
    with pytest.raises(ValueError, match="^`image_size`.*24 ×"):  # the caller's
        TINY(path, image_size=24)


@on_last_backend
def test_a_bare_file_determines_the_window_of_each_stage(tmp_path):
    model = small(image_size=64, window_size=[4, 8])  # maps of 16 × 16 and 8 × 8
    made = TINY(written(model, tmp_path))
    assert made.record["kwargs"]["window_size"] == [4, 8]
    assert made.record["kwargs"]["image_size"] == [64, 64]
    resized = kerasvit.resize(made, 128)
    assert resized.record["kwargs"]["window_size"] == [4, 8]


@on_last_backend
def test_windows_of_one_size_are_one_number():
    assert small(window_size=[4, 4]).record["kwargs"]["window_size"] == 4


@on_last_backend
def test_another_window_for_each_stage_of_a_file(tmp_path):
    path = written(small(image_size=32), tmp_path)  # windows of 4 in maps of 8 and 4
    model = TINY(path, window_size=[8, 4])
    layers = [model.get_layer(f"stage_{i}_block_0").attention for i in range(2)]
    assert [layer.window for layer in layers] == [(8, 8), (4, 4)]


@on_last_backend
def test_a_file_of_another_variant_names_it(tmp_path):
    numbers = {**NUMBERS, "depths": [2, 1]}
    other = kerasvit.Variant(None, kerasvit.SwinTransformer, **numbers)
    path = written(small(image_size=32), tmp_path)
    with pytest.raises(ValueError, match=r"depths \[2, 2\], not \[2, 1\]"):
        other(path)
    with pytest.raises(ValueError, match="holds a SwinTransformer"):
        kerasvit.ViTTi16(path)


@on_last_backend
def test_preprocessing_of_a_bare_file(tmp_path):
    row = kerasvit.Variant(
        None, kerasvit.SwinTransformer, evaluation=kerasvit.SwinT.evaluation, **NUMBERS
    )
    path = written(small(image_size=32), tmp_path)
    transform = row.preprocessing(path)
    assert transform.mean == (0.485, 0.456, 0.406)
    assert (transform.size, transform.crop) == ((32, 32), 0.9)
    path = written(small(image_size=384, window_size=12, patch_size=16), tmp_path)
    transform = row.preprocessing(path)
    assert (transform.size, transform.crop) == ((384, 384), 1.0)


@on_last_backend
def test_the_configuration_for_timm():
    config = TimmSwin().config(small().record)
    assert config["model_args"] == {
        "img_size": [16, 32],
        "patch_size": 4,
        "window_size": 4,
        "embed_dim": 8,
        "depths": [2, 2],
        "num_heads": [1, 2],
        "mlp_ratio": 4.0,
        "qkv_bias": True,
    }
    assert TimmSwin().config(small(epsilon=1e-6).record) is None


@on_last_backend
@pytest.mark.parametrize("name", ["SwinT", "SwinS", "SwinB", "SwinL"])
def test_names_and_shapes_are_those_of_timm(name):
    """Recorded: {name, j for a block of the stage: [shape, how many]}."""
    recorded = json.loads((TIMM_KEYS / f"{name}.json").read_text())
    depths = getattr(kerasvit, name).numbers["depths"]
    model = outlined(name, depths=[1] * 4)
    key_map = TimmSwin().key_map(model.record["kwargs"])
    tensors = key_map.write({w.path: np.zeros(w.shape, "int8") for w in model.weights})
    found = {}
    for key, tensor in tensors.items():
        stage = int(key.split(".")[1]) if ".blocks." in key else None
        count = 1 if stage is None else depths[stage]
        found[key.replace("blocks.0", "blocks.{j}")] = [list(tensor.shape), count]
    assert found == recorded
