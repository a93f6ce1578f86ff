"""AlterNets of xxxnell/how-do-vits-work, models/alternet.py."""

import re
from dataclasses import replace
from typing import Any

import numpy as np

from ..config import Config
from ..description import Description
from ..key_map import CONVOLUTION, TORCH_POINTWISE, KeyMap, Transform, torch_batch_norm
from ..reader import CheckpointError
from ..shapes import Shapes
from .how_do_vits_work import AuthorsSource, conv_units, stages, stem_and_head

_TABLE = "attn.pos_embedding"
_QUERY = re.compile(r"layer([1-9][0-9]?)\.[0-9]+\.attn\.attn\.to_q\.weight")

# One 1 × 1 convolution computes keys and values: kernel (2 · inner, in, 1, 1).
_KEY_VALUE = Transform(
    lambda a: [part[:, :, 0, 0].T for part in np.split(a, 2)],
    lambda arrays: np.concatenate([a.T for a in arrays])[:, :, None, None],
)


class AuthorsAlterNet(AuthorsSource):
    """AlterNets. The tensors only determine `num_heads` × `head_width`."""

    builder = "AlterNet"
    stem = "layer0.layer0.0.weight"

    def describe(self, shapes: Shapes, config: Config) -> Description:
        resnet = super().describe(shapes, config)
        attending = [
            sum(unit + _TABLE in shapes for unit in units) for units in stages(shapes)
        ]
        arguments, tables = resnet.arguments, [n for n in shapes if n.endswith(_TABLE)]
        if tables:
            window_size = (shapes.of(tables[0], 2)[0] + 1) // 2
            arguments = {**arguments, "window_size": window_size}
        return replace(
            resnet,
            numbers={**resnet.numbers, "attention_depths": attending},
            arguments=arguments,
            open_arguments=("num_heads", "head_width") if tables else (),
        )

    def key_map(self, kwargs: dict[str, Any], shapes: Shapes | None = None) -> KeyMap:
        _check_heads(kwargs, shapes or Shapes())
        rules: list[tuple] = []
        for i in range(len(kwargs["depths"])):
            name, ours = f"layer{i + 1}.{{j}}.", f"stage_{i}_unit_{{j}}/"
            rules += conv_units(name, ours)
            rules += _attention_units(name, ours)
        return KeyMap(*stem_and_head(self.stem), *rules)


def _check_heads(kwargs: dict[str, Any], shapes: Shapes) -> None:
    """Raises if the tensors do not fit the number of heads times their width."""
    heads_of_stages = kwargs["num_heads"]
    for name in shapes:
        match = _QUERY.fullmatch(name)
        if not match or int(match[1]) > len(heads_of_stages):
            continue
        heads, rows = heads_of_stages[int(match[1]) - 1], shapes.of(name, 4)[0]
        if rows != heads * kwargs["head_width"]:
            raise CheckpointError(
                f"{name} has {rows} rows, which are not {heads} heads of "
                f"{kwargs['head_width']}. The tensors only determine the product: give "
                "`num_heads`, a list with one number per stage, and `head_width`."
            )


def _attention_units(name: str, ours: str) -> tuple[tuple, ...]:
    """Returns the rules of a stage's attention units."""
    inside, projection = name + "attn.attn.", ours + "attention/output/"
    return (
        *torch_batch_norm(name + "norm1", ours + "conv_norm"),
        (name + "conv.weight", ours + "conv/kernel", CONVOLUTION),
        *torch_batch_norm(name + "norm2", ours + "attention_norm"),
        (name + _TABLE, ours + "attention/position_bias"),
        (inside + "to_q.weight", ours + "attention/query/kernel", TORCH_POINTWISE),
        (
            inside + "to_kv.weight",
            (ours + "attention/key/kernel", ours + "attention/value/kernel"),
            _KEY_VALUE,
        ),
        (inside + "to_out.0.weight", projection + "kernel", TORCH_POINTWISE),
        (inside + "to_out.0.bias", projection + "bias"),
    )
