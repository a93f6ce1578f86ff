import json

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit import CheckpointError
from kerasvit.checkpoints.sources.timm_beit import TimmBEiT
from tests.contract import call, check_key_map, to_numpy
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

from .tiny import SMALL, VIT

pytestmark = pytest.mark.slow

NUMBERS = {**VIT, "depth": 2}
TINY = kerasvit.Variant(None, kerasvit.BEiTTransformer, **NUMBERS)
TABLE = "encoder_block_1/attention/position_bias/table"


def small(**changes):
    model = TINY(**{**SMALL, "image_size": (16, 24), **changes})
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape, scale=0.3) for w in model.weights])
    return model


def images(height=16, width=24):
    shape = (2, height, width, 3)
    return np.random.default_rng(1).normal(size=shape).astype("float32")


def same(one, other, x):
    found, expected = (to_numpy(call(model, x)) for model in (one, other))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    mainly_on_last(
        [
            {"layer_scale": 0.1, "stochastic_depth": 0.1},
            {"position_bias": "shared", "absolute_positions": True, "pool": "token"},
            {"final_norm": False, "num_classes": 0, "epsilon": 1e-3},  # not timm's
            {"image_size": (None, None)},
        ]
    ),
    ids=str,
)
def test_files_give_the_same_logits_and_record(changes, tmp_path):
    model, x = small(**changes), images()
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.record == model.record
    same(again, model, x)
    kerasvit.save_pretrained(model, tmp_path / "folder")
    again = kerasvit.from_pretrained(tmp_path / "folder")
    assert again.record["kwargs"] == model.record["kwargs"]
    same(again, model, x)


def test_paths_are_those_of_the_checkpoint_format():
    own = {w.path: tuple(w.shape) for w in small(layer_scale=0.1).weights}
    assert own[TABLE] == (7 * 11 + 3, 2)
    assert {
        *("class_token/tokens", "encoder_block_0/attention_scale", "encoder_norm/beta"),
        *("encoder_block_0/attention/query/bias", "encoder_block_1/mlp/dense_0/kernel"),
    } <= own.keys()
    assert "encoder_block_0/attention/key/bias" not in own
    shared = small(position_bias="shared", absolute_positions=True)
    paths = {w.path for w in shared.weights if w.path.endswith("/table")}
    assert paths == {"position_bias/table", "position_embedding/table"}


def test_mixed_bfloat16_is_near_and_ends_in_float32():
    exact = to_numpy(call(small(), images()))
    keras.config.set_dtype_policy("mixed_bfloat16")
    logits = call(small(), images())
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert np.abs(to_numpy(logits) - exact).max() < 0.05 * np.abs(exact).max()


@long_elsewhere
@pytest.mark.parametrize("position_bias", ["blocks", "shared"])
def test_a_step_of_sam_moves_the_tables(position_bias):
    model = small(position_bias=position_bias, image_size=(None, None))
    tables = [w for w in model.weights if w.path.endswith("position_bias/table")]
    before = [to_numpy(table) for table in tables]
    trainer = kerasvit.SAM(model, rho=0.05)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(keras.optimizers.SGD(0.1), loss)
    trainer.fit(images(8, 24), np.zeros(2), verbose=0)
    for table, old in zip(tables, before, strict=True):
        assert np.isfinite(to_numpy(table)).all()
        assert np.abs(to_numpy(table) - old).max() > 0


