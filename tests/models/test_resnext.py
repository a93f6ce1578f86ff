import json

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import kerasvit
from kerasvit.checkpoints.config import Config, Shapes
from kerasvit.checkpoints.sources.how_do_vits_work import AuthorsResNeXt
from kerasvit.checkpoints.sources.timm_resnext import TimmResNeXt
from tests.contract import call, check_key_map, to_numpy
from tests.golden.record import ROOT
from tests.once import long_elsewhere, mainly_on_last, on_last_backend
from tests.random_weights import randomised

pytestmark = pytest.mark.slow

SMALL = {"depths": [1, 2], "groups": 2, "group_width": 2, "stem": "cifar"}
NARROW = {"width": 8, "stem_width": 8, "image_size": (9, 15), "num_classes": 5}
LIKE_TIMM = {"stem": "imagenet", "stem_width": 64, "depths": [1, 2, 1, 1]}
TIMM = ROOT / "models" / "timm_resnext" / "model.safetensors"
AUTHORS = ROOT / "models" / "resnext_cifar" / "model.safetensors"


def small(**changes):
    return randomised(kerasvit.ResNeXt(**{**SMALL, **NARROW, **changes}))


def images(model, batch=2):
    shape = (batch, *model.input_shape[1:])
    return np.random.default_rng(1).normal(size=shape).astype("float32")


@pytest.mark.parametrize(
    "changes",
    mainly_on_last(
        [
            {},
            {"stem": "imagenet", "image_size": 33},
            {"num_classes": 0, "channels": 2},
            {"groups": 1, "group_width": 5, "stochastic_depth": 0.1},
            {"normalization": {"mean": [0.5] * 3, "std": [0.5, 0.25, 0.2]}},
        ]
    ),
    ids=str,
)
def test_files_give_the_same_logits_and_record(changes, tmp_path):
    model = small(**changes)
    model.save(tmp_path / "model.keras")
    kerasvit.save_pretrained(model, tmp_path / "folder")
    x = images(model)
    for again in (
        keras.saving.load_model(tmp_path / "model.keras"),
        kerasvit.from_pretrained(tmp_path / "folder"),
    ):
        assert again.record["kwargs"] == model.record["kwargs"]
        assert [w.path for w in again.weights] == [w.path for w in model.weights]
        expected = to_numpy(call(model, x))
        np.testing.assert_allclose(to_numpy(call(again, x)), expected, atol=1e-5)


@on_last_backend
def test_channels_and_maps():
    """Table 1 of the paper, for 32 × 4d."""
    model = kerasvit.ResNeXt50(image_size=64)
    units = [layer for layer in model.layers if "unit" in layer.name]
    ends = [unit for unit in units if unit.name.endswith("_0")]
    assert [tuple(unit.output.shape[1:]) for unit in ends] == [
        *((16, 16, 256), (8, 8, 512), (4, 4, 1024), (2, 2, 2048))
    ]
    kernels = [unit.convs[1].kernel.shape for unit in ends]
    assert [tuple(shape) for shape in kernels] == [
        *((3, 3, 4, 128), (3, 3, 8, 256), (3, 3, 16, 512), (3, 3, 32, 1024))
    ]
    assert [unit.convs[1].strides for unit in ends] == [1, 2, 2, 2]
    assert all(conv.strides == 1 for unit in units for conv in unit.convs[::2])
    assert [unit.projection is None for unit in units[:4]] == [False, True, True, False]


def test_a_shortcut_of_the_same_channels_is_the_input():
    model = small(stem_width=8)
    assert model.get_layer("stage_0_unit_0").projection is None
    assert model.get_layer("stage_1_unit_0").projection is not None


def test_resized_model_has_the_same_weights():
    model = small()
    other = kerasvit.resize(model, (16, 30))
    assert other.record["kwargs"]["image_size"] == [16, 30]
    for new, old in zip(other.weights, model.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(new), to_numpy(old))


def test_mixed_bfloat16_is_near_and_ends_in_float32():
    model = small()
    x = images(model)
    logits = call(small(dtype="mixed_bfloat16"), x)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    exact = to_numpy(call(model, x))
    assert np.abs(to_numpy(logits) - exact).max() < 0.1 * np.abs(exact).max()


@long_elsewhere
@pytest.mark.parametrize("rho", mainly_on_last([0.05, 0.0]))
def test_one_step_moves_every_weight_and_the_statistics(rho):
    model = small(stochastic_depth=0.1)
    before = {w.path: to_numpy(w).copy() for w in model.weights if w.dtype == "float32"}
    trainer = kerasvit.SAM(model, rho=rho)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer.compile(keras.optimizers.SGD(0.1), loss)
    history = trainer.fit(images(model, 8), np.arange(8) % 5, verbose=0)
    assert np.isfinite(history.history["loss"][0])
    after = {w.path: to_numpy(w) for w in model.weights}
    assert not [p for p, old in before.items() if np.array_equal(after[p], old)]


def test_fresh_head_is_zero():
    model = kerasvit.ResNeXt(**SMALL, **NARROW)
    assert np.abs(to_numpy(call(model, images(model)))).max() == 0


