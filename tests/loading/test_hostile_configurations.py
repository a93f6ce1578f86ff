"""Malicious configurations raise an error before they use memory or time."""

import functools
import json
import math
import shutil
import tracemalloc

import keras
import pytest

import kerasvit
from kerasvit.checkpoints import Checkpoint, CheckpointError
from kerasvit.loading import load
from kerasvit.loading.resolve import Plan
from tests.once import on_last_backend
from tests.tiny_vit import TinyViT

pytestmark = pytest.mark.slow


def tiny(tmp_path):
    """A folder and its configuration."""
    folder = kerasvit.save_pretrained(TinyViT(image_size=8, num_classes=3), tmp_path)
    return folder, json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize(
    "changes",
    [
        {"channels": 2.5},
        {"channels": 10**30},
        {"image_size": None},
        {"width": 10**12},
        {"depth": 10**9},
        {"num_classes": 10**12},
        {"image_size": [10**9, 10**9]},
        {"mlp_dim": -1},
        {"num_heads": 0},
        {"patch_size": "4"},
        {"patch_size": 0},
    ],
    ids=str,
)
def test_a_configuration_that_asks_for_too_much(tmp_path, changes):
    folder, config = tiny(tmp_path)
    config["kerasvit"]["kwargs"].update(changes)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=next(iter(changes))):
        kerasvit.from_pretrained(folder)


