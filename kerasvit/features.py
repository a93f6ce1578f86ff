"""Features of a model's blocks and stages, for segmentation, detection and so on."""

import difflib
import json
import math
import re
from typing import Any

import keras

from kerasvit.arguments import patch_sides
from kerasvit.types import PatchSize

from .adapters import adapted_layers, attach
from .arguments import ArgumentError, integer, one_of
from .backend.keras_private import layer_calls, layers_in
from .layers import Block
from .layers.rescaling import with_channels_last
from .models.alternet import STEMS
from .preprocessing import Preprocessing
from .quantization import QuantizableModel, restore, settings_of
from .records import found_record
from .types import Tensor

FACTS = ("names", "strides", "channels", "preprocessing", "adapters")
MANY = (list, tuple, range)  # of blocks
# The normalisations after the last block, and what belongs to them.
FINAL_NORMS = ("encoder_norm", "pre_head_norm", "final_norm", "final_relu")


@keras.saving.register_keras_serializable("kerasvit")
class FeatureModel(QuantizableModel):
    """A functional model from images to features of blocks; see `features`.

    Clones and `.keras` files, also of models that contain it, keep the attributes and
    quantised layers. The first three attributes have one entry for each block.

    Attributes:
        names: Names of the blocks, a tuple.
        strides: Pixels between neighbouring cells of a map, a tuple of ints; (height,
            width) for rectangular patches.
        channels: Channels of the features, a tuple of ints.
        preprocessing: The `Preprocessing` that the images need.
        adapters: Settings of those adapters of `add_lora` that the blocks have, or
            None.
    """

    names: tuple[str, ...] = ()
    strides: tuple[PatchSize, ...] = ()
    channels: tuple[int, ...] = ()
    preprocessing: Preprocessing | None = None
    adapters: dict[str, Any] | None = None

    # Keras recognises functional subclasses by this signature.
    def __init__(
        self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any
    ) -> None:
        facts = {key: kwargs.pop(key) for key in FACTS if key in kwargs}
        super().__init__(inputs, outputs, name=name, **kwargs)
        original = self.pop_original()
        if original is not None:
            self._revive(original.facts(), settings_of(original))
        self._set(facts)

    def facts(self) -> dict[str, Any]:
        """Returns the attributes as plain JSON."""
        facts = {key: getattr(self, key) for key in FACTS}
        facts["preprocessing"] = self.preprocessing and self.preprocessing.to_config()
        if not adapted_layers(self):  # `merge_lora` of the whole model
            facts["adapters"] = None
        return json.loads(json.dumps(facts))

    def get_config(self) -> dict[str, Any]:
        """Returns the graph's configuration, the attributes and quantised layers."""
        config = {**super().get_config(), **self.facts()}
        return {**config, "quantization": settings_of(self)}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> "FeatureModel":
        """Builds the model with its attributes, adapters and quantised layers."""
        graph = dict(config)
        settings = graph.pop("quantization", [])
        facts = {key: graph.pop(key) for key in FACTS if key in graph}
        graph = with_channels_last(graph)
        model = super().from_config(graph, custom_objects=custom_objects)
        model._revive(facts, settings)
        return model

    def _revive(self, facts: dict[str, Any], settings: list[dict[str, Any]]) -> None:
        """Sets what `facts` and `settings_of` returned, in a model with new layers."""
        self._set(facts)
        restore(self, settings)
        if self.adapters:
            attach(self, self.adapters)

    def _set(self, facts: dict[str, Any]) -> None:
        for key, value in facts.items():
            if key == "preprocessing" and value is not None:
                value = Preprocessing.from_config(value)
            setattr(self, key, tuple(value) if isinstance(value, list) else value)


