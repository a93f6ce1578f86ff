"""Hugging Face transformers' ViT, and its DeiT without the teacher's head.

Tensor names as `ViTForImageClassification` and `ViTModel` write them, the latter
without the prefix "vit."; transformers/models/vit/modeling_vit.py. transformers 5 has
other names in memory, which `save_pretrained(save_original_format=False)` and
`state_dict` write, too; transformers/conversion_mapping.py. The encoder of
`ViTMAEForPreTraining` has the same (vit_mae/modeling_vit_mae.py). The classifier of
`DeiTForImageClassification` (transformers/models/deit/modeling_deit.py) uses only the
class token, so its distillation token is a register token here.
"""

import re
from collections.abc import Set
from typing import Any, Protocol, TypeAlias

from kerasvit.types import PatchSize

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import CONVOLUTION, KeyMap, torch_dense, torch_norm
from ..reader import CheckpointError
from .source import Source, count

PATCHES = "embeddings.patch_embeddings.projection.weight"
UNLIKE = {  # {model_type: what it has}
    "audio-spectrogram-transformer": "patches that overlap, of spectrograms",
    "ijepa": "no class token",
    "swinv2": "cosine attention, and normalisations after the branches",
    "videomae": "patches in time",
    "vitdet": "relative positions and windows",
    "vivit": "patches in time",
    "yolos": "tokens that detect objects",
}
TABLE = "embeddings.position_embeddings"
REGISTERS = "embeddings.register_tokens"  # of DINOv2 and DINOv3
_DISTILLATION = "embeddings.distillation_token"
# Supported activations of transformers/activations.py.
GELU = ("gelu", "gelu_python")
_GELU_TANH: tuple[str, ...] = ("gelu_new", "gelu_fast", "gelu_accurate")
_GELU_TANH += ("gelu_pytorch_tanh", "gelu_python_tanh")
_ACTIVATIONS = dict.fromkeys(GELU, "gelu") | dict.fromkeys(_GELU_TANH, "gelu_tanh")
_ACTIVATIONS |= {"quick_gelu": "quick_gelu"}
# {name of a dense layer in transformers 5: former name}.
_ATTENTION = {"q": "query", "k": "key", "v": "value"}
_MLP = {"1": "intermediate", "2": "output"}
Renamed: TypeAlias = tuple[tuple[str, str], ...]
# (former name, name of transformers 5).
ATTENTION_NAMES: Renamed = (
    ("attention.attention.query.", "attention.q_proj."),
    ("attention.attention.key.", "attention.k_proj."),
    ("attention.attention.value.", "attention.v_proj."),
    ("attention.output.dense.", "attention.o_proj."),
)
NAMES: Renamed = (
    ("encoder.layer.", "layers."),
    *ATTENTION_NAMES,
    ("intermediate.dense.", "mlp.fc1."),
    ("output.dense.", "mlp.fc2."),
)


class TransformersSource(Source, Protocol):
    """Base class for transformers' files.

    `kernel` follows interpolate_pos_encoding, without antialiasing.
    """

    code_base: str = "transformers"
    kernel: str = "bicubic"


class TransformersViT(TransformersSource):
    """Vision Transformers, DeiTs without the teacher's head, encoders of MAE."""

    builder = "VisionTransformer"

    def recognises(self, names: Set[str]) -> bool:
        distilled = _DISTILLATION in names
        return PATCHES in names and (not distilled or "classifier.weight" in names)

    def describe(self, shapes: Shapes, config: Config) -> Description:
        return describe_vit(shapes, config)

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        return KeyMap(
            *encoder(),
            (_DISTILLATION, "register_tokens/tokens"),
            *torch_dense("pooler.dense", "pre_logits"),
            *torch_dense("classifier", "head"),
        )

    def short_name(self, name: str) -> str:
        return former_name(name.removeprefix("vit.").removeprefix("deit."))

    def module_map(self, record: dict[str, Any]) -> KeyMap | None:
        kwargs = record["kwargs"]
        plain = kwargs["class_token"] and kwargs["pool"] == "token"
        if not plain or kwargs["register_tokens"] > 1:
            return None
        if kwargs["num_classes"] and kwargs["representation_size"]:
            return None  # its classifiers have no pooler
        model = "deit." if kwargs["register_tokens"] else "vit."
        return in_memory(self.key_map(kwargs), kwargs, model)

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name.startswith("pooler.") and "classifier.weight" in names:
            return "pooler, which ViTForImageClassification does not use"
        if name == "embeddings.mask_token" or name.startswith("decoder."):
            return "part of ViTMAEForPreTraining or ViTForMaskedImageModeling"
        return None


