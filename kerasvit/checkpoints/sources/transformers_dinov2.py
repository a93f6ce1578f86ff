"""Hugging Face transformers' DINOv2, with and without register tokens.

Tensor names as `Dinov2Model` and `Dinov2WithRegistersModel` write them, and their
classifiers with a prefix; transformers/models/dinov2/modeling_dinov2.py and
dinov2_with_registers/modeling_dinov2_with_registers.py.
"""

from collections.abc import Set
from typing import Any

import numpy as np

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import KeyMap, Transform, torch_dense, torch_norm, torch_stacked
from ..reader import CheckpointError
from .source import count
from .transformers import (
    ATTENTION_NAMES,
    PATCHES,
    REGISTERS,
    TABLE,
    TransformersSource,
    activation,
    attention,
    former_attention,
    heads,
    in_memory,
    label_names,
    open_arguments,
    patches,
    registers,
)

_BLOCK, _OURS = "encoder.layer.{i}.", "encoder_block_{i}/"
_SCALE = "encoder.layer.0.layer_scale1.lambda1"
_FC2, _GATED_OUT = (f"encoder.layer.0.mlp.{n}.weight" for n in ("fc2", "weights_out"))
# In transformers 5 each has its own name.
_SPLIT = (
    *torch_dense(_BLOCK + "mlp.gate_proj", _OURS + "mlp/gate"),
    *torch_dense(_BLOCK + "mlp.up_proj", _OURS + "mlp/dense_0"),
)


class TransformersDinov2(TransformersSource):
    """DINOv2. Classifiers take the class token and the average of the patches."""

    builder = "VisionTransformer"

    def recognises(self, names: Set[str]) -> bool:
        return PATCHES in names and _SCALE in names

    def describe(self, shapes: Shapes, config: Config) -> Description:
        width, channels, *_ = shapes.of(PATCHES, 4)
        patch = shapes.patch_size(PATCHES)
        gated = _GATED_OUT in shapes
        classifier = "classifier.weight" in shapes
        stated = config.image_size("image_size")
        if stated and stated[0] != stated[1]:
            raise CheckpointError(
                f"config.json states images of {stated[0]} × {stated[1]}. transformers "
                "takes every position table of DINOv2 as that of a square, kerasvit "
                "as that of the stated size. Use a model for square images, at any "
                "`image_size`."
            )
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={
                "patch_size": patch,
                "width": width,
                "depth": count(shapes, "encoder.layer.{}.norm1.weight"),
                "mlp_dim": shapes.of(_GATED_OUT if gated else _FC2, 2)[1],
                **heads(config),
            },
            arguments={
                "channels": channels,
                "num_classes": shapes.side("classifier.weight", 0, 2, default=0),
                "pool": "token_and_average" if classifier else "token",
                "class_token": True,
                "register_tokens": registers(shapes),
                "positions": "tokens",
                "representation_size": None,
                "qkv_bias": "encoder.layer.0.attention.attention.query.bias" in shapes,
                "layer_scale": config.get("layerscale_value", 1.0),
                "mlp": "swiglu" if gated else "plain",
                "activation": "gelu" if gated else activation(config, "gelu"),
                "epsilon": config.get("layer_norm_eps", 1e-6),
            },
            # With registers, transformers resamples the table with antialiasing.
            kernel="bicubic_antialias" if REGISTERS in shapes else self.kernel,
            grid=TokenGrid(TABLE, shapes.of(TABLE, 3)[1], patch, prefix=1),
            image_size=stated,
            label_names=label_names(config),
            open_arguments=open_arguments(config),
            architecture=config.text("model_type"),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        return KeyMap(
            ("embeddings.cls_token", "class_token/tokens"),
            (REGISTERS, "register_tokens/tokens"),
            (TABLE, "position_embedding/table", _table(kwargs["register_tokens"])),
            *patches(),
            *torch_norm(_BLOCK + "norm1", _OURS + "attention_norm"),
            *attention(_BLOCK, _OURS, "attention.attention."),
            (_BLOCK + "layer_scale1.lambda1", _OURS + "attention_scale"),
            *torch_norm(_BLOCK + "norm2", _OURS + "mlp_norm"),
            *_mlp(kwargs["mlp"] == "swiglu"),
            (_BLOCK + "layer_scale2.lambda1", _OURS + "mlp_scale"),
            *torch_norm("layernorm", "encoder_norm"),
            *torch_dense("classifier", "head"),
        )

    def short_name(self, name: str) -> str:
        name = name.removeprefix("dinov2.").removeprefix("dinov2_with_registers.")
        return former_attention(name).replace(".mlp.down_proj.", ".mlp.weights_out.")

    def module_map(self, record: dict[str, Any]) -> KeyMap | None:
        kwargs = record["kwargs"]
        if kwargs["pool"] != (
            "token_and_average" if kwargs["num_classes"] else "token"
        ):
            return None
        model = "dinov2_with_registers." if kwargs["register_tokens"] else "dinov2."
        names = (*ATTENTION_NAMES, ("mlp.weights_out.", "mlp.down_proj."))
        split = _SPLIT if kwargs["mlp"] == "swiglu" else ()
        rules = KeyMap(*split, *self.key_map(kwargs).rules)
        return in_memory(rules, kwargs, model, names)

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name == "embeddings.mask_token":
            return "takes the place of masked patches in training only"
        return None


def _mlp(gated: bool) -> tuple[tuple, ...]:
    """Returns the rules of a block's MLP."""
    if not gated:
        return (
            *torch_dense(_BLOCK + "mlp.fc1", _OURS + "mlp/dense_0"),
            *torch_dense(_BLOCK + "mlp.fc2", _OURS + "mlp/dense_1"),
        )
    both = _OURS + "mlp/gate", _OURS + "mlp/dense_0"
    return (
        *torch_stacked(_BLOCK + "mlp.weights_in", *both),
        *_SPLIT,
        *torch_dense(_BLOCK + "mlp.weights_out", _OURS + "mlp/dense_1"),
    )


def _table(registers: int) -> Transform:
    """Returns the transform of the position table, which has no rows of registers.

    Their rows here are zeros.
    """

    def read(table: np.ndarray) -> list[np.ndarray]:
        zeros = np.zeros((1, registers, table.shape[2]), table.dtype)
        return [np.concatenate([table[:, :1], zeros, table[:, 1:]], axis=1)]

    def write(tables: list[np.ndarray]) -> np.ndarray:
        (table,) = tables
        return np.delete(table, range(1, 1 + registers), axis=1)

    return Transform(read, write)
