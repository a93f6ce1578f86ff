"""torchvision's Vision Transformers and Swin Transformers.

Tensor names as torchvision/models/vision_transformer.py and swin_transformer.py write
them. No file states the number of heads of a ViT, 64 channels each in `vit_b_16`,
`vit_b_32`, `vit_l_16` and `vit_l_32`, 80 in `vit_h_14`.
"""

import itertools
import re
from collections.abc import Iterator, Set
from typing import Any, Protocol

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import CONVOLUTION, KeyMap, stacked, torch_dense, torch_norm
from ..reader import CheckpointError
from .source import MAX_STAGES, Source, count, names_of_classes, sized
from .timm_swin import TimmSwin, longest_window, merging, swin_block
from .timm_vit import TimmViT

_PATCHES, _TABLE = "conv_proj.weight", "encoder.pos_embedding"
_BLOCK = "encoder.layers.encoder_layer_{i}."
# Sizes to which images are resized before the crop of 224 pixels, by width and longest
# stage; `Swin_T_Weights` and so on.
_RESIZED = {(96, 6): 232, (96, 18): 246, (128, 18): 238}


class TorchvisionSource(Source, Protocol):
    """Base class of torchvision's models.

    Attributes:
        head: Beginning of the names of the classifier's tensors.
    """

    code_base: str = "torchvision"
    head: str

    def short_name(self, name: str) -> str:
        # MLPs in files of torchvision before 0.14: `MLPBlock._load_from_state_dict`.
        return re.sub(
            r"\.mlp\.linear_([12])\.",
            lambda found: f".mlp.{3 * int(found[1]) - 3}.",
            name,
        )

    def classes(self, shapes: Shapes) -> int:
        """Returns the number of classes; 0 without a classifier."""
        last = [*self._classifier(shapes)][-1:]
        return shapes.of(last[0], 2)[0] if last else 0

    def head_rules(
        self, kwargs: dict[str, Any], shapes: Shapes | None
    ) -> tuple[tuple, ...]:
        """Returns the rules of the classifier.

        A training may have put another in its place: `heads` of one layer, or of
        several in a `Sequential`, in which Dropout has no tensors.

        Raises:
            CheckpointError: A classifier of several layers would be loaded.
        """
        names = [*self._classifier(shapes or Shapes())]
        if len(names) < 2:
            own = f"{self.head}.weight"
            return torch_dense((names or [own])[0].removesuffix(".weight"), "head")
        classes = self.classes(shapes or Shapes())
        if kwargs["num_classes"] == classes:
            raise CheckpointError(
                f"The classifier of {classes} classes has {len(names)} layers, "
                f"{', '.join(names)}; kerasvit builds one. Pass `num_classes`: your "
                "number for a fresh head, or 0 for features."
            )
        return (
            *((name, f"head/{name}") for name in names),
            *((f"{n[:-6]}bias", f"head/{n[:-6]}bias") for n in names),
        )

    def _classifier(self, shapes: Shapes) -> Iterator[str]:
        """Yields the names of the kernels of the classifier."""
        first = self.head.partition(".")[0]
        pattern = rf"{first}(\.head)?(\.\d+)*\.weight"
        yield from (name for name in shapes if re.fullmatch(pattern, name))


class TorchvisionViT(TorchvisionSource):
    """Vision Transformers; `kernel` is timm's, torchvision has a tool for it only."""

    builder = TimmViT.builder
    kernel = TimmViT.kernel
    head = "heads.head"

    def recognises(self, names: Set[str]) -> bool:
        return _TABLE in names and _BLOCK.format(i=0) + "ln_1.weight" in names

    def describe(self, shapes: Shapes, config: Config) -> Description:
        if _PATCHES not in shapes and "conv_proj.conv_last.weight" in shapes:
            raise CheckpointError(
                "It is a ViT with `conv_stem_configs`, which embeds patches by several "
                "convolutions. kerasvit builds those with one, such as vit_b_16."
            )
        width, channels, *_ = shapes.of(_PATCHES, 4)
        patch = shapes.square_patch(_PATCHES)
        classes, rows = self.classes(shapes), shapes.of(_TABLE, 3)[1]
        transform: dict[str, Any] = {}
        if patch == 14 or (rows - 1) * patch**2 >= 384**2:
            transform = {"crop": 1.0, "kernel": "bicubic"}  # of `*_swag` weights
        elif (width, patch) == (1024, 16):
            transform = {"crop": _crop(242)}
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={
                "patch_size": patch,
                "width": width,
                "depth": count(shapes, _BLOCK.format(i="{}") + "ln_1.weight"),
                "mlp_dim": shapes.of(_BLOCK.format(i=0) + "mlp.0.weight", 2)[0],
            },
            arguments={
                "channels": channels,
                "num_classes": classes,
                "pool": "token",
                "class_token": True,
                "register_tokens": 0,
                "positions": "tokens",
                "representation_size": shapes.side("heads.pre_logits.weight", 0, 2),
                "qkv_bias": True,
                "layer_scale": None,
                "activation": "gelu",
                "epsilon": 1e-6,
            },
            kernel=self.kernel,
            grid=TokenGrid(_TABLE, rows, patch, prefix=1),
            label_names=names_of_classes(None, classes),
            open_arguments=("num_heads",),
            transform=transform,
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        ours, attention = "encoder_block_{i}/", _BLOCK + "self_attention."
        qkv = [f"{ours}attention/{name}" for name in ("query", "key", "value")]
        return KeyMap(
            ("class_token", "class_token/tokens"),
            (_TABLE, "position_embedding/table"),
            (_PATCHES, "embedding/kernel", CONVOLUTION),
            ("conv_proj.bias", "embedding/bias"),
            *torch_norm(_BLOCK + "ln_1", ours + "attention_norm"),
            *(
                (f"{attention}in_proj_{name}", tuple(f"{n}/{part}" for n in qkv), three)
                for three in [stacked(3)]
                for name, part in (("weight", "kernel"), ("bias", "bias"))
            ),
            *torch_dense(attention + "out_proj", ours + "attention/output"),
            *torch_norm(_BLOCK + "ln_2", ours + "mlp_norm"),
            *torch_dense(_BLOCK + "mlp.0", ours + "mlp/dense_0"),
            *torch_dense(_BLOCK + "mlp.3", ours + "mlp/dense_1"),
            *torch_norm("encoder.ln", "encoder_norm"),
            *torch_dense("heads.pre_logits", "pre_logits"),
            *self.head_rules(kwargs, shapes),
        )