@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_bias": "block"}, "`position_bias` must be one of 'blocks'"),
        ({"pool": "attention"}, "`pool` must be one of 'token'"),
        ({"image_size": 18}, "multiple of the patch size, 4"),
        ({"image_size": (None, None), "resampling": {"kernel": "cubic"}}, "`kernel`"),
        ({"num_heads": 3}, "`num_heads`"),
        ({"init_values": 0.1}, "layer_scale=0.1"),
    ],
)
def test_a_wrong_argument_names_the_right_ones(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


@on_last_backend
def test_tables_of_any_size_have_timms_kernel():
    record = kerasvit.BEiTB16(depth=1, image_size=(None, None)).record
    table = {"image_size": [224, 224], "kernel": "geometric_linear"}
    assert record["kwargs"]["resampling"] == table


@on_last_backend
def test_another_kernel_is_that_of_both_tables(tmp_path):
    model = small(absolute_positions=True)
    kerasvit.save_pretrained(model, tmp_path)
    options = {"image_size": (24, 16), "kernel": "bilinear"}
    loaded = kerasvit.from_pretrained(tmp_path, **options)
    same(loaded, kerasvit.resize(model, (24, 16), kernel="bilinear"), images(24, 16))
    timm = kerasvit.resize(model, (24, 16))
    pairs = zip(timm.weights, loaded.weights, strict=True)
    tables = {a.path for a, b in pairs if not np.array_equal(to_numpy(a), to_numpy(b))}
    assert tables == {w.path for w in timm.weights if w.path.endswith("/table")}


def written(tmp_path, model):
    kerasvit.save_pretrained(model, tmp_path)
    return load_file(tmp_path / "model.safetensors")


@on_last_backend
def test_a_bare_file_of_squares_determines_the_size(tmp_path):
    tensors = written(tmp_path / "folder", small(image_size=24))
    save_file(tensors, tmp_path / "bare.safetensors")
    model = TINY(tmp_path / "bare.safetensors")
    assert model.input_shape == (None, 24, 24, 3)
    assert model.record["kwargs"]["pool"] == "average_then_norm"
    assert model.record["kwargs"]["num_heads"] == 2


@on_last_backend
def test_a_bare_file_of_a_rectangle(tmp_path):
    model = small()
    tensors, path = written(tmp_path / "folder", model), tmp_path / "bare.safetensors"
    save_file(tensors, path)
    same(TINY(path, image_size=(16, 24)), model, images())
    expected = kerasvit.resize(model, (8, 24))
    resized = TINY(path, image_size=(8, 24), source_grid=(4, 6))
    same(resized, expected, images(8, 24))
    with pytest.raises(ValueError, match="80 rows.*`source_grid"):
        TINY(path, image_size=(8, 24))


@on_last_backend
def test_a_size_that_is_not_that_of_the_table_raises(tmp_path):
    written(tmp_path, small(image_size=24))
    config = json.loads((tmp_path / "config.json").read_text())
    del config["kerasvit"]
    config["model_args"]["img_size"] = [16, 24]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="states images of 16 × 24"):
        kerasvit.from_pretrained(tmp_path)


@on_last_backend
def test_microsofts_files(tmp_path):
    """They hold indices, and a token for training; BEiT's pretraining has a head."""
    model = small(position_bias="shared", pool="token", image_size=16)
    tensors = written(tmp_path / "folder", model)
    tensors["rel_pos_bias.relative_position_index"] = np.zeros((17, 17), "int64")
    tensors["mask_token"] = np.ones((1, 1, 16), "float32")
    save_file(tensors, tmp_path / "bare.safetensors")
    again = TINY(tmp_path / "bare.safetensors")
    assert again.record["kwargs"]["pool"] == "token"
    same(again, model, images(16, 16))
    tensors["lm_head.weight"] = np.ones((8, 16), "float32")
    save_file(tensors, tmp_path / "pretraining.safetensors")
    with pytest.raises(CheckpointError, match="predicts masked patches"):
        TINY(tmp_path / "pretraining.safetensors")


@on_last_backend
@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"rope": True}, "the arguments rope, which kerasvit does not know"),
        ({"scale_mlp": True}, "scale_mlp=True"),
        ({"global_pool": "map"}, "pooling 'map'"),
    ],
)
def test_unsupported_arguments_of_timm_raise(args, message, tmp_path):
    written(tmp_path, small())
    config = json.loads((tmp_path / "config.json").read_text())
    del config["kerasvit"]
    config["model_args"] |= args
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        kerasvit.from_pretrained(tmp_path)


@on_last_backend
def test_the_configuration_for_timm():
    source = TimmBEiT()
    args = source.config(small(layer_scale=0.1, pool="average").record)["model_args"]
    assert (args["img_size"], args["init_values"]) == ([16, 24], 0.1)
    assert (args["use_rel_pos_bias"], args["use_shared_rel_pos_bias"]) == (True, False)
    assert (args["global_pool"], args["use_fc_norm"]) == ("avg", False)
    for changes in ({"activation": "quick_gelu"}, {"final_norm": False}):
        assert source.config(small(**changes).record) is None
    found = source.differs(small(image_size=(None, None)).record)
    assert "images of any size" in found


@on_last_backend
@pytest.mark.parametrize("position_bias", ["blocks", "shared"])
def test_every_variable_has_a_name(position_bias):
    model = small(position_bias=position_bias, absolute_positions=True, layer_scale=0.1)
    check_key_map(TimmBEiT().key_map(model.record["kwargs"]), model)