BUILDERS = {
    "VisionTransformer": {
        "patch_size": 4, "width": 64, "depth": 1, "num_heads": 1, "mlp_dim": 8,
    },
    "MLPMixer": {
        "patch_size": 4, "width": 64, "depth": 1, "tokens_mlp_dim": 8,
        "channels_mlp_dim": 8,
    },
    "SwinTransformer": {
        "width": 32, "depths": [1], "num_heads": [1], "window_size": 2, "patch_size": 4,
    },
    "PoolingVisionTransformer": {
        "patch_size": 4, "stride": 2, "width": 32, "depths": [1], "num_heads": [1],
        "distilled": False,
    },
    "BigTransfer": {"depths": [1], "width_factor": 1},
    "HybridVisionTransformer": {
        "resnet_depths": [], "width_factor": 0.5, "patch_size": 1, "width": 32,
        "depth": 1, "num_heads": 1, "mlp_dim": 8,
    },
    "AlterNet": {
        "depths": [2], "widths": [8], "attention_depths": [1], "num_heads": [1],
        "stem": "cifar", "bottleneck": False, "window_size": 4,
    },
    "PreActResNet": {
        "depths": [1], "widths": [8], "stem": "cifar", "bottleneck": False,
    },
    "ResNeXt": {
        "depths": [1], "groups": 2, "group_width": 2, "stem": "cifar", "width": 8,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(alike, tmp_path_factory):
    """A function: name of a builder → folder of a small model."""

    @functools.cache
    def save(builder):
        kwargs = {"image_size": 8, "num_classes": 3, **BUILDERS[builder]}
        model = getattr(kerasvit, builder)(**kwargs)
        folder = kerasvit.save_pretrained(model, tmp_path_factory.mktemp(builder))
        assert kerasvit.from_pretrained(folder).count_params() == model.count_params()
        return folder

    return save


@pytest.fixture
def made(monkeypatch):
    """Sizes of all variables that are created."""
    sizes = []
    for kind in (keras.initializers.Zeros, keras.initializers.Ones):

        def make(self, shape, dtype=None, call=kind.__call__, **same):
            sizes.append(math.prod(shape))
            return call(self, shape, dtype, **same)

        monkeypatch.setattr(kind, "__call__", make)
    return sizes


def changed_copy(folder, path, changes):
    """A copy of a folder with changed arguments in its configuration."""
    shutil.copytree(folder, path)
    config = json.loads((path / "config.json").read_text())
    config["kerasvit"]["kwargs"].update(changes)
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("builder", "changes"),
    [
        ("VisionTransformer", {"depth": 1000, "width": 65536}),
        ("VisionTransformer", {"mlp_dim": 1_000_000, "depth": 1000}),
        ("VisionTransformer", {"num_classes": 1_000_000}),
        ("VisionTransformer", {"representation_size": 1_000_000}),
        ("VisionTransformer", {"patch_size": 1024, "image_size": [2048, 2048]}),
        ("MLPMixer", {"depth": 1000, "channels_mlp_dim": 1_000_000}),
        ("MLPMixer", {"tokens_mlp_dim": 1_000_000, "image_size": [16, 16]}),
        ("SwinTransformer", {"depths": [500, 500], "num_heads": [1, 1]}),
        ("SwinTransformer", {"width": 65536}),
        ("SwinTransformer", {"mlp_ratio": 5e6}),
        ("SwinTransformer", {"mlp_ratio": 1e300}),
        ("SwinTransformer", {"num_classes": 1_000_000}),
        ("PoolingVisionTransformer", {"width": 65536}),
        (
            "PoolingVisionTransformer",
            {"width": 128, "stride": 1, "image_size": [500, 500]},
        ),
        ("BigTransfer", {"width_factor": 1000}),
        ("BigTransfer", {"width_factor": 1e6}),
        ("BigTransfer", {"num_classes": 1_000_000}),
        ("HybridVisionTransformer", {"width_factor": 1e6}),
        ("HybridVisionTransformer", {"mlp_dim": 1_000_000}),
        ("PreActResNet", {"stem_width": 1_000_000}),
        ("ResNeXt", {"stem_width": 1_000_000}),
        ("ResNeXt", {"groups": 256, "group_width": 256, "width": 65536}),
        ("AlterNet", {"head_width": 1_000_000, "num_heads": [1_000_000]}),
        ("BigTransfer", {"depths": [10] * 100}),
        ("AlterNet", {"widths": [65536]}),
    ],
    ids=str,
)
def test_a_model_that_cannot_be_in_the_file_is_not_built(
    saved, made, tmp_path, builder, changes
):
    folder = saved(builder)
    params = kerasvit.from_pretrained(folder).count_params()
    changed = changed_copy(folder, tmp_path / "changed", changes)
    made.clear()
    with pytest.raises(
        CheckpointError, match="weights in .* describes a model of more than"
    ):
        kerasvit.from_pretrained(changed)
    assert sum(made) < 2 * params + 2**24 + 100_000


@pytest.mark.parametrize(
    ("builder", "changes", "message"),
    [
        ("AlterNet", {"depths": [1000] * 2, "widths": [1] * 2}, "add up to at most"),
        (
            "VisionTransformer",
            {"depth": 1000, "width": 1, "mlp_dim": 1},
            "describes a model of more than .* variables",
        ),
        (
            "AlterNet",
            {
                "depths": [10] * 90,
                "widths": [1] * 90,
                "num_heads": [1] * 90,
                "attention_depths": [0] * 90,
            },
            "describes a model of more than .* variables",
        ),
    ],
)
def test_many_small_blocks_that_are_not_in_the_file(
    saved, tmp_path, builder, changes, message
):
    with pytest.raises(ValueError, match=message):
        kerasvit.from_pretrained(changed_copy(saved(builder), tmp_path / "x", changes))


@pytest.mark.parametrize(
    ("builder", "own", "changes"),
    [
        ("VisionTransformer", {}, {"mlp_dim": 1_000_000}),
        (
            "VisionTransformer",
            {"positions": "sincos2d", "pool": "average", "patch_size": 1, "width": 256},
            {"image_size": [512, 512]},
        ),
        (
            "VisionTransformerAblation",
            {"window": 3, "pool": "token", "norm": "pre"},
            {"image_size": [512, 512]},
        ),
    ],
)
def test_variables_beyond_the_file_take_no_memory(tmp_path, builder, own, changes):
    kwargs = {"image_size": 8, "num_classes": 3, **BUILDERS["VisionTransformer"], **own}
    model = getattr(kerasvit, builder)(**kwargs)
    folder = kerasvit.save_pretrained(model, tmp_path / "own")
    changed = changed_copy(folder, tmp_path / "changed", changes)
    tracemalloc.start()
    with pytest.raises(CheckpointError, match="a model of more than|a table of"):
        kerasvit.from_pretrained(changed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**26  # of NumPy's arrays


@pytest.mark.parametrize(
    ("wish", "weights"),
    [
        ({}, lambda held: 2 * held + 2**24),
        ({"dropout": 0.5}, lambda held: 2 * held + 2**24),
        ({"image_size": [64, 64]}, lambda held: 16 * held + 2**24),
        ({"num_classes": 10**6}, lambda held: 2 * held + 2**24 + 2 * 10**6 * 48),
    ],
)
def test_the_caller_may_ask_for_more(tmp_path, monkeypatch, wish, weights):
    tiny(tmp_path)
    file = Checkpoint(tmp_path)
    assert max(side for shape in file.shapes.values() for side in shape) == 48
    limit = {}
    monkeypatch.setattr(load, "built_with_zeros", lambda _, **most: limit.update(most))
    load.build(None, Plan(wish, {}, explicit=frozenset(wish)), file)
    held = sum(math.prod(shape) for shape in file.shapes.values())
    assert limit["max_weights"] == weights(held)


@on_last_backend
@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"kerasvit": ' + b"9" * 5000 + b"}",
        b'{"a": "' + b"x" * 17_000_000 + b'"}',
        b'{"a": [' + b"[]," * 1_000_000 + b"[]]}",
        b"\xff\xfe",
        b"null",
    ],
    ids=("lists", "objects", "digits", "length", "values", "bytes", "null"),
)
def test_malicious_json(tmp_path, content):
    folder, _ = tiny(tmp_path)
    (folder / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match="config.json"):
        kerasvit.from_pretrained(folder)