class TorchvisionSwin(TorchvisionSource):
    """Swin Transformers, not Swin V2. torchvision resamples no tables.

    Of the modules in `features`, the first embeds patches, those with odd numbers are
    stages, and the others merge patches.
    """

    builder = TimmSwin.builder
    kernel = TimmSwin.kernel
    head = "head"

    def recognises(self, names: Set[str]) -> bool:
        return {"features.0.0.weight", "features.1.0.attn.qkv.weight"} <= names

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name.endswith(".relative_position_index"):
            return "computed from the window size"
        return None

    def describe(self, shapes: Shapes, config: Config) -> Description:
        if "features.1.0.attn.logit_scale" in shapes:
            raise CheckpointError(
                "It is a Swin Transformer V2, whose attention compares angles and "
                "computes positions. kerasvit has no Swin V2: use swin_t, swin_s or "
                "swin_b, or timm for this file."
            )
        width, channels, *_ = shapes.of("features.0.0.weight", 4)
        patch = shapes.square_patch("features.0.0.weight")
        first = _first_blocks(shapes)
        tables = [shapes.of(f"{n}attn.relative_position_bias_table", 2) for n in first]
        hidden, inputs = shapes.of(f"{first[-1]}mlp.0.weight", 2)
        window = (round(tables[0][0] ** 0.5) + 1) // 2
        if {rows for rows, _ in tables} != {(2 * window - 1) ** 2}:
            raise CheckpointError(
                "Its attention windows are no squares of one size: its tables of "
                f"relative positions have {', '.join(str(n) for n, _ in tables)} rows. "
                "kerasvit builds windows of M × M, whose tables have (2M - 1)² rows."
            )
        depths = [
            count(shapes, f"features.{2 * i + 1}.{{}}.norm1.weight")
            for i in range(len(first))
        ]
        classes = self.classes(shapes)
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={
                "width": width,
                "depths": depths,
                "num_heads": [heads for _, heads in tables],
            },
            arguments={
                "patch_size": patch,
                "window_size": window,
                # In all published models the last map is one window.
                "image_size": sized(window * patch * 2 ** (len(first) - 1)),
                "channels": channels,
                "num_classes": classes,
                # The last stage has the smallest rounding error.
                "mlp_ratio": hidden / inputs,
                "qkv_bias": f"{first[0]}attn.qkv.bias" in shapes,
                "epsilon": 1e-5,
            },
            kernel=self.kernel,
            label_names=names_of_classes(None, classes),
            transform={
                "crop": _crop(_RESIZED.get((width, max(depths)), 256)),
                "kernel": "bicubic",
            },
        )

    def check_size(self, kwargs: dict[str, Any], shapes: Shapes) -> None:
        height, width = kwargs["image_size"]
        pixels = longest_window(kwargs)
        if min(height, width) < pixels:
            raise CheckpointError(
                f"Received: images of {height} × {width}. torchvision fills maps that "
                "are smaller than a window with zeros, which attention sees, and "
                "kerasvit does not. It computes the same for images whose sides have "
                f"at least {pixels} pixels."
            )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        rules: list[tuple] = []
        for i in range(len(kwargs["depths"])):
            block, ours = f"features.{2 * i + 1}.{{j}}.", f"stage_{i}_block_{{j}}/"
            rules += swin_block(block, ours, ("mlp.0", "mlp.3"))
            rules += merging(f"features.{2 * i}", f"stage_{i}_merging") if i else ()
        return KeyMap(
            ("features.0.0.weight", "embedding/kernel", CONVOLUTION),
            ("features.0.0.bias", "embedding/bias"),
            *torch_norm("features.0.2", "embedding_norm"),
            *rules,
            *torch_norm("norm", "encoder_norm"),
            *self.head_rules(kwargs, shapes),
        )


def _first_blocks(shapes: Shapes) -> list[str]:
    """Returns the beginning of the names of each stage's first block, at least one."""
    names = [f"features.{2 * i + 1}.0." for i in range(MAX_STAGES)]
    found = itertools.takewhile(lambda name: f"{name}norm1.weight" in shapes, names)
    return [*found] or names[:1]


def _crop(resized: int) -> float:
    """Returns the `crop` for which 224 / `crop`, rounded down, is `resized`."""
    return 224 / (resized + 0.5)
