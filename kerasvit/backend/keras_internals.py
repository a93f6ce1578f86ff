"""Access to private attributes of Keras, which only `backend` may use."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import keras

from kerasvit.typing import Tensor


def layers_in(
    layer: keras.layers.Layer, include_self: bool = True
) -> list[keras.layers.Layer]:
    """Returns all layers inside a layer or model, at any depth."""
    return list(layer._flatten_layers(include_self=include_self))


def compile_arguments(model: keras.Model) -> dict[str, Any]:
    """Returns the arguments of `compile` as the objects that were passed.

    `get_compile_config` serialises them, which fails for lambdas and local classes.
    """
    return model._compile_config.config


def compute_loss(
    model: keras.Model, x: Any, y: Any, y_pred: Any, sample_weight: Any, training: bool
) -> Tensor:
    """Calls `model.compute_loss`, with `training` if its signature has it."""
    return model._compute_loss(x, y, y_pred, sample_weight, training=training)


def added_losses(model: keras.Model) -> Tensor | float:
    """Returns the sum of `add_loss` and regularisers in the loss of `compute_loss`."""
    return sum(model._aggregate_additional_loss(loss) for loss in model.losses)


@contextlib.contextmanager
def in_variable_dtype(model: keras.Model) -> Iterator[None]:
    """Context in which a model computes in the dtype of its variables."""
    lowered = [
        layer
        for layer in layers_in(model)
        if layer.compute_dtype != layer.variable_dtype
        and layer.quantization_mode is None
    ]
    # The setter of `dtype_policy` would change a policy object that layers share.
    policies = [layer._dtype_policy for layer in lowered]
    for layer in lowered:
        layer._dtype_policy = keras.DTypePolicy(layer.variable_dtype)
    try:
        yield
    finally:
        for layer, policy in zip(lowered, policies, strict=True):
            layer._dtype_policy = policy


def remove_variable(layer: keras.layers.Layer, name: str) -> None:
    """Removes a variable of a layer.

    `del` of Keras also collects garbage, which takes up to a second each time.
    """
    layer._untrack_variable(getattr(layer, name))
    super(keras.layers.Layer, layer).__delattr__(name)


def variables_changed(model: keras.Model) -> None:
    """Makes a model use variables that were added, removed, frozen or unfrozen.

    A function that was traced before would use the old ones.
    """
    model.train_function = model.test_function = model.predict_function = None
    for layer in layers_in(model):
        layer._post_build()  # PyTorch collects the parameters of modules here


@contextlib.contextmanager
def without_flash_attention(layers: Iterable[keras.layers.Layer]) -> Iterator[None]:
    """Context in which Keras's attention layers use no flash attention."""
    switched = [layer for layer in layers if getattr(layer, "_flash_attention", False)]
    for layer in switched:
        layer._flash_attention = False
    try:
        yield
    finally:
        for layer in switched:
            layer._flash_attention = True
