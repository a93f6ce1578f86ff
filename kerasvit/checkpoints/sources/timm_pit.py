"""timm's PiTs and the authors' original files.

Tensor names and layouts as timm/models/pit.py writes them. Its `checkpoint_filter_fn`
converts the names of naver-ai/pit.
"""

import re
from collections.abc import Set
from typing import Any

import numpy as np

from kerasvit.arguments import Size

from ..config import Config, Shapes
from ..description import Description
from ..key_map import (
    CONVOLUTION,
    KeyMap,
    Transform,
    torch_dense,
    torch_norm,
    torch_stacked,
)
from ..reader import CheckpointError, printable
from .source import count, count_stages, names_of_classes, sized
from .timm import TimmSource, cfg, differing, image_size, input_size, model_args

_KERNEL = "patch_embed.conv.weight"
_FIRST = "transformers.{}.blocks.0.norm1.weight"
# {beginning of timm's names: (stride, heads of each stage)}.
_NAMED = {
    "pit_ti_": (8, [2, 4, 8]),
    "pit_xs_": (8, [2, 4, 8]),
    "pit_s_": (8, [3, 6, 12]),
    "pit_b_": (7, [4, 8, 16]),
}
# Arguments that are applied, that the tensors determine, and for training only.
_ARGUMENTS = {
    *("img_size", "stride", "heads", "global_pool", "distilled", "base_dims"),
    *("patch_size", "in_chans", "num_classes", "depth", "mlp_ratio", "stem_type"),
    *("drop_rate", "pos_drop_rate", "proj_drop_rate", "attn_drop_rate"),
    "drop_path_rate",
}


def _of_channels(a: np.ndarray) -> np.ndarray:
    """Lays out a depthwise kernel: (2C, 1, 3, 3) → (3, 3, C, 2)."""
    return a.reshape(-1, 2, *a.shape[2:]).transpose(2, 3, 0, 1)


def _of_torch(a: np.ndarray) -> np.ndarray:
    """Lays out a depthwise kernel: (3, 3, C, 2) → (2C, 1, 3, 3)."""
    return a.transpose(2, 3, 0, 1).reshape(-1, 1, *a.shape[:2])


_DEPTHWISE = Transform(lambda a: [_of_channels(a)], lambda arrays: _of_torch(*arrays))
_MAP = Transform(
    lambda a: [a.transpose(0, 2, 3, 1)], lambda arrays: arrays[0].transpose(0, 3, 1, 2)
)