def describe_vit(shapes: Shapes, config: Config) -> Description:
    """Returns the description of a ViT from its tensors and `config.json`."""
    width, patch = shapes.of(PATCHES, 4)[0], shapes.patch_size(PATCHES)
    numbers = {
        "patch_size": patch,
        "width": width,
        "depth": count(shapes, "encoder.layer.{}.layernorm_before.weight"),
        "mlp_dim": shapes.of("encoder.layer.0.intermediate.dense.weight", 2)[0],
    }
    numbers |= heads(config)
    arguments = _arguments(shapes, config)
    return Description(
        code_base=TransformersViT.code_base,
        builder=TransformersViT.builder,
        numbers=numbers,
        arguments=arguments,
        kernel=TransformersViT.kernel,
        grid=_grid(shapes, patch, 1 + arguments["register_tokens"]),
        image_size=config.image_size("image_size"),
        label_names=label_names(config),
        open_arguments=open_arguments(config),
        architecture=config.text("model_type"),
    )


def _arguments(shapes: Shapes, config: Config) -> dict[str, Any]:
    """Returns the builder's arguments that tensors and `config.json` determine."""
    # ViTModel's pooler is the pre-logits layer of the paper.
    pre_logits = shapes.side("pooler.dense.weight", 0, 2)
    if pre_logits:
        check(config, {"pooler_act": "tanh"})
    return {
        "channels": shapes.of(PATCHES, 4)[1],
        "num_classes": shapes.side("classifier.weight", 0, 2, default=0),
        "pool": "token",
        "class_token": True,
        "register_tokens": shapes.side(_DISTILLATION, 1, 3, default=0),
        "positions": "tokens",
        "representation_size": pre_logits,
        "qkv_bias": "encoder.layer.0.attention.attention.query.bias" in shapes,
        "layer_scale": None,
        "activation": activation(config, "gelu"),
        "epsilon": config.get("layer_norm_eps", 1e-12),
    }


def _grid(shapes: Shapes, patch: PatchSize, prefix: int) -> TokenGrid | None:
    """Returns the position table, or None."""
    if TABLE not in shapes:
        return None
    return TokenGrid(TABLE, shapes.of(TABLE, 3)[1], patch, prefix)


def registers(shapes: Shapes) -> int:
    """Returns the number of register tokens of a DINOv2 or DINOv3."""
    # A model without any has an empty tensor of them.
    none = 0 in shapes.get(REGISTERS, ())
    return 0 if none else shapes.side(REGISTERS, 1, 3, default=0)


def former_name(name: str, inside: str = "attention.attention.") -> str:
    """Returns the former name of a tensor of a ViT, also for that of transformers 5.

    Args:
        name: Name without that of the model.
        inside: Prefix of query, key and value in a block, formerly.
    """
    name = re.sub(r"^layers\.", "encoder.layer.", name)
    name = re.sub(r"\bmlp\.fc([12])\.", lambda match: f"{_MLP[match[1]]}.dense.", name)
    return former_attention(name, inside)


def former_attention(name: str, inside: str = "attention.attention.") -> str:
    """Returns the former name of a tensor of attention; as `former_name`."""
    name = re.sub(r"\battention\.o_proj\.", "attention.output.dense.", name)
    return re.sub(
        r"\battention\.([qkv])_proj\.",
        lambda match: f"{inside}{_ATTENTION[match[1]]}.",
        name,
    )


def in_memory(
    key_map: KeyMap, kwargs: dict[str, Any], model: str, names: Renamed = NAMES
) -> KeyMap:
    """Returns a map with the whole names of transformers 5.

    Args:
        key_map: Map of the names in files.
        kwargs: Arguments of the builder.
        model: Prefix of the names before the head of a classifier, such as "vit.".
        names: (former name, name of transformers 5) of their parts.
    """

    def present(name: str) -> str:
        if "classifier." in name:
            return name
        for former, new in names:
            name = name.replace(former, new)
        return model + name if kwargs["num_classes"] else name

    return KeyMap(*((present(name), *rule) for name, *rule in key_map.rules))


