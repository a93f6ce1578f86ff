"""Files of three code bases are loaded completely or give one complete error."""

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit import CheckpointError
from kerasvit.arguments import patch_sides
from kerasvit.layers.resampling import resample_grid, resample_patches
from tests.contract import to_numpy
from tests.once import on_last_backend

GOLDEN = Path(__file__).parents[1] / "golden" / "models"
GOOGLE = GOLDEN / "vit_token" / "checkpoint.npz"
TIMM = GOLDEN / "timm_vit" / "model.safetensors"
HF = GOLDEN / "hf_vit" / "model.safetensors"
TOKEN = {"patch_size": 4, "width": 16, "depth": 2, "num_heads": 2, "mlp_dim": 32}
WIDE = {"patch_size": 4, "width": 24, "depth": 2, "num_heads": 3, "mlp_dim": 96}
HF_SIZES = {**WIDE, "mlp_dim": 40}


def variant(numbers):
    return kerasvit.Variant("Small", kerasvit.VisionTransformer, **numbers)


def google(path=GOOGLE, **changes):
    return variant(TOKEN)(path, **changes)


def timm(path=TIMM, **changes):
    return variant(WIDE)(path, **changes)


def expected(case):
    with np.load(GOLDEN / case / "expected.npz") as arrays:
        return np.load(GOLDEN / case / "input.npy"), arrays["logits_f64"]


def npz_with(tmp_path, change):
    with np.load(GOOGLE) as arrays:
        tensors = dict(arrays)
    change(tensors)
    path = tmp_path / "changed.npz"
    np.savez(path, **tensors)
    return path


def safetensors_with(tmp_path, change, source=TIMM):
    tensors = load_file(source)
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


# Settings that the file states.


@on_last_backend
def test_google_file_determines_the_arguments():
    record = google().record
    kwargs = record["kwargs"]
    assert record["origin"] == "vision_transformer"
    assert kwargs["image_size"] == [16, 16]
    assert kwargs["num_classes"] == 10
    assert (kwargs["activation"], kwargs["epsilon"]) == ("gelu_tanh", 1e-6)
    assert record["preprocessing"]["mode"] == "squash"
    assert not record["preprocessing"]["antialias"]


@on_last_backend
def test_timm_file_determines_the_arguments():
    record = timm().record
    assert record["origin"] == "timm"
    assert record["kwargs"]["num_classes"] == 7
    assert record["kwargs"]["activation"] == "gelu"
    assert record["preprocessing"]["crop"] == 0.9


@on_last_backend
def test_transformers_file_and_its_config():
    model = variant(HF_SIZES)(HF)
    assert model.record["origin"] == "transformers"
    assert model.record["kwargs"]["epsilon"] == 1e-12
    assert model.record["kwargs"]["image_size"] == [16, 16]


@on_last_backend
def test_transformers_labels_and_preprocessor(tmp_path):
    shutil.copy(HF, tmp_path)
    config = json.loads((HF.parent / "config.json").read_text())
    config["id2label"] = {str(i): f"name {i}" for i in range(6)}
    config["hidden_act"] = "gelu_new"
    (tmp_path / "config.json").write_text(json.dumps(config))
    fields = {"size": {"height": 16, "width": 16}, "image_mean": [0.4] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(fields))
    record = variant(HF_SIZES)(tmp_path).record
    assert record["label_names"] == [f"name {i}" for i in range(6)]
    assert record["kwargs"]["activation"] == "gelu_tanh"
    assert record["preprocessing"]["mean"] == [0.4] * 3