def features(
    model: keras.Model,
    layers: int | str | list[int | str] | None = None,
    *,
    maps: bool = True,
    prefix: bool = False,
    normalize: bool = True,
) -> FeatureModel:
    """Returns a model from images to the features of blocks, over the same variables.

        backbone = kerasvit.features(kerasvit.SwinT("…", image_size=(448, 672)))
        backbone.strides                           # (4, 8, 16, 32)
        maps = backbone(images)                    # 4 maps (batch, h, w, channels)

        backbone = kerasvit.features(kerasvit.ViTS14("…"), -1)
        backbone(images)                           # one map (batch, h, w, channels)

    It shares layers with `model`, without a copy, and ends with the last block that is
    asked for. It is trained, saved and loaded as any functional `keras.Model`, and may
    be a part of others. Call `add_lora` before this function.

    Args:
        model: `ImageModel`, with or without a head; for a trainer pass `trainer.model`.
        layers: One block, or a list of different blocks, in any order:

            - a block's name, such as "encoder_block_3" or "stage_2_unit_5";
            - "stage_2": the last block of a stage;
            - "stride_16": the last block whose map has this stride;
            - a number, from 0, or from the end if it is negative. It counts the
              encoder's blocks in ViT, DeiT, Mixer and hybrids, and the stages in BiT,
              Swin, PiT, AlterNet, PreActResNet and ResNeXt.

            None: a list of the last block of each stride. These are four maps of most
            BiT, Swin, AlterNet, ResNeXt and R50ViTB32, three of PiT, and one of ViT,
            DeiT and Mixer.
        maps: True: maps (batch, h, w, channels). False: tokens (batch, n, channels), of
            a map row by row.
        prefix: Whether to return class, distillation and register tokens, in the order
            of the model: with `maps`, each feature is a pair [map, tokens (batch, k,
            channels)]; without, the k tokens precede the others.
        normalize: Whether to apply the model's last normalisation to features of the
            encoder, or of the last stage, as `norm=True` of timm's
            `forward_intermediates` and `get_intermediate_layers` of DINOv2 do. In BiT,
            AlterNet and PreActResNet a ReLU follows it. Maps of earlier stages are not
            normalised. Models that normalise after the pooling or in each block, with
            `pool="average_then_norm"` or `norm="post"`, and ResNeXt have no such
            normalisation, nor has PiT, which normalises only its class and distillation
            tokens.

    Returns:
        `FeatureModel`, (batch, H, W, 3) → a list of features in the order of `layers`;
        of one block the feature itself.

    Raises:
        ValueError: The model has no record of kerasvit, it has no such block, the same
            block is given twice, or it has no tokens for `prefix`.
    """
    maps = one_of("maps", maps, (True, False))
    prefix = one_of("prefix", prefix, (True, False))
    normalize = one_of("normalize", normalize, (True, False))
    record = _record(model)
    calls = layer_calls(model)
    blocks, grids, grid = {}, {}, None
    for layer, _, outputs in calls:
        grid = getattr(layer, "grid", grid)  # of the tokens, from this layer on
        if isinstance(layer, Block):
            blocks[layer.name], grids[layer.name] = outputs[0], grid
    strides = {name: _stride(record, name) for name in blocks}
    names = _chosen(layers, strides)
    norms = _final_norms(calls, [*blocks.values()][-1]) if normalize else []
    outputs = []
    for name in names:
        x = blocks[name]
        for norm in norms if _group(name) == _group([*blocks][-1]) else []:
            x = norm(x)
        outputs.append(_arranged(x, name, grids[name], maps=maps, prefix=prefix))
    found = FeatureModel(
        model.inputs[0],
        outputs if len(outputs) > 1 else outputs[0],
        name=f"{model.name}_features",
        names=names,
        strides=[strides[name] for name in names],
        channels=[blocks[name].shape[-1] for name in names],
        preprocessing=record["preprocessing"],
    )
    found.adapters = _adapters_of(found, getattr(model, "adapters", None))
    return found


def _record(model: Any) -> dict[str, Any]:
    """Returns the record of a model; raises an `ArgumentError` if it has none."""
    record = found_record(model)
    if record is not None:
        return record
    if isinstance(model, FeatureModel):
        hint = "Pass the model whose features these are."
    elif isinstance(getattr(model, "model", None), keras.Model):
        hint = "For a trainer pass trainer.model."
    else:
        hint = (
            "Of another functional model, make a model of the outputs of its layers: "
            "keras.Model(model.inputs, [model.get_layer(name).output for name in "
            "names])."
        )
    raise ArgumentError(
        "`model` must be one that kerasvit built, or its clone that computes the same "
        f"function. Received: {model!r:.200}. {hint}",
        "model",
    )


def _group(name: str) -> str:
    """Returns the name of a block without its number, such as "stage_0_unit"."""
    return name.rpartition("_")[0]


def _stage(name: str) -> str | None:
    """Returns the stage of a block, such as "stage_0"; None for an encoder's block."""
    found = re.match(r"stage_\d+", name)
    return found and found[0]


def _stride(record: dict[str, Any], name: str) -> PatchSize:
    """Returns the pixels between neighbouring cells of a block's map.

    Those of rectangular patches are (height, width).
    """
    kwargs = record["kwargs"]
    if stage := _stage(name):
        first = STEMS.get(kwargs.get("stem"), 4)
        if record["builder"] == "SwinTransformer":
            first = kwargs["patch_size"]
        elif record["builder"] == "PoolingVisionTransformer":
            first = kwargs["stride"]
        return first * 2 ** int(stage.removeprefix("stage_"))
    resnet = kwargs.get("resnet_depths")  # below the patches of a hybrid
    below = 1 if resnet is None else 4 * 2 ** max(len(resnet) - 1, 0)
    height, width = patch_sides(kwargs["patch_size"])
    return below * height if height == width else (below * height, below * width)


