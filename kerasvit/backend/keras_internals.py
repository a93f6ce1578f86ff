"""Private attributes of Keras that the package needs; no other room uses one."""

import contextlib

import keras


def layers_in(layer: keras.layers.Layer, include_self: bool = True) -> list:
    """Returns all layers inside a layer or model, at any depth."""
    return list(layer._flatten_layers(include_self=include_self))


def compile_arguments(model: keras.Model) -> dict:
    """Returns the arguments of `compile` as objects, which `get_compile_config` copies.

    A copy would lose what a lambda or a local class refers to.
    """
    return model._compile_config.config


def compute_loss(model: keras.Model, x, y, y_pred, sample_weight, training):
    """Calls `model.compute_loss`, with `training` if its signature has it."""
    return model._compute_loss(x, y, y_pred, sample_weight, training=training)


@contextlib.contextmanager
def in_variable_dtype(model: keras.Model):
    """Context in which a model computes in the dtype of its variables."""
    lowered = [
        layer
        for layer in layers_in(model)
        if layer.compute_dtype != layer.variable_dtype
        and layer.quantization_mode is None
    ]
    # Not through `dtype_policy`, which would write into a policy that layers share.
    policies = [layer._dtype_policy for layer in lowered]
    for layer in lowered:
        layer._dtype_policy = keras.DTypePolicy(layer.variable_dtype)
    try:
        yield
    finally:
        for layer, policy in zip(lowered, policies, strict=True):
            layer._dtype_policy = policy
