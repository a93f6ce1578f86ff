"""Hugging Face transformers' BEiT and data2vec-vision.

Tensor names as `BeitForImageClassification` and `Data2VecVisionForImageClassification`
write them, and `BeitModel` and `Data2VecVisionModel` without the first part;
transformers/models/beit/modeling_beit.py and data2vec/modeling_data2vec_vision.py.
"""

import math
import re
from collections.abc import Set
from typing import Any

from kerasvit.arguments import Size, whole_patches

from ..config import Config, Shapes
from ..description import Description
from ..key_map import KeyMap, torch_dense, torch_norm
from ..reader import CheckpointError
from .source import count
from .timm_beit import grid_of_patches, positions_of
from .transformers import (
    PATCHES,
    TABLE,
    TransformersSource,
    activation,
    block,
    check,
    former_name,
    heads,
    label_names,
    open_arguments,
    patches,
)

_BLOCK, _OURS = "encoder.layer.{i}.", "encoder_block_{i}/"
_BIAS = "relative_position_bias.relative_position_bias_table"
_OWN_TABLE = f"encoder.layer.0.attention.attention.{_BIAS}"
_SHARED_TABLE = f"encoder.{_BIAS}"
_QUERY = "encoder.layer.0.attention.attention.query.bias"
# What other heads have that kerasvit does not build.
_HEADS = {
    "lm_head.": "predicts masked patches (BeitForMaskedImageModeling)",
    "decode_head.": "segments images",
}
# (name of transformers 5, former name) of relative positions.
_FORMER = (
    (r"^shared_position_bias\.", "encoder.relative_position_bias."),
    (r"^(encoder\.layer\.\d+\.)relative_", r"\1attention.attention.relative_"),
)


class TransformersBEiT(TransformersSource):
    """BEiTs and data2vec's image models.

    `kernel` follows BeitRelativePositionBias.forward, which resamples bilinearly.
    """

    builder = "BEiTTransformer"
    kernel = "bilinear"

    def recognises(self, names: Set[str]) -> bool:
        own = {_OWN_TABLE, _SHARED_TABLE, "encoder.layer.0.lambda_1"}
        # Of all these models only BEiT has biases of queries but not of keys.
        biases = {_QUERY: True, _QUERY.replace("query", "key"): False}
        unlike = all((name in names) == has for name, has in biases.items())
        return PATCHES in names and (bool(own & names) or unlike)

    def short_name(self, name: str) -> str:
        name = former_name(re.sub(r"^(beit|data2vec_vision)\.", "", name))
        for pattern, former in _FORMER:
            name = re.sub(pattern, former, name)
        return name

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name.endswith("relative_position_index"):
            return "computed from the grid of the patches; older files hold it too"
        if name == "embeddings.mask_token":
            return "takes the place of masked patches in training only"
        return None

    def describe(self, shapes: Shapes, config: Config) -> Description:
        _check_head(shapes)
        patch = shapes.patch_size(PATCHES)
        numbers = {
            "patch_size": patch,
            "width": shapes.of(PATCHES, 4)[0],
            "depth": count(shapes, "encoder.layer.{}.layernorm_before.weight"),
            "mlp_dim": shapes.of("encoder.layer.0.intermediate.dense.weight", 2)[0],
        }
        tables = (_OWN_TABLE, _SHARED_TABLE, TABLE)
        position_bias, absolute, count_of_heads = positions_of(shapes, *tables)
        numbers |= {"num_heads": count_of_heads} if count_of_heads else heads(config)
        # A model without its pooler has no normalisation of means.
        behind = "pooler.layernorm.weight" in shapes
        before = "layernorm.weight" in shapes
        check(config, {"use_mean_pooling": not before})
        arguments: dict[str, Any] = {
            "channels": shapes.of(PATCHES, 4)[1],
            "num_classes": shapes.side("classifier.weight", 0, 2, default=0),
            "pool": "token" if before else "average_then_norm" if behind else "average",
            "position_bias": position_bias,
            "absolute_positions": absolute,
            "final_norm": before or behind,
            "qkv_bias": _QUERY in shapes,
            "layer_scale": None,
            "activation": activation(config, "gelu"),
            "epsilon": config.get("layer_norm_eps", 1e-12),
        }
        if "encoder.layer.0.lambda_1" in shapes:
            arguments["layer_scale"] = config.get("layer_scale_init_value", 0.1)
        stated = config.image_size("image_size")
        if position_bias != "none":
            _check_square(stated)
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers=numbers,
            arguments=arguments,
            # BeitEmbeddings.interpolate_pos_encoding resamples absolute positions.
            kernel="bicubic" if position_bias == "none" else self.kernel,
            grid=grid_of_patches(shapes, patch, stated, *tables),
            stride=patch,
            image_size=stated,
            label_names=label_names(config),
            open_arguments=tuple(
                name for name in open_arguments(config) if name != "num_heads"
            ),
            architecture=config.text("model_type"),
        )

    def check_size(self, kwargs: dict[str, Any], shapes: Shapes) -> None:
        if kwargs["position_bias"] == "none" or TABLE not in shapes:
            return
        grid = whole_patches(kwargs["image_size"], kwargs["patch_size"])
        trained = shapes.of(TABLE, 3)[1] - 1
        if None in grid or math.prod(grid) != trained:
            raise CheckpointError(
                "The file has both absolute and relative positions, which transformers "
                "resamples bicubically and bilinearly, and kerasvit by one method. "
                f"Use its own image size, of {trained} patches. Received: image_size="
                f"{kwargs['image_size']!r}."
            )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        behind = kwargs["pool"] == "average_then_norm"
        return KeyMap(
            ("embeddings.cls_token", "class_token/tokens"),
            (TABLE, "position_embedding/table"),
            *patches(),
            (_SHARED_TABLE, "position_bias/table"),
            *block(_BLOCK, _OURS, "attention.attention."),
            (
                f"{_BLOCK}attention.attention.{_BIAS}",
                _OURS + "attention/position_bias/table",
            ),
            (_BLOCK + "lambda_1", _OURS + "attention_scale"),
            (_BLOCK + "lambda_2", _OURS + "mlp_scale"),
            *torch_norm("pooler.layernorm" if behind else "layernorm", "encoder_norm"),
            *torch_dense("classifier", "head"),
        )


def _check_head(shapes: Shapes) -> None:
    """Raises for a head that kerasvit does not build."""
    for start, what in _HEADS.items():
        if any(name.startswith(start) for name in shapes):
            raise CheckpointError(
                f"The file has a head that {what}, which kerasvit does not build. "
                "Use the files of an image classifier or of the plain model."
            )


def _check_square(stated: Size | None) -> None:
    """Raises for relative positions of images that are not square."""
    if stated and stated[0] != stated[1]:
        raise CheckpointError(
            f"config.json states images of {stated[0]} × {stated[1]}. transformers "
            "swaps height and width of their tables of relative positions "
            "(BeitRelativePositionBias), and kerasvit does not. Use a model for square "
            "images, at any `image_size`."
        )