@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stem": "deep"}, "`stem`.*'deep'"),
        ({"groups": 0}, "`groups`.*0"),
        ({"groups": 1000}, "`groups`.*1000"),
        ({"group_width": 1.5}, "`group_width`.*1.5"),
        ({"width": 40_000}, "doubled 1 times, must be at most 65,536.*40000"),
        ({"groups": 200, "group_width": 200}, "must be at most 65,536.*200 times 200"),
        ({"depths": []}, "`depths`"),
        ({"drop_path_rate": 0.1}, "write stochastic_depth=0.1"),
    ],
)
def test_a_wrong_argument_suggests_the_right_one(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)


# Its files.


@on_last_backend
@pytest.mark.parametrize(
    ("source", "changes"),
    [(TimmResNeXt(), LIKE_TIMM), (AuthorsResNeXt(), {}), (AuthorsResNeXt(), LIKE_TIMM)],
)
@pytest.mark.parametrize("num_classes", [0, 5])
def test_key_maps_round_trip(source, changes, num_classes):
    model = small(**changes, num_classes=num_classes)
    kwargs = model.record["kwargs"]
    tensors = check_key_map(source.key_map(kwargs), model)
    assert source.recognises(set(tensors))
    shapes = Shapes({name: tensor.shape for name, tensor in tensors.items()})
    found = source.describe(shapes, Config())
    for key, value in {**found.numbers, **found.arguments}.items():
        assert kwargs[key] == value, key


@on_last_backend
@pytest.mark.parametrize(
    ("changes", "architecture", "arguments"),
    [
        (
            {"depths": [3, 4, 6, 3], "groups": 32, "group_width": 4},
            "resnext50_32x4d",
            {},
        ),
        ({"depths": [3, 4, 23, 3], "group_width": 64, "groups": 1}, "resnet101", {}),
        (
            {"depths": [1] * 4, "groups": 4, "group_width": 4, "width": 32},
            "resnext50_32x4d",
            {
                "layers": [1] * 4,
                "cardinality": 4,
                "base_width": 32,
                "channels": [8, 16, 32, 64],
            },
        ),
    ],
)
def test_configurations_of_timm(changes, architecture, arguments):
    kwargs = {"width": 256, "num_classes": 5, "stem": "imagenet", "stem_width": 64}
    record = {"builder": "ResNeXt", "kwargs": {**kwargs, **changes}}
    config = TimmResNeXt().config(record)
    assert config["architecture"] == architecture
    assert config["model_args"] == arguments


@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stem": "cifar"}, "stem is 'cifar', timm's 'imagenet'"),
        ({"stem_width": 8}, "stem_width is 8, timm's 64"),
        ({"depths": [1, 1]}, "number of stages is 2, timm's 4"),
        ({"width": 24}, "group_width is 2, timm's 'of a base_width'"),
    ],
)
def test_what_timm_does_not_build(changes, message):
    model = small(**{**LIKE_TIMM, **changes})
    assert message in TimmResNeXt().differs(model.record)
    assert TimmResNeXt().config(model.record) is None


@on_last_backend
def test_files_determine_the_model():
    timm, authors = kerasvit.from_pretrained(TIMM), kerasvit.from_pretrained(AUTHORS)
    assert (timm.record["origin"], authors.record["origin"]) == (
        *("timm", "how_do_vits_work"),
    )
    assert timm.record["kwargs"]["groups"] == 4
    assert authors.record["kwargs"]["stem"] == "cifar"
    assert timm.record["preprocessing"]["crop"] == 0.875
    assert timm.record["preprocessing"]["mean"] == [0.485, 0.456, 0.406]


@on_last_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # Of a deep stem, shortcuts that pool, and units with attention to channels.
        ({"conv1.weight": "conv1.0.weight"}, "does not have: conv1.0.weight"),
        (
            {"layer2.0.downsample.1.bias": "layer2.0.downsample.2.bias"},
            r"does not have: layer2.0.downsample.2.bias.*resnext50_32x4d",
        ),
        ({"layer1.0.bn1.bias": "layer1.0.se.fc1.bias"}, "layer1.0.se.fc1.bias"),
    ],
)
def test_other_resnets_of_timm_are_refused(changes, message, tmp_path):
    tensors = load_file(TIMM)
    for old, new in changes.items():
        tensors[new] = tensors.pop(old)
    save_file(tensors, tmp_path / "other.safetensors")
    with pytest.raises(kerasvit.CheckpointError, match=message):
        kerasvit.from_pretrained(tmp_path / "other.safetensors")


@on_last_backend
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architecture": "resnetaa50"}, "resnetaa50"),
        ({"architecture": "seresnext50_32x4d"}, "seresnext50_32x4d"),
        ({"model_args": {"global_pool": "max"}}, "'max'"),
        ({"model_args": {"output_stride": 8}}, "output_stride"),
        ({"model_args": {"aa_layer": "avg", "act_layer": "silu"}}, "aa_layer', 'act"),
    ],
)
def test_configurations_of_timm_that_are_not_built(config, message, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(TIMM.read_bytes())
    stated = {"architecture": "resnext50_32x4d", **config}
    (tmp_path / "config.json").write_text(json.dumps(stated))
    with pytest.raises(kerasvit.CheckpointError, match=message):
        kerasvit.from_pretrained(tmp_path)


@on_last_backend
@pytest.mark.parametrize(
    "name", ["tv_resnext50_32x4d", "swsl_resnext50_32x4d", "gluon_resnext50_32x4d"]
)
def test_old_names_of_timm(name, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(TIMM.read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({"architecture": name}))
    assert kerasvit.from_pretrained(tmp_path).record["kwargs"]["groups"] == 4
