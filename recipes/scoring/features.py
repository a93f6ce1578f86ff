"""Frozen features: the outputs of a layer of a model, one vector per image.

frozen = features.of_layer(candidate)                     # before the head
frozen = features.of_layer(candidate, "encoder_block_7")  # or "-2", of the blocks
x = features.of_images(predict, frozen, dataset.train)    # (images, width)
"""

import dataclasses
import difflib
import re

import keras
import numpy as np
from command import command_line

from kerasvit.fine_tuning import HEADS
from kerasvit.inspection import layer_calls
from kerasvit.layers import Block

from .candidates import Candidate
from .outputs import Predictor

SHOWN = 40  # layers in a message
# Layers without weights of their own that may follow the head.
AFTER_HEAD = (
    keras.layers.Activation,
    keras.layers.Dropout,
    keras.layers.Flatten,
    keras.layers.Reshape,
    keras.layers.Softmax,
)


def of_layer(candidate: Candidate, layer: str | None = None) -> Candidate:
    """Returns a candidate whose model returns features (batch, width).

    Raises:
        ValueError: As for `model_of`.
    """
    whole = candidate.model
    if getattr(whole, "record", None):
        model = model_of(whole, layer, candidate.name)
    else:  # the candidate prepares the images for another model
        own = whole.layers[-1]
        before, _ = _calls(whole)[own.name]
        model = keras.Model(
            whole.inputs[0], model_of(own, layer, candidate.name)(before)
        )
    return dataclasses.replace(candidate, model=model)


def model_of(
    model: keras.Model, layer: str | None = None, name: str = "the model"
) -> keras.Model:
    """Returns a model over the same variables that returns features (batch, width).

    Tokens (batch, tokens, width) become one vector: the class token, if the model pools
    by it (of a distilled DeiT, the mean of its two); else the mean of all tokens but
    class and register tokens. Maps (batch, height, width, channels) become their mean.
    Outputs of blocks are as the next block gets them, without the last normalisation.

    Args:
        model: Functional or sequential model.
        layer: Name of a layer, below nested models their names and "/"; of a stage,
            whose last block it is; or the number of a block, from the end if it is
            negative. None: the input of the head, as `num_classes=0` returns it; of a
            model without a record, the input of the last dense layer, or the output if
            the model ends with another layer.
        name: Name of the model, for messages.

    Raises:
        ValueError: There is no such layer, or it returns no tensor of 2 to 4
            dimensions.
    """
    record = getattr(model, "record", None)
    if layer is None:
        cut = _without_head(model, record)
    else:
        cut = _cut(model, _path(model, layer, name))
    x = _pooled(cut.output, model, record)
    if x is None:
        raise ValueError(
            f"`layer`: {layer or 'the last one'} of {name} must return one tensor of "
            "vectors, tokens or maps (batch, …, width). It returns "
            f"{keras.tree.map_structure(lambda x: tuple(x.shape), cut.output)}."
        )
    return keras.Model(cut.inputs[0], x)


def of_images(predict: Predictor, frozen: Candidate, images) -> np.ndarray:
    """Returns the features of images, float32 (count, width).

    Raises:
        command_line.BadInput: A feature is NaN or infinite.
    """
    found = frozen.outputs(predict, images)
    wrong = np.flatnonzero(~np.isfinite(found).all(axis=1))
    with command_line.checking_input():
        if len(wrong):
            raise ValueError(
                f"`models`: features of {frozen.name} are NaN or infinite for "
                f"{len(wrong):,} of {len(found):,} images, such as image {wrong[0]} "
                "(from 0): the weights are damaged, or float16 overflows (use float32 "
                "or mixed_bfloat16)."
            )
    return found


def _calls(model):
    """Returns {name: (input, output)} of the layers of a model."""
    return {
        layer.name: (inputs[0], outputs[0] if len(outputs) == 1 else outputs)
        for layer, inputs, outputs in layer_calls(model)
        if inputs  # not the input layer
    }


def _cut(model, path):
    """Returns the model that ends with a layer, by its path."""
    name, _, rest = path.partition("/")
    before, after = _calls(model)[name]
    if rest:
        after = _cut(model.get_layer(name), rest)(before)
    return keras.Model(model.inputs[0], after)


def _without_head(model, record):
    """Returns the model that ends with the input of its head."""
    calls = _calls(model)
    if record:
        heads = [calls[name][0] for name in HEADS if name in calls]
        if len(heads) > 1:
            heads = [keras.layers.average(heads)]
        return keras.Model(model.inputs[0], *heads) if heads else model
    last = next(x for x in reversed(model.layers) if not isinstance(x, AFTER_HEAD))
    before = calls[last.name][0]
    if isinstance(last, keras.Model):
        return keras.Model(model.inputs[0], _without_head(last, None)(before))
    is_head = isinstance(last, (keras.layers.Dense, keras.layers.Conv2D))
    return keras.Model(model.inputs[0], before) if is_head else model


def _path(model, layer, name):
    """Returns the path of a layer, given by its path or as the number of a block."""
    paths = _paths(model)
    if layer in paths:
        return layer
    blocks = [each.name for each in model.layers if isinstance(each, Block)]
    if of_stage := [name for name in blocks if name.startswith(f"{layer}_")]:
        return of_stage[-1]
    if re.fullmatch(r"-?\d+", layer) and blocks:
        if -len(blocks) <= int(layer) < len(blocks):
            return blocks[int(layer)]
        raise ValueError(
            f"`layer`: {name} has {len(blocks)} blocks, from 0 to {len(blocks) - 1} or "
            f"-{len(blocks)} to -1. Received: {layer}."
        )
    ends = {path.split("/")[-1]: path for path in paths}
    near = difflib.get_close_matches(layer.split("/")[-1], ends, n=5, cutoff=0.5)
    names = list(dict.fromkeys([*(ends[end] for end in near), *paths]))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    raise ValueError(
        f"`layer`: {name} has no layer {layer!r}. It has "
        f"{', '.join(names[:SHOWN])}{more}."
    )


def _paths(model):
    """Returns the paths of all layers but the input, also of those in nested models."""
    paths = []
    for layer in model.layers:
        if not isinstance(layer, keras.layers.InputLayer):
            paths.append(layer.name)
        if isinstance(layer, keras.Model):
            paths += [f"{layer.name}/{path}" for path in _paths(layer)]
    return paths


def _pooled(x, model, record):
    """Returns vectors (batch, width) of a layer's output; None if it has no such."""
    rank = len(x.shape) if isinstance(x, keras.KerasTensor) else 0
    if rank not in (2, 3, 4):
        return None
    x = keras.ops.cast(x, "float32")
    if rank == 4:
        return keras.ops.mean(x, axis=(1, 2))
    prefix = _prefix(x, model) if rank == 3 and record else 0
    of_tokens = ("DistilledVisionTransformer", "PoolingVisionTransformer")
    if prefix and record["builder"] in of_tokens:
        return keras.ops.mean(x[:, :prefix], axis=1)
    if prefix and record["kwargs"]["pool"] == "token":
        return x[:, 0]
    return keras.ops.mean(x[:, prefix:], axis=1) if rank == 3 else x


def _prefix(x, model):
    """Returns how many of the tokens are no patches."""
    names = [layer.name for layer in model.layers]
    if "embedding" not in names:  # of Mixer, whose tokens are patches
        return 0
    if "tokens" in names:  # of PiT, which has fewer patches in each stage
        patches = model.get_layer("tokens").output.shape[1]
        return 0 if x.shape[1] == patches else model.get_layer("class_token").count
    return x.shape[1] - model.get_layer("embedding").output.shape[1]
