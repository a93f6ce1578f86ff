"""timm's BiTs: tensor names and layouts as timm/models/resnetv2.py writes them."""

from collections.abc import Set
from typing import Any

from ..config import Config, Shapes
from ..description import Description
from ..key_map import CONVOLUTION, TORCH_POINTWISE, KeyMap, torch_norm
from ..reader import CheckpointError, printable
from .big_transfer import unless_standard
from .source import count, count_stages, names_of_classes
from .timm import TimmSource, cfg, differing, image_size, model_args

_UNIT = "stages.{i}.blocks.{j}."
# {timm's model: (units per stage, factor of all channels)}.
_ARCHITECTURES = {
    "resnetv2_50x1_bit": ([3, 4, 6, 3], 1),
    "resnetv2_50x3_bit": ([3, 4, 6, 3], 3),
    "resnetv2_101x1_bit": ([3, 4, 23, 3], 1),
    "resnetv2_101x3_bit": ([3, 4, 23, 3], 3),
    "resnetv2_152x2_bit": ([3, 8, 36, 3], 2),
    "resnetv2_152x4_bit": ([3, 8, 36, 3], 4),
}
# The model's name determines the units and the factor; there are no arguments for them.
_KNOWN_ARGUMENTS = {
    "channels", "stem_chs", "num_classes", "in_chans", "global_pool", "drop_rate",
    "drop_path_rate", "zero_init_last",
}  # fmt: skip


class TimmBiT(TimmSource):
    """Bottleneck ResNets v2 with group normalisation."""

    builder = "BigTransfer"

    def recognises(self, names: Set[str]) -> bool:
        unit = _UNIT.format(i=0, j=0)
        needed = {"stem.conv.weight", "norm.weight", unit + "downsample.conv.weight"}
        needed |= {unit + "norm1.weight", unit + "conv3.weight"}
        return needed <= names and "norm.running_mean" not in names

    def describe(self, shapes: Shapes, config: Config) -> Description:
        _refuse_unlike(config)
        units, root = stages(shapes, _UNIT), shapes.of("stem.conv.weight", 4)[0]
        classes = shapes.side("head.fc.weight", 0, 4, default=0)
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={
                "depths": [len(widths) for widths in units],
                "width_factor": root / 64,
            },
            arguments={
                "channels": shapes.of("stem.conv.weight", 4)[1],
                "num_classes": classes,
                "stage_widths": unless_standard([stage[0] for stage in units], root),
                "conv_epsilon": 1e-8,  # _create_resnetv2_bit
                "epsilon": 1e-5,  # GroupNormAct's default
            },
            kernel=self.kernel,
            image_size=image_size(config),
            label_names=names_of_classes(config.names("label_names"), classes),
            architecture=config.text("architecture"),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        return KeyMap(
            ("stem.conv.weight", "root_conv/kernel", CONVOLUTION),
            *unit_rules(_UNIT),
            *torch_norm("norm", "final_norm"),
            ("head.fc.weight", "head/kernel", TORCH_POINTWISE),
            ("head.fc.bias", "head/bias"),
        )

    def differs(self, record: dict[str, Any]) -> str | None:
        # In timm the name determines the depths, and both epsilons are fixed. The
        # channels are an argument; a shorter list gives a model with fewer stages.
        stages = len(record["kwargs"]["depths"])
        depths = [layers[:stages] for layers, _ in _ARCHITECTURES.values()]
        return differing(
            record["kwargs"],
            {"depths": depths, "conv_epsilon": [1e-8], "epsilon": [1e-5]},
        )

    def config_of(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        depths, factor = kwargs["depths"], kwargs["width_factor"]
        fitting = {
            name: multiple
            for name, (layers, multiple) in _ARCHITECTURES.items()
            if layers[: len(depths)] == depths
        }
        widths = kwargs["stage_widths"]
        standard = widths is None and len(depths) == 4
        widths = widths or [int(256 * factor) * 2**i for i in range(len(depths))]
        # Prefer the name with the same factor.
        name = min(fitting, key=lambda name: fitting[name] != factor)
        args: dict[str, Any] = {}
        if not standard or fitting[name] != factor:
            args["stem_chs"] = int(64 * factor) // fitting[name]
            args["channels"] = [width // fitting[name] for width in widths]
        return {
            "architecture": name,
            "num_classes": kwargs["num_classes"],
            "num_features": widths[-1],
            "pretrained_cfg": cfg("stem.conv", "head.fc", fixed_input_size=False),
            "global_pool": "avg",
            "model_args": args,
        }


def _refuse_unlike(config: Config) -> None:
    """Raises if the configuration describes another model than timm's BiTs."""
    args, name = model_args(config), config.text("architecture") or "_bit"
    pool = args.get("global_pool", config.get("global_pool") or "avg")
    other = sorted(set(args) - _KNOWN_ARGUMENTS)
    if pool != "avg" or other or not name.endswith("_bit"):
        raise CheckpointError(
            f"The configuration asks for timm's {printable(name)} with the pooling "
            f"{pool!r:.200} and the arguments {other!r:.500}. kerasvit builds only "
            "timm's BiTs, resnetv2_…_bit, with the pooling avg."
        )


def stages(shapes: Shapes, unit: str) -> list[list[int]]:
    """Returns the number of output channels of each unit of each stage.

    Args:
        unit: Prefix of a unit's tensor names, with `{i}` for the stage and `{j}` for
            the unit in the stage. The prefixes of timm and transformers differ.
    """
    kernel = unit + "conv3.weight"
    return [
        [
            shapes.of(kernel.format(i=i, j=j), 4)[0]
            for j in range(count(shapes, kernel.format(i=i, j="{}")))
        ]
        for i in range(count_stages(shapes, kernel.format(i="{}", j=0)))
    ]


def unit_rules(unit: str) -> list[tuple]:
    """Returns the rules of all units; `unit` is that of `stages`."""
    ours = "stage_{i}_unit_{j}/"
    rules = [(unit + "downsample.conv.weight", ours + "projection/kernel", CONVOLUTION)]
    for k in range(3):
        conv = (f"{unit}conv{k + 1}.weight", f"{ours}conv_{k}/kernel", CONVOLUTION)
        rules += [*torch_norm(f"{unit}norm{k + 1}", f"{ours}norm_{k}"), conv]
    return rules
