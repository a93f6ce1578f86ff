import hashlib
import json
from pathlib import Path

import keras
import numpy as np
import pytest

import kerasvit
from kerasvit.checkpoints.config import Config, Shapes
from kerasvit.checkpoints.sources.big_transfer import BigTransferFile
from kerasvit.checkpoints.sources.timm_bit import TimmBiT
from kerasvit.checkpoints.sources.transformers_bit import TransformersBiT
from kerasvit.loading.resolve import explain_mismatch
from tests.contract import call, check_key_map, to_numpy
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

from .counting import outlined

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden"
GOOGLE = GOLDEN / "models" / "bit_x1" / "checkpoint.npz"
TIMM = GOLDEN / "models" / "timm_bit" / "model.safetensors"
SMALL = {"depths": [2, 1], "width_factor": 0.5}
ROW = kerasvit.Variant("Small", kerasvit.BigTransfer, **SMALL)
LIKE_TIMM = {"conv_epsilon": 1e-8}


def small(**changes):
    kwargs = {**SMALL, "image_size": (24, 17), "num_classes": 5, **changes}
    model = kerasvit.BigTransfer(**kwargs)
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape, scale=0.3) for w in model.weights])
    return model


def images(batch=2, height=24, width=17):
    shape = (batch, height, width, 3)
    return np.random.default_rng(1).normal(size=shape).astype("float32")


def npz_with(tmp_path, change):
    with np.load(GOOGLE) as arrays:
        tensors = dict(arrays)
    np.savez(tmp_path / "changed.npz", **change(tensors))
    return tmp_path / "changed.npz"


# The model.


@pytest.mark.parametrize(
    "changes",
    mainly_on_last(
        [
            {},
            {"num_classes": 0},
            {"stage_widths": [128, 384], **LIKE_TIMM},
            {"normalization": {"mean": [0.5] * 3, "std": [0.5, 0.25, 0.2]}},
        ]
    ),
    ids=str,
)
def test_files_give_the_same_logits_and_record(changes, tmp_path):
    model, x = small(**changes), images()
    model.save(tmp_path / "model.keras")
    kerasvit.save_pretrained(model, tmp_path / "folder")
    logits = to_numpy(call(model, x))
    for again in (
        keras.saving.load_model(tmp_path / "model.keras"),
        kerasvit.from_pretrained(tmp_path / "folder"),
    ):
        assert again.record["kwargs"] == model.record["kwargs"]
        assert [w.path for w in again.weights] == [w.path for w in model.weights]
        np.testing.assert_allclose(to_numpy(call(again, x)), logits, atol=1e-5)


def test_paths_are_those_of_the_checkpoint_format():
    model = small()
    assert {
        "root_conv/kernel",
        "stage_0_unit_0/projection/kernel",
        "stage_0_unit_1/norm_0/gamma",
        "stage_1_unit_0/conv_2/kernel",
        "final_norm/beta",
        "head/kernel",
    } <= {w.path for w in model.weights}
    assert not any("." in layer.name for layer in model.layers)


def test_all_stages_but_the_first_halve_the_map():
    model = small(depths=[1, 2, 1])
    shapes = {
        layer.name: layer.output.shape[1:]
        for layer in model.layers
        if "unit" in layer.name or layer.name == "root_pool"
    }
    assert shapes == {
        "root_pool": (6, 5, 32),
        "stage_0_unit_0": (6, 5, 128),
        "stage_1_unit_0": (3, 3, 256),
        "stage_1_unit_1": (3, 3, 256),
        "stage_2_unit_0": (2, 2, 512),
    }


@pytest.mark.parametrize("size", [1, (2, 33)])
def test_any_image_size(size):
    model = small(image_size=size)
    height, width = model.record["kwargs"]["image_size"]
    assert np.isfinite(to_numpy(call(model, images(2, height, width)))).all()


def test_resized_model_has_the_same_weights():
    model = small()
    other = kerasvit.resize(model, (16, 30))
    assert other.record["kwargs"]["image_size"] == [16, 30]
    for new, old in zip(other.weights, model.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(new), to_numpy(old))


def test_root_pads_with_zeros_that_take_part_in_the_maximum():
    model = small()
    taps = [model.get_layer(name).output for name in ("root_conv", "root_pool")]
    before, after = (to_numpy(t) for t in keras.Model(model.input, taps)(images()))
    corner = np.maximum(before[:, :2, :2].max((1, 2)), 0)
    np.testing.assert_allclose(after[:, 0, 0], corner)
    assert (before[:, :2, :2].max((1, 2)) < 0).any()


