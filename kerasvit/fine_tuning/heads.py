"""The classification heads of a model."""

from typing import Any, NoReturn

import keras
import numpy as np

from kerasvit.arguments import ArgumentError, check_built
from kerasvit.records import found_record
from kerasvit.training.wrapper import ModelWrapper

#: Names of the heads in models of kerasvit.
HEADS = ("head", "head_distillation")
# Activations whose argument is the logits of a regression, of one label and several.
ACTIVATIONS = (
    (keras.activations.linear, keras.activations.softmax),
    (keras.activations.linear, keras.activations.sigmoid),
)


def heads_of(model: Any) -> list[keras.layers.Dense]:
    """Returns the last dense layers of a model: one, or two for a distilled DeiT.

    Those of a model of kerasvit are known by their names. Of another model it is the
    last layer, if it is a `Dense`; else the list is empty.
    """
    named = [layer for layer in model.layers if layer.name in HEADS]
    if named or found_record(model) is not None or not model.layers:
        return named
    last = model.layers[-1]
    return [last] if isinstance(last, keras.layers.Dense) else []


def inner_model(model: Any) -> Any:
    """Returns the model inside trainers such as `SAM`, or the same model."""
    while isinstance(model, ModelWrapper):
        model = model.model
    return model


def is_zero(heads: list[keras.layers.Dense]) -> bool:
    """Returns whether all kernels are zero, as in a head that was not trained."""
    return not any(np.any(keras.ops.convert_to_numpy(head.kernel)) for head in heads)


def linear_heads(model: keras.Model, several: bool = False) -> list[keras.layers.Dense]:
    """Returns the heads of a classifier that a linear classifier can replace.

    Args:
        model: The classifier.
        several: Whether images have several labels: then one class suffices, and the
            head may have a sigmoid instead of a softmax.
    """
    check_built(model)
    if not getattr(model, "inputs", None) or not getattr(model, "outputs", None):
        _refuse(model, "functional or Sequential, so that its features are known")
    ours, heads = found_record(model) is not None, heads_of(model)
    if ours and not heads:
        _refuse(model, "a classifier: build it with `num_classes`")
    ends = ours or (heads and heads[-1].output is model.outputs[0])
    if len(model.outputs) > 1 or not ends:
        _refuse(
            model,
            "a model with one output, which is that of a `keras.layers.Dense`; its "
            f"last layer is {model.layers[-1]!r}. If the classifier is inside it, pass "
            "that one",
        )
    for head in heads:
        if head.units < 2 - several or head.activation not in ACTIVATIONS[several]:
            kind = "one class" if several else "two classes"
            end = "sigmoid" if several else "softmax"
            _refuse(
                model,
                f"a classifier of {kind} or more, with logits or a {end}; its "
                f"head has {head.units} outputs, activation {head.activation.__name__}",
            )
        if len(head.input.shape) != 2:
            _refuse(model, f"one vector per image, not {head.input.shape}, at its head")
        if not head.use_bias:
            _refuse(model, "a model whose head has a bias")
        if head.quantization_mode or head.lora_enabled:
            _refuse(
                model,
                "a model whose head has a kernel of floats. Fit the head "
                "before `quantize` or `enable_lora`",
            )
    return heads


def _refuse(model: keras.Model, expected: str) -> NoReturn:
    raise ArgumentError(f"`model` must be {expected}. Received: {model!r}.", "model")