@on_last_backend
def test_of_a_name_that_is_twice_in_json_the_last_counts_and_is_checked(tmp_path):
    folder, config = tiny(tmp_path)
    text = json.dumps(config).replace('"depth": 1,', '"depth": 1, "depth": "many",')
    (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match="depth.*many"):
        kerasvit.from_pretrained(folder)


@on_last_backend
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("variant", ["ViTB16"]),
        ("variant", {}),
        ("origin", ["timm"]),
        ("format_version", 10**30),
        ("builder", "__import__"),
        ("preprocessing", {"size": [8, 8], "crop": "wide"}),
        ("preprocessing", {"size": [10**9, 8]}),
        ("preprocessing", {"size": [8, 8], "mean": [float("nan")] * 3}),
        ("preprocessing", {"size": [8, 8], "command": "rm"}),
        ("label_names", "ant"),
        ("label_names", ["ant", "bee", 3]),
        ("label_names", ["ant", "bee", ["cat"]]),
        ("label_names", ["ant"] * 1000),
        ("kwargs", {"name": "../../x"}),
        ("kwargs", {"epsilon": float("nan")}),
        ("kwargs", {"activation": "<script>"}),
        ("kwargs", {"normalization": {"mean": ["a"] * 3, "std": [1] * 3}}),
    ],
    ids=str,
)
def test_a_configuration_with_nonsense(tmp_path, key, value):
    folder, config = tiny(tmp_path)
    config["label_names"] = None
    section = config["kerasvit"]
    section[key] = {**section[key], **value} if key == "kwargs" else value
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError):
        kerasvit.from_pretrained(folder)


@on_last_backend
def test_no_hint_removes_a_file_that_a_saved_folder_needs(tmp_path):
    folder, config = tiny(tmp_path)
    config["kerasvit"]["preprocessing"]["crop"] = "wide"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"wide.*\. Save the model again\.$"):
        kerasvit.from_pretrained(folder)
