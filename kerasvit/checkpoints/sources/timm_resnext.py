"""timm's ResNeXts and bottleneck ResNets: names of timm/models/resnet.py.

torchvision's models have the same names and compute the same.
"""

from collections.abc import Set
from typing import Any

from ..config import Config, Shapes
from ..description import Description
from ..key_map import CONVOLUTION, KeyMap, torch_batch_norm, torch_dense
from ..reader import CheckpointError, printable
from .source import count, count_stages, names_of_classes
from .timm import TimmSource, cfg, differing, model_args

_NEEDED = {"bn1.running_mean", "layer1.0.conv3.weight", "layer1.0.bn3.running_mean"}
_CONV = "layer{}.{}.conv3.weight"
R26, R50, R101 = [2, 2, 2, 2], [3, 4, 6, 3], [3, 4, 23, 3]
R152, R200 = [3, 8, 36, 3], [3, 24, 36, 3]
# {timm's model: (units per stage, groups, channels of a group)}.
_ARCHITECTURES = {
    "resnext50_32x4d": (R50, 32, 4),
    "resnext101_32x4d": (R101, 32, 4),
    "resnext101_32x8d": (R101, 32, 8),
    "resnext101_32x16d": (R101, 32, 16),
    "resnext101_32x32d": (R101, 32, 32),
    "resnext101_32x48d": (R101, 32, 48),
    "resnext101_64x4d": (R101, 64, 4),
    "resnet26": (R26, 1, 64),
    "resnet50": (R50, 1, 64),
    "resnet101": (R101, 1, 64),
    "resnet152": (R152, 1, 64),
    "resnet200": (R200, 1, 64),
    "wide_resnet50_2": (R50, 1, 128),
    "wide_resnet101_2": (R101, 1, 128),
}
_ASSUMED = ("ReLU, max-pooling in the stem, strides in the 3 × 3 convolutions",)
# `_cfg` there, and transforms/_presets.py of torchvision.
_TRANSFORM = {
    "crop": 0.875,
    "kernel": "bilinear",
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
}
# The tensors determine the first four, and the others do not affect inference.
_KNOWN_ARGUMENTS = {
    "layers", "cardinality", "base_width", "channels", "num_classes", "in_chans",
    "global_pool", "drop_rate", "drop_path_rate", "drop_block_rate", "zero_init_last",
}  # fmt: skip


class TimmResNeXt(TimmSource):
    """ResNets of bottlenecks with batch normalisation after each convolution."""

    builder = "ResNeXt"

    def recognises(self, names: Set[str]) -> bool:
        return names >= _NEEDED

    def describe(self, shapes: Shapes, config: Config) -> Description:
        _refuse_unlike(config)
        depths = [
            count(shapes, _CONV.format(i + 1, "{}"))
            for i in range(count_stages(shapes, _CONV.format("{}", 0), 1))
        ]
        self._refuse_other_tensors(shapes, depths)
        stem = shapes.of("conv1.weight", 4)
        inside, group_width, *_ = shapes.of("layer1.0.conv2.weight", 4)
        classes = shapes.side("fc.weight", 0, 2, default=0)
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={
                "depths": depths,
                "groups": inside // group_width,
                "group_width": group_width,
                "stem": "imagenet",
            },
            arguments={
                "channels": stem[1],
                "num_classes": classes,
                "width": shapes.of(_CONV.format(1, 0), 4)[0],
                "stem_width": stem[0],
            },
            kernel=self.kernel,
            label_names=names_of_classes(config.names("label_names"), classes),
            architecture=config.text("architecture"),
            assumptions=() if config.text("architecture") else _ASSUMED,
            transform=_TRANSFORM,
        )

    def _refuse_other_tensors(self, shapes: Shapes, depths: list[int]) -> None:
        """Raises for stems, shortcuts and units of other ResNets of timm."""
        known = self.key_map({"depths": depths})
        other = sorted(name for name in shapes if known.find(name) is None)
        if other:
            raise CheckpointError(
                f"it is a ResNet with {len(other)} tensors that kerasvit's ResNeXt "
                f"does not have: {', '.join(map(printable, other[:4]))}. Of timm's "
                "ResNets kerasvit builds those with a stem of one convolution, "
                "bottlenecks, and shortcuts of a convolution and a normalisation: "
                f"{', '.join(_ARCHITECTURES)}."
            )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        rules: list[tuple] = []
        for i in range(len(kwargs["depths"])):
            unit, ours = f"layer{i + 1}.{{j}}.", f"stage_{i}_unit_{{j}}/"
            shortcut = (unit + "downsample.0", ours + "projection")
            names = [(f"{unit}conv{k + 1}", f"{ours}conv_{k}") for k in range(3)]
            for name, path in (*names, shortcut):
                rules.append((name + ".weight", path + "/kernel", CONVOLUTION))
            for k in range(3):
                rules += torch_batch_norm(f"{unit}bn{k + 1}", f"{ours}norm_{k}")
            rules += torch_batch_norm(unit + "downsample.1", ours + "projection_norm")
        return KeyMap(
            ("conv1.weight", "stem/kernel", CONVOLUTION),
            *torch_batch_norm("bn1", "stem_norm"),
            *rules,
            *torch_dense("fc", "head"),
        )

    def dropped(self, name: str, names: Set[str]) -> str | None:
        if name.endswith(".num_batches_tracked"):
            return "number of batches seen, which a fixed momentum does not use"
        return None

    def differs(self, record: dict[str, Any]) -> str | None:
        kwargs = record["kwargs"]
        # timm computes the channels of a group from `base_width`, an integer.
        whole = kwargs["width"] % 4 == 0 == _base_width(kwargs) % 1
        return differing(
            {**kwargs, "number of stages": len(kwargs["depths"])},
            {
                "stem": ["imagenet"],
                "stem_width": [64],
                "number of stages": [4],
                "group_width": [kwargs["group_width"] if whole else "of a base_width"],
            },
        )

    def config_of(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        own = (kwargs["depths"], kwargs["groups"], _base_width(kwargs))
        named = (name for name, each in _ARCHITECTURES.items() if each == own)
        name = next(named, "resnext50_32x4d")
        layers, groups, base_width = own
        args: dict[str, Any] = {}
        if _ARCHITECTURES[name] != own:
            args = {
                "layers": layers,
                "cardinality": groups,
                "base_width": int(base_width),
            }
        if kwargs["width"] != 256:
            args["channels"] = [kwargs["width"] // 4 * 2**i for i in range(4)]
        return {
            "architecture": name,
            "num_classes": kwargs["num_classes"],
            "num_features": kwargs["width"] * 8,
            "pretrained_cfg": cfg("conv1", "fc", fixed_input_size=False),
            "global_pool": "avg",
            "model_args": args,
        }


def _base_width(kwargs: dict[str, Any]) -> float:
    """Returns timm's `base_width`: channels of a group, relative to `width` 256."""
    return 256 * kwargs["group_width"] / kwargs["width"]


def _refuse_unlike(config: Config) -> None:
    """Raises if the configuration describes another of timm's ResNets."""
    args, name = model_args(config), config.text("architecture")
    pool = args.get("global_pool", config.get("global_pool") or "avg")
    other = sorted(set(args) - _KNOWN_ARGUMENTS)
    if pool != "avg" or other or name not in ("", *_ARCHITECTURES):
        raise CheckpointError(
            f"The configuration asks for timm's {printable(name or 'ResNet')} with "
            f"the pooling {pool!r:.200} and the arguments {other!r:.500}. Of timm's "
            f"ResNets kerasvit builds {', '.join(_ARCHITECTURES)}, with the pooling "
            "avg."
        )