@on_last_backend
def test_timm_config_is_obeyed(tmp_path):
    shutil.copy(TIMM, tmp_path)
    config = {
        "architecture": "vit_tiny_patch16_224",
        "label_names": list("abcdefg"),
        "model_args": {"act_layer": "gelu_tanh", "img_size": 16},
        "pretrained_cfg": {
            "input_size": [3, 16, 16],
            "crop_pct": 1.0,
            "mean": [0.1] * 3,
        },
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    record = timm(tmp_path).record
    assert record["label_names"] == list("abcdefg")
    assert record["kwargs"]["activation"] == "gelu_tanh"
    assert record["preprocessing"]["mean"] == [0.1] * 3


@pytest.mark.slow
@on_last_backend
@pytest.mark.parametrize("prefix", ["opt/target/", "params/", "opt/target/params/"])
def test_prefixes_and_optimiser_state(tmp_path, prefix):
    def change(tensors):
        renamed = {prefix + name: array for name, array in tensors.items()}
        tensors.clear()
        tensors.update(renamed)
        if prefix.startswith("opt"):
            tensors["opt/state/param_states/cls/grad_ema"] = np.zeros((1, 1, 16))
            tensors["opt/state/step"] = np.array(3)
        else:
            tensors["opt/0/mu/cls"] = np.zeros((1, 1, 16))
            tensors["chrono/accum_train_time"] = np.array(3.0)

    images, logits = expected("vit_token")
    found = to_numpy(google(npz_with(tmp_path, change))(images))
    np.testing.assert_allclose(found, logits, atol=1e-4)


@on_last_backend
def test_both_spellings_of_a_block(tmp_path):
    names = {
        "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
        "LayerNorm_2": "LayerNorm_1",
        "MlpBlock_3": "MlpBlock_0",
    }

    def change(tensors):
        for name in list(tensors):
            for old, new in names.items():
                if old in name:
                    tensors[name.replace(old, new)] = tensors.pop(name)

    images, logits = expected("vit_token")
    found = to_numpy(google(npz_with(tmp_path, change))(images))
    np.testing.assert_allclose(found, logits, atol=1e-4)


@on_last_backend
def test_an_explicit_argument_wins():
    model = google(activation="gelu", epsilon=1e-5)
    assert model.record["kwargs"]["activation"] == "gelu"
    images, logits = expected("vit_token")
    assert np.abs(to_numpy(model(images)) - logits).max() > 1e-4


@on_last_backend
def test_transformers_pooler_is_pre_logits(tmp_path):
    def change(tensors):
        for name in list(tensors):
            array = tensors.pop(name)
            if not name.startswith("classifier"):
                tensors[name.removeprefix("vit.")] = array
        tensors["pooler.dense.weight"] = np.ones((24, 24), "float32")
        tensors["pooler.dense.bias"] = np.ones(24, "float32")

    model = variant(HF_SIZES)(safetensors_with(tmp_path, change, HF))
    assert model.record["kwargs"]["representation_size"] == 24
    assert model.record["kwargs"]["num_classes"] == 0
    assert model.output_shape == (None, 24)


# The head.


def test_another_number_of_classes_is_a_fresh_head_and_one_log_line(caplog):
    with caplog.at_level(logging.WARNING):
        model = google(num_classes=3)
    assert model.output_shape == (None, 3)
    assert not np.any(to_numpy(model.get_layer("head").kernel))
    lines = [line for line in caplog.messages if "head" in line]
    assert len(lines) == 1 and "3 classes" in lines[0] and "10" in lines[0]
    assert np.any(to_numpy(model.get_layer("encoder_norm").gamma) != 1)


def test_the_same_number_keeps_the_head(caplog):
    model = google(num_classes=10)
    assert np.any(to_numpy(model.get_layer("head").kernel))
    assert not [line for line in caplog.messages if "head" in line]


def test_no_classes_leave_the_head_off():
    assert google(num_classes=0).output_shape == (None, 16)


@on_last_backend
def test_file_without_a_head(tmp_path):
    def change(tensors):
        del tensors["head/kernel"], tensors["head/bias"]

    path = npz_with(tmp_path, change)
    assert google(path).output_shape == (None, 16)
    assert google(path, num_classes=4).output_shape == (None, 4)


@on_last_backend
def test_pre_logits_can_be_omitted():
    numbers = {**TOKEN, "width": 24, "num_heads": 3, "mlp_dim": 40}
    path = GOLDEN / "vit_token_rep" / "checkpoint.npz"
    whole = variant(numbers)(path)
    assert whole.record["kwargs"]["representation_size"] == 12
    model = variant(numbers)(path, representation_size=0, num_classes=4)
    assert model.get_layer("head").input.shape == (None, 24)


# Resolution.


@pytest.mark.parametrize(
    "kernel, call, path",
    [
        ("corner_linear", google, "Transformer/posembed_input/pos_embedding"),
        ("bicubic_antialias", timm, "pos_embed"),
    ],
)
@pytest.mark.parametrize("size", [24, (8, 20)])
def test_another_size_resamples_with_the_kernel_of_the_origin(kernel, call, path, size):
    model = call(image_size=size)
    file = dict(np.load(GOOGLE)) if call is google else load_file(TIMM)
    table = file[path][0]
    grid = (
        (size // 4, size // 4)
        if isinstance(size, int)
        else (size[0] // 4, size[1] // 4)
    )
    cells = resample_grid(table[1:].reshape(4, 4, -1), grid, kernel)
    found = to_numpy(model.get_layer("position_embedding").table)[0]
    np.testing.assert_array_equal(found[0], table[0])
    np.testing.assert_allclose(found[1:], cells.reshape(-1, table.shape[1]), atol=1e-6)
    assert model.record["preprocessing"]["size"] == [grid[0] * 4, grid[1] * 4]


@on_last_backend
def test_the_caller_may_name_the_kernel():
    models = google(image_size=24), google(image_size=24, kernel="bilinear")
    tables = [to_numpy(m.get_layer("position_embedding").table) for m in models]
    assert np.abs(tables[0] - tables[1]).max() > 1e-3
    with pytest.raises(ValueError, match="bicubic_antialias.*nearest"):
        google(image_size=24, kernel="nearest")


@on_last_backend
def test_a_square_table_gives_the_image_size():
    assert google().input_shape == (None, 16, 16, 3)


RECT = GOLDEN / "vit_token_rect" / "checkpoint.npz"
RECT_SIZES = {**TOKEN, "width": 12, "num_heads": 3, "mlp_dim": 20}


@on_last_backend
def test_a_table_that_is_no_square_asks_for_its_grid():
    with pytest.raises(ValueError, match=r"source_grid=\(height, width\)"):
        variant(RECT_SIZES)(RECT)


@pytest.mark.slow
@on_last_backend
def test_the_requested_grid_is_used():
    model = variant(RECT_SIZES)(RECT, source_grid=(4, 6))
    assert model.input_shape == (None, 16, 24, 3)
    images, logits = expected("vit_token_rect")
    np.testing.assert_allclose(to_numpy(model(images)), logits, atol=1e-4)


def test_a_grid_that_is_no_square_to_another_size():
    model = variant(RECT_SIZES)(RECT, source_grid=(4, 6), image_size=(24, 8))
    with np.load(RECT) as arrays:
        table = arrays["Transformer/posembed_input/pos_embedding"][0]
    cells = resample_grid(table[1:].reshape(4, 6, -1), (6, 2), "corner_linear")
    found = to_numpy(model.get_layer("position_embedding").table)[0, 1:]
    np.testing.assert_allclose(found, cells.reshape(12, -1), atol=1e-6)


@on_last_backend
def test_the_models_own_grid_when_the_counts_agree():
    model = variant(RECT_SIZES)(RECT, image_size=(16, 24))
    images, logits = expected("vit_token_rect")
    np.testing.assert_allclose(to_numpy(model(images)), logits, atol=1e-4)


@on_last_backend
def test_a_wrong_grid():
    with pytest.raises(ValueError, match="24. Received: 5 × 5"):
        variant(RECT_SIZES)(RECT, source_grid=(5, 5))


# One complete error and no partly loaded model.


@on_last_backend
def test_missing_unexpected_and_misshaped_are_listed_together(tmp_path):
    def change(tensors):
        del tensors["cls"]
        tensors["cls"] = np.zeros((1, 1, 17), "float32")
        del tensors["Transformer/encoder_norm/bias"]
        tensors["surprise"] = np.zeros(3, "float32")

    with pytest.raises(CheckpointError) as caught:
        google(npz_with(tmp_path, change))
    text = str(caught.value)
    assert "missing in the file (1)" in text and "Transformer/encoder_norm/bias" in text
    assert "unexpected" in text and "surprise (3,)" in text
    assert "mis-shaped (1)" in text and "cls (1, 1, 17)" in text
    assert "nothing was loaded" in text


@on_last_backend
@pytest.mark.parametrize("shape", [(71, 24), (72,), (72, 24, 1), (0,)])
def test_a_tensor_that_cannot_be_split_is_misshaped(tmp_path, shape):
    def change(tensors):
        tensors["blocks.1.attn.qkv.weight"] = np.zeros(shape, "float32")

    with pytest.raises(CheckpointError, match="mis-shaped") as caught:
        timm(safetensors_with(tmp_path, change))
    assert "blocks.1.attn.qkv.weight" in str(caught.value)


@on_last_backend
def test_a_wrong_architecture_names_the_matching_one(tmp_path):
    with pytest.raises(CheckpointError) as caught:
        kerasvit.ViTTi16(TIMM)
    text = str(caught.value)
    assert "width 24, not 192" in text and "patch_size 4, not 16" in text
    assert len(text) < 500


@pytest.mark.slow
@on_last_backend
def test_the_variant_that_fits_is_named(tmp_path):
    model = kerasvit.ViTS32(depth=12, image_size=32, num_classes=2)
    kerasvit.save_pretrained(model, tmp_path)
    with pytest.raises(CheckpointError, match="weights of a ViTS32, not of ViTB16"):
        kerasvit.ViTB16(tmp_path)


@on_last_backend
def test_wrong_number_of_heads_is_noticed():
    with pytest.raises(CheckpointError, match="num_heads 2, not 4"):
        variant({**TOKEN, "num_heads": 4})(GOOGLE)


@on_last_backend
def test_an_explicit_number_wins_over_the_variants():
    model = variant({**TOKEN, "num_heads": 4})(GOOGLE, num_heads=2)
    images, logits = expected("vit_token")
    np.testing.assert_allclose(to_numpy(model(images)), logits, atol=1e-4)


def timm_config(tmp_path, change=lambda tensors: None, **config):
    safetensors_with(tmp_path, change)
    config = {"architecture": "vit_tiny_patch16_224", **config}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@on_last_backend
def test_heads_of_a_timm_config_are_noticed(tmp_path):
    with pytest.raises(CheckpointError, match="num_heads 4, not 3"):
        timm(timm_config(tmp_path, model_args={"num_heads": 4}))


@on_last_backend
@pytest.mark.parametrize("pooling", ["max", "avgmax", "", 3])
def test_poolings_of_timm_that_are_not_built(tmp_path, pooling):
    with pytest.raises(CheckpointError, match="pooling"):
        timm(timm_config(tmp_path, global_pool=pooling))


@on_last_backend
def test_token_pooling_with_its_norm_behind(tmp_path):
    # timm's fc_norm=True: the token is taken first; the same, as it is one token.
    def rename(tensors):
        for part in ("weight", "bias"):
            tensors[f"fc_norm.{part}"] = tensors.pop(f"norm.{part}")

    model = timm(timm_config(tmp_path, rename, global_pool="token"))
    images, logits = expected("timm_vit")
    np.testing.assert_allclose(to_numpy(model(images)), logits, atol=1e-4)


@on_last_backend
def test_average_of_a_model_with_a_class_token(tmp_path):
    model = timm(timm_config(tmp_path, global_pool="avg"))
    assert model.record["kwargs"]["pool"] == "average"
    assert model.record["kwargs"]["class_token"]


@on_last_backend
def test_registers_of_a_timm_config_have_rows_by_default(tmp_path):
    def add(tensors):
        tensors["reg_token"] = np.zeros((1, 2, 24), "float32")
        table = tensors["pos_embed"]
        tensors["pos_embed"] = np.concatenate([table[:, :1], table[:, :1], table], 1)

    args = {"reg_tokens": 2, "img_size": 16}
    model = timm(timm_config(tmp_path, add, model_args=args))
    assert model.record["kwargs"]["positions"] == "tokens"
    args["no_embed_class"] = True
    with pytest.raises(CheckpointError, match="19 patch rows.*`positions`"):
        timm(timm_config(tmp_path, add, model_args=args))


@on_last_backend
@pytest.mark.parametrize("size", [[3, 224, 224], None])
def test_the_table_wins_over_an_input_size_that_cannot_be(tmp_path, size):
    # timm wrote the default of the architecture there, not the model's value.
    cfg = {"input_size": size}
    assert timm(timm_config(tmp_path, pretrained_cfg=cfg)).input_shape[1:3] == (16, 16)


@on_last_backend
def test_a_table_for_another_image_than_the_configuration_names(tmp_path):
    folder = timm_config(tmp_path, model_args={"img_size": [8, 24]})
    with pytest.raises(CheckpointError, match="16 patch rows.*8 × 24.*`source_grid`"):
        timm(folder)
    assert timm(folder, source_grid=(4, 4)).input_shape[1:3] == (16, 16)


@on_last_backend
def test_label_names_can_be_a_dict(tmp_path):
    names = {str(i): f"name {i}" for i in range(7)}
    model = timm(timm_config(tmp_path, label_names=names))
    assert model.record["label_names"] == [f"name {i}" for i in range(7)]


@on_last_backend
@pytest.mark.parametrize("names", [["a"], "abcdefg", {"x": "y"}])
def test_names_that_are_not_as_many_as_the_classes(tmp_path, names):
    with pytest.raises(CheckpointError):
        timm(timm_config(tmp_path, label_names=names))


@on_last_backend
@pytest.mark.parametrize(
    "config",
    [
        {"model_args": [1]},
        {"model_args": {"img_size": 16.0}},
        {"pretrained_cfg": {"input_size": 3}},
        {"pretrained_cfg": [1]},
        {"model_args": {"act_layer": "relu"}},
    ],
    ids=str,
)
def test_an_odd_timm_config_is_a_value_error(tmp_path, config):
    with pytest.raises(ValueError):
        timm(timm_config(tmp_path, **config))


@on_last_backend
@pytest.mark.parametrize(
    "change",
    [
        {"hidden_act": "relu"},
        {"hidden_act": "mish"},
        {"id2label": [1]},
        {"layer_norm_eps": "x"},
        {"image_size": 16.0},
        {"num_attention_heads": 4},
    ],
    ids=str,
)
def test_an_odd_transformers_config_is_a_value_error(tmp_path, change):
    shutil.copy(HF, tmp_path)
    config = json.loads((HF.parent / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ValueError):
        variant(HF_SIZES)(tmp_path)


@on_last_backend
@pytest.mark.parametrize("grid", [4, "ab", (4.0, 6.0), (4, 6, 1), (-4, -6)])
def test_an_invalid_grid_raises(grid):
    with pytest.raises(ValueError, match="`source_grid`"):
        variant(RECT_SIZES)(RECT, source_grid=grid)


@on_last_backend
def test_a_misspelled_kernel_always_raises():
    with pytest.raises(ValueError, match="`kernel`.*bicubik"):
        google(kernel="bicubik")


@on_last_backend
@pytest.mark.parametrize("size", [0, -4, "16", 16.0, (16, 16, 3)])
@pytest.mark.parametrize("weights", [None, GOOGLE])
def test_a_wrong_image_size_is_called_by_its_name(size, weights):
    with pytest.raises(ValueError, match="`image_size`"):
        variant(TOKEN)(weights, image_size=size)


@on_last_backend
def test_names_of_no_code_base(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"conv1.weight": np.zeros(3, "float32")}, path)
    with pytest.raises(CheckpointError, match="conv1.weight.*timm"):
        timm(path)


@on_last_backend
def test_part_of_a_model(tmp_path):
    def change(tensors):
        for name in list(tensors):
            if "mlp" in name:
                del tensors[name]

    with pytest.raises(CheckpointError, match="not a complete model"):
        timm(safetensors_with(tmp_path, change))


@on_last_backend
def test_a_file_of_nan(tmp_path):
    def change(tensors):
        tensors["cls_token"] = np.full((1, 1, 24), np.nan, "float32")

    with pytest.raises(CheckpointError, match="cls_token.*NaN|NaN.*cls_token"):
        timm(safetensors_with(tmp_path, change))


@on_last_backend
@pytest.mark.parametrize("weights", ["miil", "imagenet-21k", "same"])
def test_unknown_tag(weights):
    with pytest.raises(CheckpointError, match=f"ViTB16 has no weights '{weights}'"):
        kerasvit.ViTB16(weights)


@on_last_backend
@pytest.mark.parametrize("weights", [3, b"x", ["a.npz"], ""])
def test_an_invalid_type_of_weights_raises(weights):
    with pytest.raises(CheckpointError, match="must be a tag, a path"):
        kerasvit.ViTB16(weights)


@on_last_backend
def test_unknown_argument():
    with pytest.raises(ValueError, match="no argument hidden_size.*width"):
        kerasvit.ViTB16(hidden_size=3)


@on_last_backend
def test_folder_without_weights(tmp_path):
    with pytest.raises(CheckpointError, match="no model.safetensors"):
        kerasvit.ViTB16(tmp_path)


@on_last_backend
def test_config_that_is_no_json(tmp_path):
    shutil.copy(TIMM, tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not JSON"):
        timm(tmp_path)


# Patches of another size.


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 8, (8, 2)])
def test_patches_are_resampled_to_the_size_that_the_caller_states(size):
    """A model whose table is resampled too is that of timm's function."""
    sides = patch_sides(size)
    image = [4 * side for side in sides]  # as many patches: the table stays
    model = variant(WIDE)(TIMM, patch_size=size, image_size=image)
    kernel = timm().get_layer("embedding").kernel
    expected = resample_patches(to_numpy(kernel), sides, "bicubic_antialias")
    found = to_numpy(model.get_layer("embedding").kernel)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    kept = size if isinstance(size, int) else [*size]
    assert model.record["kwargs"]["patch_size"] == kept
    np.testing.assert_array_equal(
        to_numpy(model.get_layer("position_embedding").table),
        to_numpy(timm().get_layer("position_embedding").table),
    )


@on_last_backend
def test_smaller_patches_of_the_same_image_resample_the_table():
    model = variant(WIDE)(TIMM, patch_size=2)
    assert model.record["kwargs"]["image_size"] == [16, 16]
    table = to_numpy(timm().get_layer("position_embedding").table)
    layer = model.get_layer("position_embedding")
    expected = layer.resample(table, source_grid=(4, 4))
    np.testing.assert_allclose(to_numpy(layer.table), expected, rtol=0, atol=1e-6)


@on_last_backend
@pytest.mark.parametrize(
    "patch_size, message",
    [
        (5, "a multiple of the patch size, 5. Received: 16 × 16. The nearest"),
        (
            0,
            r"`patch_size` must be a whole number in \[1, 1024\], or \(height, width\)",
        ),
        ("4", r"`patch_size` must be a whole number in \[1, 1024\], or"),
        ((4, 0), r"`patch_size` must be a whole number in \[1, 1024\]. Received: .*0"),
        ((4, 4, 4), r"`patch_size` must be a whole number in \[1, 1024\], or"),
        ((4, 3), "a multiple of the patch size, 4 × 3. Received: 16 × 16"),
    ],
)
def test_wrong_sizes_of_patches(patch_size, message):
    with pytest.raises(kerasvit.arguments.ArgumentError, match=message):
        timm(patch_size=patch_size)


def test_sizes_are_numbers_of_numpy_too():
    model = timm(patch_size=np.int64(8), channels=np.int64(1), image_size=32)
    assert model.record["kwargs"]["patch_size"] == 8
    assert model.record["kwargs"]["channels"] == 1


# Images with other than three channels.


def test_more_channels_than_any_image_has():
    message = r"`channels` must be a whole number in \[1, 1000\]"
    with pytest.raises(kerasvit.arguments.ArgumentError, match=message):
        timm(channels=10**30)


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_the_first_kernel_is_fitted_to_the_channels(channels):
    """As timm/models/_manipulate.py `adapt_input_conv`."""
    kernel = to_numpy(timm().get_layer("embedding").kernel)
    if channels == 1:
        expected = kernel.sum(axis=2, keepdims=True)
    else:
        repeated = np.concatenate([kernel, kernel], axis=2)[:, :, :channels]
        expected = repeated * 3 / channels
    model = timm(channels=channels)
    found = to_numpy(model.get_layer("embedding").kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    assert model.input_shape == (None, 16, 16, channels)
    assert model.preprocessing.mean == (0.5,) * channels


@on_last_backend
def test_channels_and_patches_change_together():
    kernel = to_numpy(timm().get_layer("embedding").kernel).sum(axis=2, keepdims=True)
    model = timm(channels=1, patch_size=8, image_size=32)
    expected = resample_patches(kernel, (8, 8), "bicubic_antialias")
    found = to_numpy(model.get_layer("embedding").kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@on_last_backend
@pytest.mark.parametrize("saved", [True, False])
def test_a_file_with_other_channels_keeps_them(saved, tmp_path):
    model = timm(channels=4, include_preprocessing=True)
    kerasvit.save_pretrained(model, tmp_path / "saved")
    path = tmp_path / "saved"
    if not saved:  # timm's names without our record
        path = path / "model.safetensors"
        path.rename(tmp_path / "model.safetensors")
        path = tmp_path / "model.safetensors"
    found = timm(path)
    assert found.input_shape == (None, 16, 16, 4)
    np.testing.assert_array_equal(
        to_numpy(found.get_layer("embedding").kernel),
        to_numpy(model.get_layer("embedding").kernel),
    )
    if saved:
        assert found.preprocessing == model.preprocessing
        config = json.loads((path / "config.json").read_text())
        assert config["model_args"]["in_chans"] == 4
        assert config["pretrained_cfg"]["input_size"] == [4, 16, 16]


@on_last_backend
def test_a_built_in_normalisation_is_fitted_to_the_channels(tmp_path):
    kerasvit.save_pretrained(timm(include_preprocessing=True), tmp_path)
    found = kerasvit.from_pretrained(tmp_path, channels=2)
    assert len(found.record["kwargs"]["normalization"]["mean"]) == 2


@on_last_backend
@pytest.mark.parametrize("channels", [0, 1.5, "3"])
def test_wrong_numbers_of_channels(channels):
    with pytest.raises(ValueError, match="`channels` must be a whole number"):
        timm(channels=channels)


@on_last_backend
def test_a_stated_transform_is_for_the_channels(caplog):
    with caplog.at_level("WARNING", "kerasvit"):
        found = timm(channels=4, preprocessing={"value_range": (0, 4095)})
        fresh = timm(None, channels=4, preprocessing={"mean": 0.1, "std": 0.2})
    assert "averages" not in caplog.text
    assert found.preprocessing.value_range == (0, 4095)
    assert found.preprocessing.mean == (0.5,) * 4
    assert fresh.preprocessing.mean == (0.1,) * 4
    with pytest.raises(ValueError, match="of 3 channels, and the model takes 4"):
        timm(channels=4, preprocessing={"mean": [0.1, 0.2, 0.3]})


@on_last_backend
def test_means_of_other_channels_are_said_to_be_averages(caplog):
    with caplog.at_level("WARNING", "kerasvit"):
        timm(channels=4)
    assert "averages over those of the 3 channels of the weights" in caplog.text