def test_built_in_normalisation_takes_pixels():
    mean, std = [0.5, 0.4, 0.3], [0.5, 0.25, 0.2]
    model = small(normalization={"mean": mean, "std": std})
    pixels = np.random.default_rng(0).integers(0, 256, (2, 24, 17, 3)).astype("float32")
    expected = to_numpy(call(small(), ((pixels / 255 - mean) / std).astype("float32")))
    np.testing.assert_allclose(to_numpy(call(model, pixels)), expected, atol=1e-4)


def test_mixed_bfloat16_is_near_and_ends_in_float32():
    model, x = small(), images()
    keras.config.set_dtype_policy("mixed_bfloat16")
    logits = call(small(), x)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    exact = to_numpy(call(model, x))
    assert np.abs(to_numpy(logits) - exact).max() < 0.1 * np.abs(exact).max()


@long_elsewhere
@pytest.mark.parametrize("rho", mainly_on_last([0.05, 0.0]))
def test_one_step_moves_every_weight(rho):
    model = small()
    before = [w.copy() for w in model.get_weights()]
    trainer = kerasvit.SAM(model, rho=rho)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(keras.optimizers.SGD(0.1), loss)
    history = trainer.fit(images(), np.array([0, 1]), verbose=0)
    assert np.isfinite(history.history["loss"][0])
    for weight, old in zip(model.weights, before, strict=True):
        assert np.abs(to_numpy(weight) - old).max() > 0, weight.path


def test_fresh_head_is_zero():
    model = kerasvit.BigTransfer(**SMALL, image_size=16)
    assert np.abs(to_numpy(call(model, images(1, 16, 16)))).max() == 0


