"""Hugging Face transformers' BiTs.

Tensor names as `BitForImageClassification` and `BitModel` write them, the latter
without the prefix "bit."; transformers/models/bit/modeling_bit.py. The ResNets of
transformers' hybrids have the layer type "bottleneck", which this source does not read.
"""

from collections.abc import Set
from typing import Any

from ..config import Config, Shapes
from ..description import Description
from ..key_map import CONVOLUTION, KeyMap, torch_dense, torch_norm
from ..reader import CheckpointError
from .big_transfer import unless_standard
from .timm_bit import TimmBiT, stages, unit_rules
from .transformers import TransformersSource, check, label_names

_ROOT = "embedder.convolution.weight"
_UNIT = "encoder.stages.{i}.layers.{j}."


class TransformersBiT(TransformersSource):
    """BiTs. No tensor depends on the image size, so `kernel` is not used."""

    builder = "BigTransfer"
    kernel = TimmBiT.kernel

    def recognises(self, names: Set[str]) -> bool:
        return {_ROOT, _UNIT.format(i=0, j=0) + "conv3.weight"} <= names

    def describe(self, shapes: Shapes, config: Config) -> Description:
        units, root = stages(shapes, _UNIT), shapes.of(_ROOT, 4)[0]
        depths = [len(stage) for stage in units]
        widths = [stage[0] for stage in units]
        built = {
            "embedding_size": root,
            "hidden_sizes": widths,
            "depths": depths,
            "width_factor": 1,  # transformers' model fails with other values
            "layer_type": "preactivation",
            "hidden_act": "relu",
            "num_groups": 32,
            "global_padding": None,
            "embedding_dynamic_padding": False,
        }
        check(config, built)
        _check_stride(config, len(units))
        usual = "ReLU, 32 groups, an output_stride of 32 and no global_padding"
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={"depths": depths, "width_factor": root / 64},
            arguments={
                "channels": shapes.of(_ROOT, 4)[1],
                "num_classes": shapes.side("classifier.1.weight", 0, 2, default=0),
                "stage_widths": unless_standard(widths, root),
                "conv_epsilon": 1e-8,  # `eps` of every WeightStandardizedConv2d
                "epsilon": 1e-5,  # BitGroupNormActivation's default
            },
            kernel=self.kernel,
            image_size=config.image_size("image_size"),
            label_names=label_names(config),
            assumptions=() if config.get("model_type") else (usual,),
            architecture=config.text("model_type"),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        return KeyMap(
            (_ROOT, "root_conv/kernel", CONVOLUTION),
            *unit_rules(_UNIT),
            *torch_norm("norm", "final_norm"),
            *torch_dense("classifier.1", "head"),
        )

    def short_name(self, name: str) -> str:
        return name.removeprefix("bit.")


def _check_stride(config: Config, stages: int) -> None:
    """Raises if the configuration states stages that do not halve the map."""
    stride = config.integer("output_stride")
    stride = 32 if stride is None else stride
    if stride <= 2**stages:  # the stride before the last stage
        raise CheckpointError(
            f"config.json states output_stride={stride}, with which some stages do not "
            f"halve the map. kerasvit builds {2 ** (stages + 1)}: each stage except "
            "the first halves the map."
        )