def _words(stride: PatchSize) -> str:
    """Returns the name of the last block of a stride: "stride_16", "stride_16x8"."""
    sides = [stride] if isinstance(stride, int) else stride
    return f"stride_{'x'.join(map(str, sides))}"


def _chosen(layers: Any, strides: dict[str, PatchSize]) -> list[str]:
    """Returns the names of the blocks that the argument `layers` chooses.

    Args:
        layers: As for `features`.
        strides: {block: stride of its map}, from the input to the output.
    """
    last_of_stride = {stride: name for name, stride in strides.items()}
    if layers is None:
        return [*last_of_stride.values()]
    last_of_stage = {stage: name for name in strides if (stage := _stage(name))}
    known = {
        **{name: name for name in strides},
        **last_of_stage,
        **{_words(stride): name for stride, name in last_of_stride.items()},
    }
    last = [*strides][-1]
    numbered = [name for name in strides if _group(name) == _group(last)]
    if _stage(last):
        numbered = [*last_of_stage.values()]
    given = list(layers) if isinstance(layers, MANY) else [layers]
    names = [_name(each, known, numbered) for each in given]
    if not names or len(set(names)) < len(names):
        raise ArgumentError(
            "`layers` must be one or more different blocks. Received: "
            f"{layers!r:.200}{f', which are {names}' if names else ''}.",
            "layers",
        )
    return names


def _name(given: Any, known: dict[str, str], numbered: list[str]) -> str:
    """Returns the name of a block.

    Args:
        given: An entry of the argument `layers`.
        known: {accepted name: block}.
        numbered: Blocks that numbers count.
    """
    if not isinstance(given, str):
        count = len(numbered)
        meaning = f"of {numbered[0]} … {numbered[-1]}, or the name of a block"
        return numbered[integer("layers", given, -count, count - 1, meaning=meaning)]
    if given in known:
        return known[given]
    near = difflib.get_close_matches(given, known, n=3, cutoff=0.5)
    groups: dict[str, list[str]] = {}
    for name in known:
        groups.setdefault(_group(name), []).append(name)
    names = [" … ".join(dict.fromkeys((each[0], each[-1]))) for each in groups.values()]
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise ArgumentError(
        f"`layers` must be blocks of the model: {', '.join(names)}. Received: "
        f"{given!r:.100}.{hint}",
        "layers",
    )


def _final_norms(calls: list[Any], last: Tensor) -> list[keras.layers.Layer]:
    """Returns the layers that normalise the features of the last block, `last`."""
    return [
        layer
        for layer, inputs, _ in calls
        # Features that are pooled before they are normalised have another shape.
        if layer.name in FINAL_NORMS and inputs[0].shape == last.shape
    ]


def _arranged(
    x: Tensor, name: str, grid: tuple[int, int] | None, *, maps: bool, prefix: bool
) -> Any:
    """Returns the features of a block as `features` documents them.

    Args:
        x: Map (batch, h, w, channels), or tokens (batch, k + n, channels).
        name: Name of the block.
        grid: (height, width) of the n tokens.
        maps, prefix: As for `features`.
    """
    of_map = len(x.shape) == 4
    if None in x.shape[1:]:  # images of any size
        if of_map and maps and not prefix:
            return x
        raise ArgumentError(
            f"The size of the map of {name} must be known. Received: a model for "
            "images of any size. Load it with an `image_size`, or pass "
            "kerasvit.resize(model, (height, width)).",
            "model",
        )
    cells: Any = x.shape[1:3] if of_map else grid
    count = 0 if of_map else x.shape[1] - math.prod(cells)  # k
    if prefix and not count:
        raise ArgumentError(
            f"`prefix`: {name} has no class, distillation or register tokens. Leave "
            "out `prefix`, or choose `layers` that have them.",
            "prefix",
        )
    before, after = (x[:, :count], x[:, count:]) if count else (None, x)
    kind, shape = ("map", cells) if maps else ("tokens", (math.prod(cells),))
    if prefix and not maps:
        after, shape = x, x.shape[1:2]
    # It also gives the output a name of its own.
    arrange = keras.layers.Reshape(
        (*shape, x.shape[-1]), dtype=x.dtype, name=f"{name}_{kind}"
    )
    return [arrange(after), before] if prefix and maps else arrange(after)


def _adapters_of(
    part: keras.Model, settings: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Returns the settings of adapters without the layers that a part does not have."""
    paths = {layer.path for layer in layers_in(part)}
    paths |= {variable.path for variable in part.weights}
    return settings and {
        key: [each for each in value if each in paths]
        if isinstance(value, list)
        else value
        for key, value in settings.items()
    }
