"""Google's `.npz` files of hybrids: google-research/vision_transformer.

Flax names as vit_jax/models_vit.py and vit_jax/models_resnet.py write them. The weights
of the ResNet's normalisations have shape (1, 1, 1, C) in released files and (C,) in
later ones.
"""

from collections.abc import Iterator, Set
from dataclasses import replace
from typing import Any

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import KeyMap, Transform, reshaped
from . import google_vit
from .big_transfer import unless_standard
from .google import GoogleSource
from .source import count, count_stages

_SHARED = ("num_classes", "pool", "representation_size", "activation", "epsilon")


class GoogleHybrid(GoogleSource):
    """Vision Transformers on the feature map of a ResNet."""

    builder = "HybridVisionTransformer"

    def recognises(self, names: Set[str]) -> bool:
        return "conv_root/kernel" in names and google_vit.holds_transformer(names)

    def describe(self, shapes: Shapes, config: Config) -> Description:
        vit = google_vit.describe_vit(shapes)
        stages = count_stages(shapes, "block{}/unit1/conv1/kernel", start=1)
        units = [
            count(shapes, f"block{i + 1}/unit{{}}/conv1/kernel", start=1)
            for i in range(stages)
        ]
        *_, channels, root = shapes.of("conv_root/kernel", 4)
        widths = [
            shapes.of(f"block{i + 1}/unit1/conv3/kernel", 4)[-1] for i in range(stages)
        ]
        return replace(
            vit,
            builder=self.builder,
            numbers={"resnet_depths": units, **vit.numbers},
            arguments={
                **{key: vit.arguments[key] for key in _SHARED},
                "channels": channels,
                "width_factor": root / 64,
                "stage_widths": unless_standard(widths, root),
                "group_epsilon": 1e-6,  # flax.linen.GroupNorm's default
                "kernel_epsilon": 1e-5,  # models_resnet.py, StdConv
                "add_to_deviation": True,
            },
            grid=TokenGrid(
                google_vit.TABLE,
                shapes.of(google_vit.TABLE, 3)[1],
                shapes.square_patch("embedding/kernel", 0) * stride(units),
                prefix=int(vit.arguments["pool"] == "token"),
            ),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        shapes = shapes or Shapes()
        flat = len(shapes.get("gn_root/scale", "NHWC")) == 1
        vector = reshaped((-1,) if flat else (1, 1, 1, -1))
        resnet = [*_pair("conv_root", "gn_root", "root_conv", "root_norm", vector)]
        for i, units in enumerate(kwargs["resnet_depths"]):
            for j in range(units):
                unit, ours = f"block{i + 1}/unit{j + 1}/", f"stage_{i}_unit_{j}/"
                for k in range(3):
                    resnet += _pair(
                        f"{unit}conv{k + 1}",
                        f"{unit}gn{k + 1}",
                        f"{ours}conv_{k}",
                        f"{ours}norm_{k}",
                        vector,
                    )
                resnet += _pair(
                    unit + "conv_proj",
                    unit + "gn_proj",
                    ours + "projection",
                    ours + "projection_norm",
                    vector,
                )
        transformer = google_vit.rules({**kwargs, "positions": "tokens"}, shapes)
        return KeyMap(*resnet, *transformer)


def stride(resnet_depths: list[int]) -> int:
    """Returns the stride of the ResNet's feature map in pixels."""
    return 4 * 2 ** max(len(resnet_depths) - 1, 0)


def _pair(
    conv: str, norm: str, our_conv: str, our_norm: str, vector: Transform
) -> Iterator[tuple]:
    """Yields the rules of a convolution and the normalisation after it."""
    yield f"{conv}/kernel", f"{our_conv}/kernel"
    yield f"{norm}/scale", f"{our_norm}/gamma", vector
    yield f"{norm}/bias", f"{our_norm}/beta", vector
