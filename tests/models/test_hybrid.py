import json
import re
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit.checkpoints.config import Config, Shapes
from kerasvit.checkpoints.sources.google_hybrid import GoogleHybrid
from kerasvit.checkpoints.sources.google_vit import GoogleViT
from kerasvit.checkpoints.sources.timm_hybrid import TimmHybrid
from kerasvit.checkpoints.sources.timm_vit import TimmViT
from tests.contract import call, check_key_map, to_numpy
from tests.once import long_elsewhere, mainly_on_last, on_last_backend

from .counting import outlined

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden"
KEYS = GOLDEN / "timm_keys"
VARIANTS = [
    name
    for name in kerasvit.list_models("r*vit*")
    if getattr(kerasvit, name).builder is kerasvit.HybridVisionTransformer
]
TRANSFORMER = {"patch_size": 1, "width": 12, "depth": 1, "num_heads": 3, "mlp_dim": 20}
SMALL = {"resnet_depths": [1, 1], **TRANSFORMER, "width_factor": 0.5}
STEM = {**SMALL, "resnet_depths": [], "patch_size": 2}
IN_TIMM = {**STEM, "width_factor": 1}  # timm's smallest
GOOGLE = {
    "activation": "gelu_tanh",
    "group_epsilon": 1e-6,
    "kernel_epsilon": 1e-5,
    "add_to_deviation": True,
}


def small(**changes):
    kwargs = {**SMALL, "image_size": (16, 24), "num_classes": 5, **changes}
    model = kerasvit.Variant(None, kerasvit.HybridVisionTransformer)(**kwargs)
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape, scale=0.3) for w in model.weights])
    return model


def images(batch=2, height=16, width=24):
    shape = (batch, height, width, 3)
    return np.random.default_rng(1).normal(size=shape).astype("float32")


def case(name, checkpoint="checkpoint.npz"):
    folder = GOLDEN / "models" / name
    with np.load(folder / "expected.npz") as arrays:
        return folder / checkpoint, np.load(folder / "input.npy"), arrays["logits_f64"]


