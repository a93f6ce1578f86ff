"""Attaches LoRA's adapters to a model, freezes its other weights, and merges them.

The attribute `adapters` of a model with adapters is a JSON object: `rank` and `alpha`
of the adapters; `ranks` and `alphas`, {path of a layer: value} where they are others;
`layers`, the paths of the dense layers that have one; `trained`, the paths of other
layers and variables that are trained; and `frozen`, the paths of layers and variables
that were not trainable before. `ranks` and `alphas` may be missing.
"""

from typing import Any

import keras
import numpy as np

from .backend.keras_private import layers_in, variables_changed
from .backend.threads import alone
from .layers.dense import FACTORS, Dense


def dense_layers(model: keras.Model) -> dict[str, Dense]:
    """Returns {path: layer} of the layers that can have an adapter."""
    layers = layers_in(model, include_self=False)
    return {layer.path: layer for layer in layers if isinstance(layer, Dense)}


def adapted_layers(model: keras.Model) -> dict[str, Dense]:
    """Returns {path: layer} of the layers that have an adapter."""
    layers = dense_layers(model).items()
    return {path: layer for path, layer in layers if layer.lora_enabled}


@alone
def attach(model: keras.Model, settings: dict[str, Any]) -> None:
    """Attaches adapters to a model and freezes all other weights, in place.

    Frozen layers with moving statistics, such as batch normalisation, do not update
    them.

    Args:
        model: Built model with the attribute `adapters`.
        settings: Those of the module's docstring; `frozen` of a model whose layers are
            frozen already.

    Raises:
        ValueError: The model has no layer of this path.
    """
    everything = {_path(layer): layer for layer in layers_in(model)}
    variables = {variable.path: variable for variable in model.weights}
    dense, trained = dense_layers(model), set(settings["trained"])
    missing = [path for path in settings["layers"] if path not in dense]
    missing += sorted(trained - everything.keys() - variables.keys())
    if missing:
        raise ValueError(
            f"The model {model.name} has no layers {', '.join(missing[:5])}, which its "
            "adapters belong to."
        )
    frozen = [path for path, layer in everything.items() if not layer.trainable]
    fixed = [v for v in model.weights if not v.trainable]
    _set_trainable(model, True)
    frozen += [v.path for v in fixed if v.trainable]
    kept = {id(variables[path]) for path in trained & variables.keys()}
    for path in trained & everything.keys():
        kept |= {id(weight) for weight in everything[path].trainable_weights}
    for path in settings["layers"]:
        layer = dense[path]
        if not layer.lora_enabled:  # Keras itself restores it in layers of the graph
            rank, alpha = rank_and_alpha(settings, path)
            layer.enable_lora(rank, lora_alpha=alpha)
        kept |= {id(getattr(layer, name)) for name in FACTORS}
    around = {path.rpartition("/")[0] for path in trained}  # layers of variables
    for path, layer in everything.items():
        single = layer.weights and not layers_in(layer, include_self=False)
        if single and path not in {*trained, *settings["layers"], *around}:
            layer.trainable = False
    for variable in model.weights:
        if id(variable) not in kept:
            variable.trainable = False
    model.adapters = {"frozen": frozen, **settings}
    variables_changed(model)


def rank_and_alpha(settings: dict[str, Any], path: str) -> tuple[int, float]:
    """Returns rank and alpha of the adapter of a layer, from settings of a model."""
    ranks, alphas = settings.get("ranks", {}), settings.get("alphas", {})
    return ranks.get(path, settings["rank"]), alphas.get(path, settings["alpha"])


@alone
def detach(model: keras.Model, merge: bool) -> None:
    """Removes the adapters of a model; what was trainable before is so again.

    Args:
        model: Model with adapters.
        merge: Whether to add them to the kernels.
    """
    for layer in adapted_layers(model).values():
        layer.merge_lora() if merge else layer.disable_lora()
    frozen = set(model.adapters["frozen"])
    for layer in layers_in(model):  # the outer layers first
        _set_trainable(layer, _path(layer) not in frozen)
    for variable in model.weights:
        if variable.path in frozen:
            variable.trainable = False
    model.adapters = None
    variables_changed(model)


def base_weights(model: keras.Model) -> list[keras.Variable]:
    """Returns the weights without the factors of adapters."""
    factors = {
        id(getattr(layer, name))
        for layer in adapted_layers(model).values()
        for name in FACTORS
    }
    return [variable for variable in model.weights if id(variable) not in factors]


def merged_weights(model: keras.Model) -> list[Any]:
    """Returns the weights of the merged model, without a change of the model.

    A kernel with an adapter is a `MergedKernel`; the others are the variables.
    """
    layers = {f"{path}/kernel": each for path, each in adapted_layers(model).items()}
    return [
        MergedKernel(variable, layers[variable.path])
        if variable.path in layers
        else variable
        for variable in base_weights(model)
    ]


class MergedKernel:
    """A kernel with its adapter, computed when it is read with `numpy.asarray`.

    Attributes:
        path, shape, dtype: Those of the variable.
    """

    def __init__(self, kernel: keras.Variable, layer: Dense) -> None:
        self.path, self.shape, self.dtype = kernel.path, kernel.shape, kernel.dtype
        self._layer = layer

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._layer.merged_kernel()


def trained_weights(model: keras.Model) -> list[keras.Variable]:
    """Returns the weights that training changes, with moving statistics."""
    trained = model.adapters["trained"]
    return [
        variable
        for variable in model.weights
        if variable.trainable
        or variable.name in FACTORS
        or variable.path in trained
        or variable.path.rpartition("/")[0] in trained
    ]


def _set_trainable(layer: keras.layers.Layer, trainable: bool) -> None:
    """Sets `trainable` of a layer, its variables and the layers in it."""
    # On TensorFlow, Keras ignores the value that the layer has already, although its
    # variables may have another one.
    layer.trainable = not trainable
    layer.trainable = trainable


def _path(layer: keras.layers.Layer) -> str:
    return layer.path or layer.name