@on_last_backend
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"width_factor": 0.75}, "multiple of 0.5, so that 32 groups.*0.75"),
        ({"width_factor": 0}, "`width_factor`.*multiple of 0.5.*0"),
        ({"width_factor": "x"}, "`width_factor`.*'x'"),
        ({"depths": []}, "`depths`"),
        ({"depths": 50}, "`depths`.*50"),
        ({"depths": [1, 0]}, "`depths`.*0"),
        ({"stage_widths": [128]}, "`stage_widths` must be a list of 2"),
        ({"stage_widths": [128, 200]}, "multiples of 128.*200"),
        ({"image_size": 0}, "`image_size`.*0"),
        ({"num_classes": -1}, "`num_classes`.*-1"),
        ({"conv_epsilon": -1}, "`conv_epsilon`"),
        ({"epsilon": None}, "`epsilon`"),
        ({"normalization": True}, "`normalization`"),
    ],
)
def test_a_wrong_argument_suggests_the_right_one(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


@on_last_backend
def test_numbers_of_numpy_are_numbers():
    record = small(depths=(np.int64(1),), width_factor=np.float32(1)).record
    assert json.loads(json.dumps(record)) == record
    assert record["kwargs"]["depths"] == [1]
    assert type(record["kwargs"]["width_factor"]) is int


# Its files.


@on_last_backend
@pytest.mark.parametrize("source", [BigTransferFile(), TimmBiT(), TransformersBiT()])
@pytest.mark.parametrize("num_classes", [0, 5])
def test_key_maps_round_trip(source, num_classes):
    model = small(num_classes=num_classes)
    tensors = check_key_map(source.key_map(model.record["kwargs"]), model)
    assert source.recognises(set(tensors))
    shapes = Shapes({name: tensor.shape for name, tensor in tensors.items()})
    description = source.describe(shapes, Config())
    assert description.numbers == SMALL
    assert description.arguments["num_classes"] == num_classes
    assert description.arguments["stage_widths"] is None


@on_last_backend
@pytest.mark.parametrize("name", [p.stem for p in (GOLDEN / "timm_keys").glob("BiT*")])
def test_names_and_shapes_are_those_of_timm(name):
    recorded = json.loads((GOLDEN / "timm_keys" / f"{name}.json").read_text())
    model = outlined(name)
    key_map = TimmBiT().key_map(model.record["kwargs"])
    # A view of one zero with this shape allocates nothing.
    arrays = {w.path: np.broadcast_to(np.float32(0), w.shape) for w in model.weights}
    lines = sorted(
        f"{key} {list(tensor.shape)}" for key, tensor in key_map.write(arrays).items()
    )
    assert lines == recorded.get("names_and_shapes", lines)
    assert len(lines) == recorded["tensors"]
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == recorded["sha256"]
    record = {**model.record, "kwargs": {**model.record["kwargs"], **LIKE_TIMM}}
    config = TimmBiT().config(record)
    assert (config["architecture"], config["model_args"]) == (
        recorded["architecture"],
        {},
    )


@on_last_backend
@pytest.mark.parametrize(
    "numbers, architecture, arguments",
    [
        ({"depths": [3, 4, 6, 3], "width_factor": 2}, "50x1", [128, 512, 1024]),
        ({"depths": [3, 8, 36, 3], "width_factor": 1}, "152x2", [32, 128, 256]),
        ({"depths": [3, 4], "width_factor": 0.5}, "50x1", [32, 128, 256]),
        ({"depths": [3, 24, 36, 3], "width_factor": 3}, None, None),
        ({"depths": [3, 4], "width_factor": 1, "epsilon": 1e-6}, None, None),
        ({"depths": [3, 4], "width_factor": 1, "conv_epsilon": 1e-10}, None, None),
    ],
)
def test_configurations_that_timm_supports(numbers, architecture, arguments):
    kwargs = {"num_classes": 5, "epsilon": 1e-5, "stage_widths": None, **LIKE_TIMM}
    record = {"builder": "BigTransfer", "kwargs": {**kwargs, **numbers}}
    config = TimmBiT().config(record)
    assert (config is None) == (architecture is None)
    if config:
        assert config["architecture"] == f"resnetv2_{architecture}_bit"
        args = config["model_args"]
        assert [args["stem_chs"], *args["channels"][:2]] == arguments


@on_last_backend
def test_google_file_determines_the_arguments():
    row = kerasvit.Variant(None, kerasvit.BigTransfer, depths=[2], width_factor=1)
    record = row(GOOGLE).record
    assert record["origin"] == "big_transfer"
    assert record["kwargs"]["num_classes"] == 6
    assert record["kwargs"]["conv_epsilon"] == 1e-10
    assert record["preprocessing"]["mode"] == "squash"


@on_last_backend
def test_timm_file_determines_the_arguments():
    record = ROW(TIMM, image_size=32).record
    assert record["origin"] == "timm"
    assert record["kwargs"]["num_classes"] == 7
    assert record["kwargs"]["conv_epsilon"] == 1e-8
    assert kerasvit.BiTR50x1.preprocessing().kernel == "bilinear"
    assert kerasvit.BiTR50x1.preprocessing().crop == 0.875


@on_last_backend
def test_files_that_number_their_convolutions(tmp_path):
    def numbered(tensors):
        return {
            name.replace("standardized_conv2d", f"standardized_conv2d_{i}"): tensor
            for i, (name, tensor) in enumerate(tensors.items())
        }

    row = kerasvit.Variant(None, kerasvit.BigTransfer, depths=[2], width_factor=1)
    plain, other = row(GOOGLE), row(npz_with(tmp_path, numbered))
    for a, b in zip(plain.weights, other.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(a), to_numpy(b))


@on_last_backend
def test_channels_of_its_own(tmp_path):
    model = small(stage_widths=[128, 384], **LIKE_TIMM)
    arrays = {w.path: to_numpy(w) for w in model.weights}
    key_map = BigTransferFile().key_map(model.record["kwargs"])
    np.savez(tmp_path / "file.npz", **key_map.write(arrays))
    again = ROW(tmp_path / "file.npz", image_size=(24, 17), **LIKE_TIMM)
    assert again.record["kwargs"]["stage_widths"] == [128, 384]
    np.testing.assert_array_equal(
        to_numpy(call(again, images())), to_numpy(call(model, images()))
    )


@on_last_backend
def test_the_variant_that_fits_is_named():
    numbers = {"depths": [3, 4, 6, 3], "width_factor": 1.0}
    message = explain_mismatch(kerasvit.BiTR101x1, numbers, {})
    assert "depths [3, 4, 6, 3], not [3, 4, 23, 3]" in message
    assert "Build BiTR50x1 with it" in message


@on_last_backend
def test_depths_can_be_a_tuple():
    row = kerasvit.Variant(None, kerasvit.BigTransfer, depths=(2,), width_factor=1)
    assert row(GOOGLE).record["kwargs"]["depths"] == [2]


@on_last_backend
def test_a_file_of_other_depths_raises():
    row = kerasvit.Variant("Deep", kerasvit.BigTransfer, depths=[3], width_factor=1)
    with pytest.raises(kerasvit.CheckpointError, match=r"depths \[2\], not \[3\]"):
        row(GOOGLE)


@on_last_backend
def test_another_architecture_is_named():
    with pytest.raises(kerasvit.CheckpointError, match="holds a BigTransfer"):
        kerasvit.ViTTi16(GOOGLE)


@on_last_backend
@pytest.mark.parametrize(
    "config, message",
    [
        ({"architecture": "resnetv2_50d_gn"}, "resnetv2_50d_gn"),
        ({"model_args": {"global_pool": "max"}}, "'max'"),
        ({"model_args": {"output_stride": 8}}, "output_stride"),
        ({"model_args": {"layers": [1], "img_size": 64}}, "img_size', 'layers"),
    ],
)
def test_configurations_of_timm_that_are_not_built(tmp_path, config, message):
    (tmp_path / "model.safetensors").write_bytes(TIMM.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(kerasvit.CheckpointError, match=message):
        ROW(tmp_path)