def closed_form(depths, patch, width, depth, mlp, size):
    """Parameters and multiply-adds with 1000 classes, counted by hand."""
    parameters = 7 * 7 * 3 * 64 + 2 * 64
    products = 7 * 7 * 3 * 64 * (size // 2) ** 2
    side, before = size // 4, 64
    for stage, units in enumerate(depths):
        inner = 64 * 2**stage
        outer = 4 * inner
        for unit in range(units):
            after = side // 2 if stage and not unit else side
            entry, middle, end = before * inner, 9 * inner**2, inner * outer
            projection = 0 if unit else before * outer
            parameters += entry + middle + end + projection
            parameters += 2 * (2 * inner + (2 if projection else 1) * outer)
            products += entry * side**2 + (middle + end + projection) * after**2
            side, before = after, outer
    patches = (side // patch) ** 2
    tokens = patches + 1
    embedding = patch**2 * before * width
    dense = 4 * width**2 + 2 * width * mlp
    block = dense + 4 * width + mlp + width + 2 * 2 * width
    parameters += embedding + width + width + tokens * width
    parameters += depth * block + 2 * width + 1001 * width - width + 1000
    products += embedding * patches + 1000 * width
    products += depth * (tokens * dense + 2 * tokens**2 * width)
    return parameters, products


@on_last_backend
@pytest.mark.parametrize("name", VARIANTS)
def test_the_row_agrees_with_the_closed_form(name):
    row = getattr(kerasvit, name)
    n = row.numbers
    sizes = [n[key] for key in ("patch_size", "width", "depth", "mlp_dim")]
    parameters, products = closed_form(n["resnet_depths"], *sizes, 224)
    assert row.parameters == parameters
    assert row.multiply_adds == round(products / 1e9, 2)


@on_last_backend
def test_there_are_seven_variants():
    assert len(VARIANTS) == 7


EVERY = [
    {},
    {**STEM, **GOOGLE},
    {"pool": "average", "representation_size": 7},
    {"normalization": {"mean": [0.5, 0.4, 0.3], "std": [0.5, 0.25, 0.2]}},
]


@pytest.mark.parametrize("changes", mainly_on_last(EVERY), ids=str)
def test_keras_file_gives_the_same_logits_and_record(changes, tmp_path):
    model = small(**changes)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.record == model.record
    assert json.loads(json.dumps(again.record)) == model.record
    assert [w.path for w in again.weights] == [w.path for w in model.weights]
    x = images()
    np.testing.assert_allclose(
        to_numpy(call(again, x)), to_numpy(call(model, x)), atol=1e-5
    )


@pytest.mark.parametrize(
    "changes, written",
    mainly_on_last(
        [
            ({}, "kerasvit"),
            (IN_TIMM, "timm"),
            ({**IN_TIMM, "activation": "gelu_tanh", "pool": "average"}, "timm"),
            ({**IN_TIMM, "num_classes": 0}, "timm"),
            ({**IN_TIMM, "group_epsilon": 1e-6}, "kerasvit"),
            ({**IN_TIMM, "kernel_epsilon": 1e-5}, "kerasvit"),
            ({**IN_TIMM, "add_to_deviation": True}, "kerasvit"),
            ({**IN_TIMM, "width_factor": 1.5}, "kerasvit"),
            ({**IN_TIMM, "representation_size": 7}, "kerasvit"),
            ({**IN_TIMM, "epsilon": 1e-5}, "kerasvit"),
        ]
    ),
    ids=str,
)
def test_folder_gives_the_same_logits_and_record(changes, written, tmp_path):
    model = small(**changes)
    kerasvit.save_pretrained(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["kerasvit"]["weights_format"] == written
    again = kerasvit.from_pretrained(tmp_path)
    assert again.record["kwargs"] == model.record["kwargs"]
    x = images()
    np.testing.assert_array_equal(to_numpy(call(again, x)), to_numpy(call(model, x)))


@on_last_backend
def test_timm_reads_its_own_configuration_from_the_folder(tmp_path):
    kerasvit.save_pretrained(small(**IN_TIMM, activation="gelu_tanh"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architecture"] == "vit_tiny_r_s16_p8_224"
    assert config["model_args"]["img_size"] == [16, 24]
    assert config["model_args"]["patch_size"] == 2
    assert config["model_args"]["act_layer"] == "gelu_tanh"
    assert config["num_classes"] == 5
    names = load_file(tmp_path / "model.safetensors")
    assert "patch_embed.backbone.conv.weight" in names
    # kerasvit reads the folder too, as it reads folders pushed with timm.
    del config["kerasvit"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    numbers = {k: v for k, v in IN_TIMM.items() if k != "width_factor"}
    again = kerasvit.Variant(None, kerasvit.HybridVisionTransformer, **numbers)
    record = again(tmp_path).record
    assert record["kwargs"]["image_size"] == [16, 24]
    assert record["kwargs"]["activation"] == "gelu_tanh"


@on_last_backend
@pytest.mark.parametrize(
    "depths, name",
    [
        ([], "vit_tiny_r_s16_p8_224"),
        ([2, 2, 2, 2], "vit_small_r26_s32_224"),
        ([3, 4, 9], "vit_base_r50_s16_224"),
        ([3, 4, 6, 3], "vit_large_r50_s32_224"),
        ([1, 1], None),
    ],
)
def test_which_of_timms_models_has_such_stages(depths, name):
    kwargs = {**small(**IN_TIMM).record["kwargs"], "resnet_depths": depths}
    config = TimmHybrid().config({"kwargs": kwargs})
    assert (config and config["architecture"]) == name


@on_last_backend
@pytest.mark.parametrize("name", VARIANTS)
def test_names_and_shapes_written_are_timms_own(name):
    """`timm_keys`: state dicts of timm 1.0.31, alike blocks in one entry."""
    expected = {}
    for prefix, shapes in json.loads((KEYS / f"{name}.json").read_text()).items():
        numbered = re.fullmatch(r"(.*)\[(\d+)-(\d+)\]\.", prefix)
        prefixes = [prefix]
        if numbered:
            start, first, last = numbered.groups()
            prefixes = [f"{start}{i}." for i in range(int(first), int(last) + 1)]
        expected.update(
            {p + key: shape for p in prefixes for key, shape in shapes.items()}
        )
    model = outlined(name)
    arrays = {w.path: np.zeros(w.shape, "int8") for w in model.weights}
    tensors = TimmHybrid().key_map(model.record["kwargs"]).write(arrays)
    found = {key: list(array.shape) for key, array in tensors.items()}
    assert found == expected


@on_last_backend
@pytest.mark.parametrize(
    "changes",
    [{}, STEM, {"pool": "average"}, {"stage_widths": [256, 128]}],
    ids=str,
)
@pytest.mark.parametrize("source", [GoogleHybrid(), TimmHybrid()])
def test_key_map_in_both_directions_and_the_description(source, changes):
    model = small(**changes)
    kwargs = model.record["kwargs"]
    tensors = check_key_map(source.key_map(kwargs), model)
    shapes = Shapes({name: tensor.shape for name, tensor in tensors.items()})
    sources = (GoogleHybrid, GoogleViT, TimmHybrid, TimmViT)
    assert [s for s in sources if s().recognises(shapes.keys())] == [type(source)]
    description = source.describe(shapes, Config())
    sizes = description.numbers
    assert sizes == {key: kwargs[key] for key in sizes}
    assert sizes["resnet_depths"] == kwargs["resnet_depths"]
    soft = description.arguments
    assert soft["width_factor"] == 0.5
    assert soft["stage_widths"] == kwargs["stage_widths"]
    assert soft["pool"] == kwargs["pool"]


@on_last_backend
def test_googles_file_of_a_resnet_of_any_width(tmp_path):
    model = small(stage_widths=[256, 128])
    arrays = {w.path: to_numpy(w) for w in model.weights}
    kwargs = model.record["kwargs"]
    np.savez(tmp_path / "hybrid.npz", **GoogleHybrid().key_map(kwargs).write(arrays))
    numbers = {key: kwargs[key] for key in ("image_size", "num_heads")}
    made = kerasvit.from_pretrained(tmp_path / "hybrid.npz", **numbers)
    assert made.record["kwargs"]["stage_widths"] == [256, 128]
    for weight, other in zip(model.weights, made.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), to_numpy(other))


@on_last_backend
def test_normalisations_are_written_as_released_or_as_the_file_has_them():
    model = small()
    arrays = {w.path: np.zeros(w.shape) for w in model.weights}
    kwargs = model.record["kwargs"]
    tensors = GoogleHybrid().key_map(kwargs).write(arrays)
    assert tensors["gn_root/scale"].shape == (1, 1, 1, 32)
    assert tensors["block2/unit1/gn_proj/bias"].shape == (1, 1, 1, 256)
    flat = GoogleHybrid().key_map(kwargs, {"gn_root/scale": (32,)}).write(arrays)
    assert flat["gn_root/scale"].shape == (32,)
    assert flat["block2/unit1/gn_proj/bias"].shape == (256,)


NUMBERS = {**TRANSFORMER, "patch_size": 8, "width": 18, "depth": 2, "mlp_dim": 30}
Stem = kerasvit.Variant(
    "Stem", kerasvit.HybridVisionTransformer, resnet_depths=[], **NUMBERS
)


def npz_with(tmp_path, change):
    with np.load(case("hybrid_r_stem")[0]) as arrays:
        tensors = dict(arrays)
    change(tensors)
    np.savez(tmp_path / "changed.npz", **tensors)
    return tmp_path / "changed.npz"


def flat(tensors):
    for name in ("gn_root/scale", "gn_root/bias"):
        tensors[name] = tensors[name].reshape(-1)


def new_spelling(tensors):
    names = {
        "MultiHeadDotProductAttention_1": "MultiHeadDotProductAttention_0",
        "LayerNorm_2": "LayerNorm_1",
        "MlpBlock_3": "MlpBlock_0",
    }
    for name in list(tensors):
        new = name
        for old, other in names.items():
            new = new.replace(old, other)
        tensors["params/" + new] = tensors.pop(name)


@on_last_backend
@pytest.mark.parametrize("change", [flat, new_spelling])
def test_other_spellings_of_googles_files(change, tmp_path):
    _, x, logits = case("hybrid_r_stem")
    found = to_numpy(call(Stem(npz_with(tmp_path, change)), x))
    np.testing.assert_allclose(found, logits, atol=2e-4)


@on_last_backend
def test_google_file_determines_the_arguments():
    record = Stem(case("hybrid_r_stem")[0]).record
    assert record["origin"] == "vision_transformer"
    assert {key: record["kwargs"][key] for key in GOOGLE} == GOOGLE
    assert record["kwargs"]["width_factor"] == 1
    assert record["kwargs"]["image_size"] == [64, 64]
    assert record["preprocessing"]["mode"] == "squash"


@on_last_backend
def test_timm_file_determines_the_arguments():
    numbers = {**NUMBERS, "mlp_dim": 72}
    variant = kerasvit.Variant(
        None, kerasvit.HybridVisionTransformer, resnet_depths=[], **numbers
    )
    record = variant(case("timm_hybrid_stem", "model.safetensors")[0]).record
    kwargs = record["kwargs"]
    assert record["origin"] == "timm"
    assert (kwargs["group_epsilon"], kwargs["kernel_epsilon"]) == (1e-5, 1e-8)
    assert not kwargs["add_to_deviation"]
    assert record["preprocessing"]["crop"] == 0.9


@on_last_backend
def test_a_file_of_another_variant_is_named(tmp_path):
    path = case("hybrid_r_stem")[0]
    with pytest.raises(kerasvit.CheckpointError, match="Hybrid.*not the VisionTrans"):
        kerasvit.ViTB16(path)
    numbers = {**NUMBERS, "resnet_depths": [1]}
    other = kerasvit.Variant(None, kerasvit.HybridVisionTransformer, **numbers)
    with pytest.raises(kerasvit.CheckpointError, match=r"resnet_depths \[\], not \[1"):
        other(path)
    model = outlined("RViTTi16")
    rules = TimmHybrid().key_map(model.record["kwargs"])
    arrays = {w.path: np.zeros(w.shape, "float16") for w in model.weights}
    save_file(rules.write(arrays), tmp_path / "model.safetensors")
    with pytest.raises(kerasvit.CheckpointError, match="Build RViTTi16 with it"):
        Stem(tmp_path / "model.safetensors")


def test_timm_average_over_normalised_tokens_only(tmp_path):
    tensors = load_file(case("timm_hybrid_stem", "model.safetensors")[0])
    for part in ("weight", "bias"):
        tensors[f"fc_norm.{part}"] = tensors.pop(f"norm.{part}")
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(kerasvit.CheckpointError, match="average_then_norm"):
        Stem(tmp_path / "model.safetensors")


# A stem has a cell for 4 pixels; the image may cover only part of the last.
CELLS = {**STEM, "patch_size": 1, "width_factor": 1}


def test_resize_resamples_the_position_table():
    model = small(**CELLS)
    resized = kerasvit.resize(model, (13, 32))
    assert resized.get_layer("position_embedding").grid == (4, 8)
    x = images(1, 13, 32)
    assert np.isfinite(to_numpy(call(resized, x))).all()


@on_last_backend
@pytest.mark.parametrize("changes", [CELLS, {**CELLS, "representation_size": 3}])
def test_a_folder_opens_at_another_resolution(changes, tmp_path):
    model = small(**{**changes, "image_size": (9, 16)})
    kerasvit.save_pretrained(model, tmp_path)
    again = kerasvit.from_pretrained(tmp_path, image_size=(17, 18))
    expected = kerasvit.resize(model, (17, 18))
    assert again.record["kwargs"]["image_size"] == [17, 18]
    for found, variable in zip(again.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(found), to_numpy(variable))


@on_last_backend
@pytest.mark.parametrize("depths, cell", [([], 4), ([1, 1], 8)])
def test_a_bare_file_opens_at_another_resolution(depths, cell, tmp_path):
    made, wanted = (2 * cell + 1, 4 * cell), (cell + 1, 4 * cell + 3)
    model = small(image_size=made, resnet_depths=depths)
    kwargs = model.record["kwargs"]
    arrays = {w.path: to_numpy(w) for w in model.weights}
    np.savez(tmp_path / "x.npz", **GoogleHybrid().key_map(kwargs).write(arrays))
    numbers = {**TRANSFORMER, "resnet_depths": depths}
    variant = kerasvit.Variant(None, kerasvit.HybridVisionTransformer, **numbers)
    again = variant(tmp_path / "x.npz", image_size=wanted, source_grid=(3, 4))
    kernel = GoogleHybrid.kernel
    table = model.get_layer("position_embedding").table
    layer = again.get_layer("position_embedding")
    assert layer.grid == (2, 5)
    expected = layer.resample(to_numpy(table), source_grid=(3, 4), kernel=kernel)
    np.testing.assert_array_equal(to_numpy(layer.table), expected)


@long_elsewhere
def test_sam_trains_it_compiled():
    model = small(dropout=0.1, stochastic_depth=0.1)
    before = model.get_weights()
    trainer = kerasvit.SAM(model, rho=0.05)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    compiled = keras.backend.backend() != "torch"
    trainer.compile("sgd", loss, jit_compile=compiled)
    history = trainer.fit(images(), np.array([0, 1]), verbose=0)
    assert np.isfinite(history.history["loss"][0])
    moved = [
        np.abs(new - old).max()
        for new, old in zip(model.get_weights(), before, strict=True)
    ]
    assert sum(m > 0 for m in moved) > 0.9 * len(moved)


def test_mixed_bfloat16_ends_in_float32():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        half = small()
        logits = call(half, images())
    finally:
        keras.config.set_dtype_policy("float32")
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    exact = to_numpy(call(small(), images()))
    assert np.abs(to_numpy(logits) - exact).max() < 0.1 * np.abs(exact).max()


def test_paths_are_those_of_the_checkpoint_format():
    assert {
        "root_conv/kernel",
        "root_norm/gamma",
        "stage_0_unit_0/conv_2/kernel",
        "stage_1_unit_0/norm_2/beta",
        "stage_1_unit_0/projection/kernel",
        "stage_1_unit_0/projection_norm/gamma",
        "embedding/kernel",
        "class_token/tokens",
        "position_embedding/table",
        "encoder_block_0/attention/query/kernel",
        "encoder_norm/beta",
        "head/bias",
    } <= {w.path for w in small().weights}


def test_units_start_as_their_shortcut_and_the_head_at_zero():
    model = kerasvit.HybridVisionTransformer(**SMALL, image_size=16)
    assert not np.any(model.get_layer("stage_1_unit_0").norms[2].gamma)
    assert np.abs(to_numpy(call(model, images(1, 16, 16)))).max() == 0


@on_last_backend
@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {**STEM, "image_size": 20},
            "multiple of 8, the ResNet's stride 4 times the patch size 2, or up to 3 "
            "pixels less. Received: 20 × 20. The nearest that fits is 16 × 16",
        ),
        ({"patch_size": 2, "image_size": (16, 3)}, "16 × 3. .* is 16 × 16"),
        ({"image_size": "8"}, "`image_size`"),
        ({"image_size": 8.0}, "`image_size`.*8.0"),
        ({"resnet_depths": 3}, "`resnet_depths`.*3"),
        ({"resnet_depths": [2, 0]}, "`resnet_depths`.*0"),
        ({"resnet_depths": None}, "`resnet_depths`.*None"),
        ({"stage_widths": [256, 200]}, "`stage_widths` must be multiples of 128"),
        ({"width_factor": 0.7}, "`width_factor`.*multiple of 0.5.*0.7"),
        ({"width_factor": 0}, "`width_factor`.*≥ 0.5"),
        ({"pool": "average_then_norm"}, "`pool`.*average_then_norm"),
        ({"add_to_deviation": "no"}, "`add_to_deviation`"),
        ({"group_epsilon": -1}, "`group_epsilon`"),
        ({"kernel_epsilon": None}, "`kernel_epsilon`"),
        ({"patch_size": 0}, "`patch_size`.*0"),
        ({"num_heads": 5}, "num_heads=5"),
        ({"depth": 0}, "`depth`"),
        ({"num_classes": -1}, "`num_classes`.*-1"),
        ({"activation": "relu"}, "`activation`.*relu"),
        ({"normalization": True}, "`normalization`"),
    ],
    ids=str,
)
def test_a_wrong_argument_suggests_the_right_one(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)
