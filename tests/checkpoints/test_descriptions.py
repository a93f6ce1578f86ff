"""Damaged files and configurations give a description or a `CheckpointError`."""

import itertools
import json
from pathlib import Path

import pytest

from kerasvit.checkpoints import CheckpointError
from kerasvit.checkpoints.config import Config, Shapes
from kerasvit.checkpoints.description import Description
from kerasvit.checkpoints.model_files import PRESET, open_pair
from kerasvit.checkpoints.reader import Reader
from kerasvit.checkpoints.sources import SOURCES, source_of
from kerasvit.checkpoints.sources.how_do_vits_work import AuthorsPreActResNet
from kerasvit.checkpoints.sources.known import TIMM as TIMM_SOURCES
from kerasvit.checkpoints.sources.timm_bit import TimmBiT
from kerasvit.checkpoints.sources.transformers_deit import TransformersDeiT
from kerasvit.checkpoints.states import model_names
from tests.once import on_last_backend

pytestmark = [on_last_backend, pytest.mark.slow]

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = sorted(
    path
    for pattern in (
        *("models/*/checkpoint.npz", "**/model.safetensors", "**/model.weights.h5"),
    )
    for path in GOLDEN.glob(pattern)
)
VALUES = [
    *(None, "x", 3, -1, [], [1], {}, {"a": 1}, True, 1e9),
    *(
        0,
        "",
        0.5,
        float("nan"),
        [[1]],
        [7, "x"],
        [[7, 7], [7]],
        {"1": 2},
        {"9" * 5000: 1},
    ),
]
PARTS = (
    "config",
    "task",
    "model_args",
    "pretrained_cfg",
    "id2label",
    "label_names",
    "kerasvit",
    "base",
)

# timm's configurations of each builder, with all settings of the computation.
_TIMM = {
    "num_classes": 5,
    "global_pool": "avg",
    "label_names": {"0": "a", "1": "b"},
    "pretrained_cfg": {"input_size": [3, 24, 24]},
}
_VIT = {
    "num_heads": 3, "act_layer": "gelu", "no_embed_class": False, "init_values": 1e-5,
    "pool_include_prefix": False,
}  # fmt: skip
TIMM = {
    "VisionTransformer": ("vit_tiny_patch16_224", _VIT),
    "DistilledVisionTransformer": ("deit_tiny_distilled_patch16_224", _VIT),
    "HybridVisionTransformer": (
        "vit_tiny_r_s16_p8_224",
        {**_VIT, "global_pool": "token"},
    ),
    "MLPMixer": ("mixer_s32_224", {}),
    "BigTransfer": ("resnetv2_50x1_bit", {}),
    "ResNeXt": ("resnext50_32x4d", {}),
    "BEiTTransformer": (
        "beit_base_patch16_224",
        {"num_heads": 3, "init_values": 0.1, "use_fc_norm": True, "scale_mlp": False},
    ),
    "PoolingVisionTransformer": (
        "pit_s_224",
        {"img_size": [20, 24], "stride": 2, "heads": [1, 2, 4], "global_pool": "token"},
    ),
    "SwinTransformer": (
        "swin_tiny_patch4_window7_224",
        {"window_size": 3, "head_dim": None, "always_partition": False},
    ),
}
# Names that no file of a code base has.
NAMES = [
    *("layer0", "layer1.0.x", "layer9.0.x", f"layer{'9' * 5000}.0.x", "layerx.y.z"),
    *("layer.", "layer7.0.attn.attn.to_q.weight", "x.attn.pos_embedding"),
    f"Mixer/encoderblock_0/LayerNorm_{'9' * 5000}/scale",
    *("Mixer/encoderblock_0/LayerNorm_7/scale", "\ud800\n{i}"),
]


