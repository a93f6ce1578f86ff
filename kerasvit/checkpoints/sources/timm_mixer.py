"""timm's MLP-Mixers.

Tensor names and layouts as timm/models/mlp_mixer.py writes them.
"""

from collections.abc import Set
from typing import Any

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import CONVOLUTION, KeyMap, torch_dense, torch_norm
from ..reader import CheckpointError
from .source import count, names_of_classes
from .timm import TimmSource, cfg, differing, image_size, model_args, ratio

_TOKENS = "blocks.0.mlp_tokens.fc1.weight"
_CHANNELS = "blocks.0.mlp_channels.fc1.weight"
_NAMES: dict[
    tuple[int, ...], str
] = {  # {(patch size, depth, width): timm's model}; they are no arguments
    (32, 8, 512): "mixer_s32_224",
    (16, 8, 512): "mixer_s16_224",
    (32, 12, 768): "mixer_b32_224",
    (16, 12, 768): "mixer_b16_224",
    (32, 24, 1024): "mixer_l32_224",
    (16, 24, 1024): "mixer_l16_224",
}


class TimmMixer(TimmSource):
    """MLP-Mixers without the gates of gMixers."""

    builder = "MLPMixer"

    def recognises(self, names: Set[str]) -> bool:
        return "stem.proj.weight" in names and _TOKENS in names

    def describe(self, shapes: Shapes, config: Config) -> Description:
        _check_pool(config)
        classes = shapes.side("head.weight", 0, 2, default=0)
        numbers = _numbers(shapes)
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers=numbers,
            arguments={
                "channels": shapes.of("stem.proj.weight", 4)[1],
                "num_classes": classes,
                "activation": "gelu",
                "epsilon": 1e-6,
            },
            kernel=self.kernel,
            grid=TokenGrid(_TOKENS, shapes.of(_TOKENS, 2)[1], numbers["patch_size"]),
            image_size=image_size(config),
            label_names=names_of_classes(config.names("label_names"), classes),
            architecture=config.text("architecture"),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        block, ours = "blocks.{i}.", "mixer_block_{i}/"
        return KeyMap(
            ("stem.proj.weight", "stem/kernel", CONVOLUTION),
            ("stem.proj.bias", "stem/bias"),
            *torch_norm(block + "norm1", ours + "token_norm"),
            *torch_dense(block + "mlp_tokens.fc1", ours + "token_mixing/dense_0"),
            *torch_dense(block + "mlp_tokens.fc2", ours + "token_mixing/dense_1"),
            *torch_norm(block + "norm2", ours + "channel_norm"),
            *torch_dense(block + "mlp_channels.fc1", ours + "channel_mixing/dense_0"),
            *torch_dense(block + "mlp_channels.fc2", ours + "channel_mixing/dense_1"),
            *torch_norm("norm", "pre_head_norm"),
            *torch_dense("head", "head"),
        )

    def differs(self, record: dict[str, Any]) -> str | None:
        # timm's Mixers always have the exact GELU and LayerNorm epsilon 1e-6. The name
        # determines patch size, depth and width; `model_args` states the other numbers.
        sizes = {"(patch_size, depth, width)": _name(record["kwargs"])}
        return differing(
            {**record["kwargs"], **sizes},
            {**dict.fromkeys(sizes, _NAMES), "activation": ["gelu"], "epsilon": [1e-6]},
        )

    def config_of(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        width = kwargs["width"]
        return {
            "architecture": _NAMES[_name(kwargs)],
            "num_classes": kwargs["num_classes"],
            "num_features": width,
            "pretrained_cfg": cfg("stem.proj", "head"),
            "global_pool": "avg",
            "model_args": {
                "img_size": list(kwargs["image_size"]),
                "mlp_ratio": [
                    ratio(kwargs["tokens_mlp_dim"], width),
                    ratio(kwargs["channels_mlp_dim"], width),
                ],
            },
        }


def _check_pool(config: Config) -> None:
    """Raises if the configuration asks for a pooling other than the average."""
    pool = model_args(config).get("global_pool", config.get("global_pool", "avg"))
    if pool != "avg":
        raise CheckpointError(
            f"The configuration asks for timm's pooling {pool!r:.200}. kerasvit builds "
            "only avg, the average over the tokens."
        )


def _numbers(shapes: Shapes) -> dict[str, Any]:
    """Returns the numbers that identify the architecture."""
    tokens_mlp_dim = shapes.of(_TOKENS, 2)[0]
    if shapes.of("blocks.0.mlp_tokens.fc2.weight", 2)[1] != tokens_mlp_dim:
        raise CheckpointError(
            "The file holds a gMixer of timm, an MLP-Mixer with gates. kerasvit builds "
            "only MLP-Mixers without gates, timm's mixer_*."
        )
    return {
        "patch_size": shapes.patch_size("stem.proj.weight"),
        "width": shapes.of("stem.proj.weight", 4)[0],
        "depth": count(shapes, "blocks.{}.norm1.weight"),
        "tokens_mlp_dim": tokens_mlp_dim,
        "channels_mlp_dim": shapes.of(_CHANNELS, 2)[0],
    }


def _name(kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Returns the numbers that timm's name of a Mixer determines."""
    return tuple(kwargs[key] for key in ("patch_size", "depth", "width"))
