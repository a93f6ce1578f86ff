"""Comparison of the functions that two functional models compute."""

from typing import Any

import keras

# Arguments of layers that do not affect inference: initial values, precision, and
# arguments for training.
_FREE = {"trainable", "dtype", "seed", "rate", "dropout", "stochastic_depth"}
_FREE |= {"momentum", "build_config", "shared_object_id"}
_FREE_ENDS = ("_initializer", "_regularizer", "_constraint")


def computes_the_same(one: keras.Model, other: keras.Model) -> bool:
    """Returns whether two models have the same layers, connections and variable names.

    Precision, dropout, initial values, regularisation and batch size may differ. A
    layer of this package with the name of one of Keras's, such as `Dense`, computes
    the same.

    Args:
        one: Functional `keras.Model`.
        other: Functional `keras.Model`; all of its layers have a `get_config`.
    """
    kinds = [[_kind(type(op)) for op in model.operations] for model in (one, other)]
    if kinds[0] != kinds[1]:
        return False
    try:
        return _graph(one) == _graph(other)
    except NotImplementedError:  # a nested layer has no `get_config`
        return False


def _graph(model: keras.Model) -> list[Any]:
    """Returns layers and connections as plain lists and dictionaries."""
    config = model.get_config()
    indices = {layer["name"]: i for i, layer in enumerate(config["layers"])}
    layers = []
    for layer, operation in zip(config["layers"], model.operations, strict=True):
        plain = _plain(layer, indices)
        if not isinstance(operation, keras.layers.Layer) or _is_input(operation):
            del plain["name"], plain["config"]["name"]  # not part of variable paths
        if _is_input(operation):
            plain["config"]["batch_shape"][0] = None
        layers.append(plain)
    ends = [config["input_layers"], config["output_layers"]]
    return [layers, [_history(end, indices) for end in ends]]


def _kind(cls: type) -> type:
    """Returns Keras's class with the name of a class of this package, or the class."""
    base = getattr(keras.layers, cls.__name__, None)
    ours = cls.__module__.startswith("kerasvit.")
    return base if ours and base and issubclass(cls, base) else cls


def _is_input(operation: Any) -> bool:
    return isinstance(operation, keras.layers.InputLayer)


def _plain(config: Any, places: dict[str, int]) -> Any:
    """Returns a part of a configuration without the keys in `_FREE`."""
    if isinstance(config, (list, tuple)):
        return [_plain(part, places) for part in config]
    if not isinstance(config, dict):
        return config
    if "keras_history" in config:
        return _history(config["keras_history"], places)
    cls = keras.saving.get_registered_object(config.get("registered_name"))
    if isinstance(cls, type) and _kind(cls) is not cls:
        config = {**config, "module": "keras.layers", "registered_name": None}
    return {
        key: _plain(part, places)
        for key, part in config.items()
        if key not in _FREE and not key.endswith(_FREE_ENDS)
    }


def _history(end: list[Any], places: dict[str, int]) -> list[Any]:
    """Returns [operation index, node, output], or a list of them."""
    if end and isinstance(end[0], str):
        return [places[end[0]], *end[1:]]
    return [_history(part, places) for part in end]