class TimmPiT(TimmSource):
    """Pooling-based Vision Transformers, including those of naver-ai/pit.

    timm resamples no position tables; `kernel` is that of its ViTs. The table is a map,
    so that the `arguments` contain an image size with this grid.
    """

    builder = "PoolingVisionTransformer"

    def recognises(self, names: Set[str]) -> bool:
        return names >= {_KERNEL, _FIRST.format(0)}

    def short_name(self, name: str) -> str:
        """Returns timm's name for one of naver-ai/pit."""
        return re.sub(
            r"^pools\.(\d{1,2})\.",
            lambda match: f"transformers.{int(match[1]) + 1}.pool.",
            name,
        )

    def describe(self, shapes: Shapes, config: Config) -> Description:
        _refuse_unlike(config)
        width, channels, *_ = shapes.of(_KERNEL, 4)
        patch = shapes.square_patch(_KERNEL)
        stages = count_stages(shapes, _FIRST)
        named, heads = _named(config)
        stride = named or max(patch // 2, 1)  # of all published models
        numbers = {
            "patch_size": patch,
            "stride": stride,
            "width": width,
            "depths": [
                count(shapes, f"transformers.{i}.blocks.{{}}.norm1.weight")
                for i in range(stages)
            ],
            "distilled": shapes.of("cls_token", 3)[1] == 2,
        }
        if heads:
            numbers["num_heads"] = heads
        last = f"transformers.{stages - 1}.blocks.0.mlp.fc1.weight"
        hidden, inputs = shapes.of(last, 2)
        classes = shapes.side("head.weight", 0, 2, default=0)
        stated = {"stride": named, "num_heads": heads}
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers=numbers,
            arguments={
                "image_size": _image_size(shapes, config, patch, stride),
                "channels": channels,
                "num_classes": classes,
                # The last stage has the smallest rounding error.
                "mlp_ratio": hidden / inputs,
                "qkv_bias": "transformers.0.blocks.0.attn.qkv.bias" in shapes,
                "epsilon": 1e-6,
            },
            kernel=self.kernel,
            stride=patch,
            label_names=names_of_classes(config.names("label_names"), classes),
            open_arguments=tuple(key for key, value in stated.items() if not value),
            architecture=config.text("architecture"),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        block, ours = "transformers.{i}.blocks.{j}.", "stage_{i}_block_{j}/"
        pool, pooling = "transformers.{i}.pool.", "stage_{i}_pooling/"
        qkv = (f"{ours}attention/{name}" for name in ("query", "key", "value"))
        return KeyMap(
            ("cls_token", "class_token/tokens"),
            ("pos_embed", "position_embedding/table", _MAP),
            (_KERNEL, "embedding/kernel", CONVOLUTION),
            ("patch_embed.conv.bias", "embedding/bias"),
            (pool + "conv.weight", pooling + "kernel", _DEPTHWISE),
            (pool + "conv.bias", pooling + "bias"),
            *torch_dense(pool + "fc", pooling + "dense"),
            *torch_norm(block + "norm1", ours + "attention_norm"),
            *torch_stacked(block + "attn.qkv", *qkv),
            *torch_dense(block + "attn.proj", ours + "attention/output"),
            *torch_norm(block + "norm2", ours + "mlp_norm"),
            *torch_dense(block + "mlp.fc1", ours + "mlp/dense_0"),
            *torch_dense(block + "mlp.fc2", ours + "mlp/dense_1"),
            *torch_norm("norm", "encoder_norm"),
            *torch_dense("head", "head"),
            *torch_dense("head_dist", "head_distillation"),
        )

    def differs(self, record: dict[str, Any]) -> str | None:
        kwargs = record["kwargs"]
        if kwargs["resampling"] is not None:
            return "it takes images of any size, timm's of one"
        # timm rounds the MLPs' hidden sizes down.
        sizes = [channels * kwargs["mlp_ratio"] for channels in _channels(kwargs)]
        return differing(
            {**kwargs, "MLP": [int(size + 1e-6) for size in sizes]},
            {
                "epsilon": [1e-6],
                "qkv_bias": [True],
                "MLP": [[int(size) for size in sizes]],
            },
        )

    def config_of(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        distilled, channels = kwargs["distilled"], _channels(kwargs)
        heads = ["head", "head_dist"] if distilled else "head"
        return {
            # The size is arbitrary: `model_args` states all numbers.
            "architecture": "pit_s_distilled_224" if distilled else "pit_s_224",
            "num_classes": kwargs["num_classes"],
            "num_features": channels[-1],
            "global_pool": "token",
            "pretrained_cfg": cfg("patch_embed.conv", heads),
            "model_args": {
                "img_size": list(kwargs["image_size"]),
                "patch_size": kwargs["patch_size"],
                "stride": kwargs["stride"],
                "base_dims": [
                    each // heads
                    for each, heads in zip(channels, kwargs["num_heads"], strict=True)
                ],
                "depth": kwargs["depths"],
                "heads": kwargs["num_heads"],
                "mlp_ratio": kwargs["mlp_ratio"],
                "distilled": distilled,
            },
        }


def _channels(kwargs: dict[str, Any]) -> list[int]:
    """Returns the channels of each stage."""
    return [kwargs["width"] * 2**i for i in range(len(kwargs["depths"]))]


def _refuse_unlike(config: Config) -> None:
    """Raises if kerasvit cannot build timm's model."""
    args = model_args(config)
    other = sorted(
        key for key in args if args[key] is not None and key not in _ARGUMENTS
    )
    if other:
        raise CheckpointError(
            f"The configuration asks for timm's PiT with the arguments "
            f"{', '.join(map(printable, other))}, which kerasvit does not know. It "
            f"knows {', '.join(sorted(_ARGUMENTS))}."
        )
    if args.get("global_pool") not in (None, "token"):
        raise CheckpointError(
            f"The configuration asks for timm's pooling {args['global_pool']!r:.100}. "
            "kerasvit builds token only."
        )


def _named(config: Config) -> tuple[int | None, Any]:
    """Returns the stride and the heads of each stage; None where they are unknown."""
    name, args = config.text("architecture"), model_args(config)
    found = (each for start, each in _NAMED.items() if name.startswith(start))
    stride, heads = next(found, (None, None))
    return args.integer("stride") or stride, args.get("heads") or heads


def _image_size(shapes: Shapes, config: Config, patch: int, stride: int) -> Size:
    """Returns (height, width) of images with the grid of the position table.

    Raises:
        CheckpointError: The configuration states a size with another grid.
    """
    grid = shapes.of("pos_embed", 4)[2:]
    stated = image_size(config)
    for size in filter(None, (stated, input_size(config))):
        if [(side - patch) // stride + 1 for side in size] == [*grid]:
            return size
    if stated:
        raise CheckpointError(
            f"pos_embed has {grid[0]} × {grid[1]} patches of {patch} pixels at a "
            f"distance of {stride}, but its configuration states images of "
            f"{stated[0]} × {stated[1]}. Correct the configuration."
        )
    return sized([(cells - 1) * stride + patch for cells in grid])
