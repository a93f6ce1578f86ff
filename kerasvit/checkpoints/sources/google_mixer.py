"""Google's `.npz` files of MLP-Mixers: google-research/vision_transformer, big_vision.

Flax names as vit_jax/models_mixer.py and big_vision/models/mlp_mixer.py write them, or
the names from before flax.linen. `load` of the latter file reads both.
"""

import math
import re
from collections.abc import Iterable, Iterator, Set
from typing import Any

import numpy as np

from kerasvit.types import PatchSize

from ..config import Config, Shapes
from ..description import Description, TokenGrid
from ..key_map import KeyMap, Transform
from ..reader import CheckpointError
from .google import GoogleSource, dense, norm
from .source import count, names_of_classes

_PARTS = ("token_mixing", "channel_mixing")


class GoogleMixer(GoogleSource):
    """MLP-Mixers. Google's code resamples none; for `kernel` see `models.MLPMixer`."""

    builder = "MLPMixer"
    kernel = "bicubic_antialias"

    def recognises(self, names: Set[str]) -> bool:
        new = "stem/kernel" in names and any(n.startswith("MixerBlock_") for n in names)
        return new or _old(names)

    def describe(self, shapes: Shapes, config: Config) -> Description:
        names = _names(shapes)
        stem = f"{names['stem']}/kernel"
        *_, channels, width = shapes.of(stem, 4)
        patch = shapes.patch_size(stem, 0)
        hidden = {part: _hidden(shapes, names[part][0]) for part in _PARTS}
        classes = shapes.side("head/kernel", 1, 2, default=0)
        return Description(
            code_base=self.code_base,
            builder=self.builder,
            numbers={
                "patch_size": patch,
                "width": width,
                "depth": count(shapes, names["norms"][1].format(i="{}") + "/scale"),
                "tokens_mlp_dim": hidden["token_mixing"],
                "channels_mlp_dim": hidden["channel_mixing"],
            },
            arguments={
                "channels": channels,
                "num_classes": classes,
                "activation": "gelu_tanh",  # flax.linen.gelu's default
                "epsilon": 1e-6,  # flax.linen.LayerNorm's default
            },
            kernel=self.kernel,
            grid=_grid(shapes, names["token_mixing"][0], patch, hidden["token_mixing"]),
            label_names=names_of_classes(None, classes),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        shapes = shapes or Shapes()
        names, ours = _names(shapes), "mixer_block_{i}/"
        first, second = names["norms"]
        return KeyMap(
            *dense(names["stem"], "stem"),
            *norm(first, ours + "token_norm"),
            *_mixing(names["token_mixing"], ours + "token_mixing", shapes),
            *norm(second, ours + "channel_norm"),
            *_mixing(names["channel_mixing"], ours + "channel_mixing", shapes),
            *norm(names["norm"], "pre_head_norm"),
            *dense("head", "head"),
        )


def _old(shapes: Iterable[str]) -> bool:
    """Returns whether the names are from before flax.linen."""
    return any(name.startswith("Mixer/encoderblock_") for name in shapes)


def _names(shapes: Shapes) -> dict[str, Any]:
    """Returns {part: names}; {what} in the names of an MLP is kernel or bias."""
    if _old(shapes):
        block, layers = "Mixer/encoderblock_{i}/", ("{what}1", "{what}2")
        stem, norm = "embedding", "Mixer/encoder_norm"
        norms = _numbered(shapes, "LayerNorm", 2)
        parts = {part: _numbered(shapes, f"{part}_phase", 1)[0] for part in _PARTS}
    else:
        block, layers = "MixerBlock_{i}/", ("Dense_0/{what}", "Dense_1/{what}")
        stem, norm = "stem", "pre_head_layer_norm"
        norms = ["LayerNorm_0", "LayerNorm_1"]
        parts = {part: part for part in _PARTS}
    mlps = {
        part: [f"{block}{name}/{layer}" for layer in layers]
        for part, name in parts.items()
    }
    return {"stem": stem, "norm": norm, "norms": [block + n for n in norms], **mlps}


def _numbered(shapes: Shapes, kind: str, expected: int) -> list[str]:
    """Returns the names of a kind of part; older Flax may number all parts jointly."""
    pattern = re.compile(rf"Mixer/encoderblock_0/{kind}_([0-9]{{1,9}})/.*")
    numbers = {int(m[1]) for name in shapes if (m := pattern.fullmatch(name))}
    if len(numbers) != expected:
        raise CheckpointError(
            "it is not a complete model: the block Mixer/encoderblock_0 must have "
            f"{expected} of {kind}_…. Received: {len(numbers)}. Use the complete file."
        )
    return [f"{kind}_{n}" for n in sorted(numbers)]


def _elements(shapes: Shapes, name: str) -> int:
    """Returns the number of elements of a tensor of any rank."""
    return math.prod(shapes.of(name, len(shapes[name])))


def _hidden(shapes: Shapes, layer: str) -> int:
    """Returns the number of hidden units of an MLP."""
    return _elements(shapes, layer.format(i=0, what="bias"))


def _grid(shapes: Shapes, layer: str, patch: PatchSize, hidden: int) -> TokenGrid:
    """Returns the token-mixing kernel as a `TokenGrid`."""
    name = layer.format(i=0, what="kernel")
    tokens, rest = divmod(_elements(shapes, name), hidden)
    if rest:
        raise CheckpointError(
            f"it is not a complete model: {name} must have {hidden} columns, one for "
            f"each bias. Received: the shape {tuple(shapes[name])}. Use the complete "
            "file."
        )
    return TokenGrid(name, tokens, patch)


def _mixing(layers: list[str], path: str, shapes: Shapes) -> Iterator[tuple]:
    """Yields the rules of an MLP."""
    for n, layer in enumerate(layers):
        for what, rank in (("kernel", 2), ("bias", 1)):
            shape = shapes.get(layer.format(i=0, what=what), ())
            rule = layer.replace("{what}", what), f"{path}/dense_{n}/{what}"
            yield (*rule, _squeezed(shape, rank)) if len(shape) > rank else rule


def _squeezed(shape: tuple[int, ...], rank: int) -> Transform:
    """Returns the transform of a tensor with additional axes of size 1."""

    # Kernels and biases from before flax.linen have such axes.
    def read(array: np.ndarray) -> list[np.ndarray]:
        sizes = [size for size in array.shape if size > 1]
        return [array.reshape([1] * (rank - len(sizes)) + sizes)]

    return Transform(read, lambda arrays: arrays[0].reshape(shape))