def refuse_type(config: Config) -> None:
    """Raises for a model of transformers that has the names of one that is built.

    Raises:
        CheckpointError: It is one of `UNLIKE`.
    """
    kind = config.text("model_type")
    if kind in UNLIKE:
        raise CheckpointError(
            f"config.json states transformers' {kind}, which has {UNLIKE[kind]}: "
            "kerasvit cannot build it."
        )


def heads(config: Config) -> dict[str, Any]:
    """Returns {"num_heads"}, or {} if the configuration does not determine it."""
    if "num_attention_heads" in config or config.get("model_type"):
        return {"num_heads": config.get("num_attention_heads", 12)}
    return {}


def open_arguments(config: Config) -> tuple[str, ...]:
    """Returns the arguments that neither the tensors nor the configuration state."""
    if config.get("model_type"):  # the defaults of the class apply
        return ()
    keys = {"num_attention_heads": "num_heads"}
    keys |= {"hidden_act": "activation", "layer_norm_eps": "epsilon"}
    return tuple(ours for key, ours in keys.items() if key not in config)


def activation(config: Config, default: str) -> str:
    """Returns the activation; `default` is that of the class in transformers."""
    check(config, {"hidden_act": tuple({default: 0, **_ACTIVATIONS})})
    return _ACTIVATIONS[config.get("hidden_act", default)]


def label_names(config: Config) -> list[Any] | None:
    """Returns the names of the classes; None if they are missing or only numbered."""
    config.part("id2label")  # raises if it is not an object
    names = config.names("id2label") or []
    numbered = [f"LABEL_{i}" for i in range(len(names))]
    return None if names == numbered else names


def check(config: Config, built: dict[str, Any]) -> None:
    """Raises if the configuration states a value that kerasvit cannot build.

    Args:
        config: Configuration of transformers.
        built: {key: supported value, or a tuple of supported values}. Missing keys are
            allowed.

    Raises:
        CheckpointError: A value is not supported.
    """
    for key, values in built.items():
        values = values if isinstance(values, tuple) else (values,)
        if config.get(key, values[0]) not in values:
            raise CheckpointError(
                f"config.json states {key}={config[key]!r:.200}. For these tensors, "
                f"kerasvit builds {' or '.join(map(repr, values))} only."
            )


def encoder() -> tuple[tuple, ...]:
    """Returns the rules of patches, class token, blocks and final normalisation."""
    return (
        ("embeddings.cls_token", "class_token/tokens"),
        ("embeddings.position_embeddings", "position_embedding/table"),
        *patches(),
        *block("encoder.layer.{i}.", "encoder_block_{i}/", "attention.attention."),
        *torch_norm("layernorm", "encoder_norm"),
    )


def patches() -> tuple[tuple, ...]:
    """Returns the rules of the patch embedding."""
    name = "embeddings.patch_embeddings.projection"
    return (
        (f"{name}.weight", "embedding/kernel", CONVOLUTION),
        (f"{name}.bias", "embedding/bias"),
    )


def attention(name: str, ours: str, inside: str) -> tuple[tuple, ...]:
    """Returns the rules of a block's attention; the arguments are those of `block`."""
    return (
        *torch_dense(name + inside + "query", ours + "attention/query"),
        *torch_dense(name + inside + "key", ours + "attention/key"),
        *torch_dense(name + inside + "value", ours + "attention/value"),
        *torch_dense(name + "attention.output.dense", ours + "attention/output"),
    )


def block(name: str, ours: str, inside: str) -> tuple[tuple, ...]:
    """Returns the rules of a block.

    Args:
        name: Prefix of the block's tensor names.
        ours: Prefix of the block's variable paths.
        inside: Prefix of query, key and value after `name`.
    """
    return (
        *torch_norm(name + "layernorm_before", ours + "attention_norm"),
        *attention(name, ours, inside),
        *torch_norm(name + "layernorm_after", ours + "mlp_norm"),
        *torch_dense(name + "intermediate.dense", ours + "mlp/dense_0"),
        *torch_dense(name + "output.dense", ours + "mlp/dense_1"),
    )