def read(path):
    """(source, its `Shapes`, `Config`) of a file."""
    config, beside = {}, path.parent / "config.json"
    if path.suffix == ".safetensors" and beside.exists():
        config = json.loads(beside.read_text())
    reader = Reader(path)
    if path.name == PRESET:
        config, reader = open_pair(path)
    inner = model_names(reader, None, lambda names: source_of(names, Config(config)))
    found = {name: reader.shapes[full] for full, name in inner.items()}
    source = source_of(found, Config(config))
    if source.code_base == "timm" and not config:
        name, args = TIMM[source.builder]
        if source.builder not in ("BigTransfer", "ResNeXt"):
            args = {"img_size": [24, 24], "global_pool": "avg", **args}
        config = {"architecture": name, **_TIMM, "model_args": args}
    short = {source.short_name(name): shape for name, shape in found.items()}
    kept = {name: short[name] for name in short if not source.dropped(name, set(short))}
    return source, Shapes(kept), Config(config)


def described(source, shapes, config):
    """The description, or None for a `CheckpointError`."""
    try:
        description = source.describe(Shapes(shapes), Config(config))
    except CheckpointError as error:
        assert str(error).isprintable()
        return None
    assert isinstance(description, Description)
    if description.grid:
        assert description.grid.cells() >= -description.grid.prefix
    f"{description}".encode("utf-8", "backslashreplace")
    return description


def derived():
    """Results of `read` for the sources without a golden file."""
    _, shapes, _ = read(GOLDEN / "models" / "alternet_basic" / "model.safetensors")
    plain = {name: shapes[name] for name in shapes if ".attn." not in name}
    plain["layer0.0.weight"] = plain.pop("layer0.layer0.0.weight")
    yield "preact", AuthorsPreActResNet(), plain, {}
    _, shapes, config = read(GOLDEN / "models" / "hf_vit" / "model.safetensors")
    for part in ("weight", "bias"):
        head = shapes.pop(f"classifier.{part}")
        shapes |= {f"{n}_classifier.{part}": head for n in ("cls", "distillation")}
    shapes["embeddings.distillation_token"] = shapes["embeddings.cls_token"]
    yield "hf_deit", TransformersDeiT(), shapes, {**config, "model_type": "deit"}


CASES = {
    **{path.relative_to(GOLDEN).parent.name: read(path) for path in FILES},
    **{name: (source, Shapes(s), Config(c)) for name, source, s, c in derived()},
}
every_case = pytest.mark.parametrize(
    "source, shapes, config", CASES.values(), ids=CASES
)


def test_every_source_has_a_file():
    found = {type(source) for source, _, _ in CASES.values()}
    assert {type(source) for source in SOURCES} - found == set()
    for source, shapes, config in CASES.values():
        names = shapes.keys()
        # Models with the names of another of timm's are told by their configuration.
        told = source in TIMM_SOURCES and source.named(config)
        assert source.recognises(names) or (
            told and any(other.recognises(names) for other in TIMM_SOURCES)
        )


@every_case
def test_damaged_tensors(source, shapes, config):
    assert described(source, shapes, config)
    configs = (config,) if not config or "kerasvit" in config else (config, {})
    for config, (name, shape) in itertools.product(configs, shapes.items()):
        described(source, {n: shapes[n] for n in shapes if n != name}, config)
        sides = ((0, *shape[1:]), (*shape[:-1], 0), (*shape[:-1], 2**40))
        ranks = ((), (1,), (*shape, 1), shape[:-1])
        for other in (*sides, *ranks):
            described(source, {**shapes, name: other}, config)


@every_case
def test_other_names(source, shapes, config):
    for name, shape in itertools.product(NAMES, ((), (0,), (4, 4))):
        described(source, {**shapes, name: shape}, config)
    described(source, {}, config)
    if isinstance(source, TimmBiT):
        unit = {f"stages.{i}.blocks.0.conv3.weight": (4,) * 4 for i in range(9000)}
        assert described(source, {**shapes, **unit}, config) is None


@every_case
def test_damaged_configurations(source, shapes, config):
    for changed in changes(config):
        if "kerasvit" in config:
            try:
                source = source_of(shapes, Config(changed))
            except CheckpointError:
                continue
        if source:
            described(source, shapes, changed)


def changes(config):
    """Configurations that differ from one in a value."""
    for key in (*config, "output_stride", "id2label", "image_size"):
        for value in VALUES:
            yield {**config, key: value}
        if key in PARTS and isinstance(config.get(key), dict):
            for part in changes(config[key]):
                yield {**config, key: part}
