"""Hugging Face transformers' Swin Transformers.

Tensor names as `SwinForImageClassification` and `SwinModel` write them, the latter
without the prefix "swin."; transformers/models/swin/modeling_swin.py.
"""

from collections.abc import Set
from typing import Any

from ..config import Config, Shapes
from ..description import Description
from ..key_map import KeyMap, torch_dense, torch_norm
from ..reader import CheckpointError
from .source import count, sized
from .timm_swin import TimmSwin, longest_window, merging, position_tables
from .transformers import (
    GELU,
    PATCHES,
    TransformersSource,
    block,
    check,
    former_name,
    label_names,
    patches,
)

_BLOCK = "encoder.layers.{i}.blocks.{j}."
_TABLE = "encoder.layers.{}.blocks.0.attention.self.relative_position_bias_table"


class TransformersSwin(TransformersSource):
    """Swin Transformers. transformers resamples no tables; `kernel` is timm's."""

    builder = "SwinTransformer"
    kernel = TimmSwin.kernel

    def recognises(self, names: Set[str]) -> bool:
        return PATCHES in names and _TABLE.format(0) in names

    def short_name(self, name: str) -> str:
        name = former_name(name.removeprefix("swin."), "attention.self.")
        return name.replace(".attention.relative_position_bias.", ".attention.self.")

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name.endswith(".relative_position_index"):
            return "computed from the window size; older files hold it too"
        if name == "embeddings.mask_token" or name.startswith("decoder."):
            return "part of SwinForMaskedImageModeling, which predicts masked pixels"
        return None

    def describe(self, shapes: Shapes, config: Config) -> Description:
        tables = position_tables(shapes, _TABLE)
        norm = _BLOCK + "layernorm_before.weight"
        numbers = {
            "width": shapes.of(PATCHES, 4)[0],
            "depths": [
                count(shapes, norm.format(i=i, j="{}")) for i in range(len(tables))
            ],
            "num_heads": [heads for _, heads in tables],
        }
        arguments = _arguments(shapes, tables)
        image_size = config.image_size("image_size")
        built = {
            "embed_dim": numbers["width"],
            "depths": numbers["depths"],
            "num_heads": numbers["num_heads"],
            "window_size": arguments["window_size"],
            "qkv_bias": arguments["qkv_bias"],
            "use_absolute_embeddings": False,
            "hidden_act": GELU,
            # The epsilon of the patches' and mergings' normalisations is fixed.
            "layer_norm_eps": 1e-5,
        }
        check(config, built)
        stated = {**numbers, **arguments, "image_size": image_size}
        if image_size:
            _check_shifts(stated, "config.json states images of")
        known = config.get("model_type") or "hidden_act" in config
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers=numbers,
            arguments=arguments,
            kernel=self.kernel,
            image_size=image_size,
            label_names=label_names(config),
            assumptions=() if known else ("the exact GELU",),
            architecture=config.text("model_type"),
        )

    def check_size(self, kwargs: dict[str, Any], shapes: Shapes) -> None:
        _check_shifts(kwargs, "Received: images of")

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        ours = "stage_{i}_block_{j}/"
        merged = [
            rule
            for i in range(1, len(kwargs["depths"]))
            for rule in merging(
                f"encoder.layers.{i - 1}.downsample", f"stage_{i}_merging"
            )
        ]
        return KeyMap(
            *patches(),
            *torch_norm("embeddings.norm", "embedding_norm"),
            *merged,
            *block(_BLOCK, ours, "attention.self."),
            (
                _BLOCK + "attention.self.relative_position_bias_table",
                ours + "attention/position_bias",
            ),
            *torch_norm("layernorm", "encoder_norm"),
            *torch_dense("classifier", "head"),
        )


def _arguments(shapes: Shapes, tables: list[tuple[int, ...]]) -> dict[str, Any]:
    """Returns the builder's arguments that the tensors determine."""
    last, patch = len(tables) - 1, shapes.square_patch(PATCHES)
    window = (round(tables[0][0] ** 0.5) + 1) // 2  # M; a table has (2M - 1)² rows
    first = _BLOCK.format(i=last, j=0)
    hidden, channels = shapes.of(first + "intermediate.dense.weight", 2)
    return {
        "patch_size": patch,
        "window_size": window,
        # In all published models the last map is one window.
        "image_size": sized(window * patch * 2**last),
        "channels": shapes.of(PATCHES, 4)[1],
        "num_classes": shapes.side("classifier.weight", 0, 2, default=0),
        # The last stage has the smallest rounding error.
        "mlp_ratio": hidden / channels,
        "qkv_bias": first + "attention.self.query.bias" in shapes,
        "epsilon": 1e-5,
    }


def _check_shifts(kwargs: dict[str, Any], whence: str) -> None:
    """Raises for images of which a map is one window in one direction only.

    transformers does not shift windows on such maps; kerasvit shifts them along the
    longer side.
    """
    height, width = kwargs["image_size"]
    pixels = longest_window(kwargs)
    if height != width and min(height, width) <= pixels:
        raise CheckpointError(
            f"{whence} {height} × {width}. kerasvit computes the same as transformers "
            "only for square images, and for images with both sides longer than "
            f"{pixels}."
        )
