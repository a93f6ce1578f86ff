"""Quantised layers of a model: chooses, describes, restores and lists them.

Keras quantises dense layers in place. A layer inside a block is created again from the
block's configuration, which states its arguments alone. `ImageModel`, `FeatureModel`
and model folders therefore state which layers are quantised, as a list of JSON objects:
`mode`, "int8", "int4" or "float8"; `inputs`, whether the layers' inputs are quantised
too; `block_size` of int4; and `layers`, their paths.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np

from kerasvit.arguments import ArgumentError
from kerasvit.backend.keras_private import layers_in, owners, variables_changed
from kerasvit.backend.models import ClonableModel, check_no_integers_trained
from kerasvit.backend.threads import alone
from kerasvit.backend.train_step import trained_weights_changed

#: Mode of `quantize` → its configuration in Keras, a class.
CONFIGS = {
    "int8": keras.quantizers.Int8QuantizationConfig,
    "int4": keras.quantizers.Int4QuantizationConfig,
    "float8": keras.quantizers.Float8QuantizationConfig,
}
Filters: TypeAlias = str | Iterable[str] | Callable[[Any], bool] | None


class WeightFormat(NamedTuple):
    """How the weights of a layer are stored.

    Attributes:
        path: Path of the layer.
        kind: Name of its class.
        dtype: "int8", "int4" or "float8" of a quantised kernel, else the dtype of the
            weights, such as "float32".
        bytes: Size of the layer's own weights in memory.
        reason: Why the layer is not quantised; "" if it is.
    """

    path: str
    kind: str
    dtype: str
    bytes: int
    reason: str


def weight_formats(model: keras.Model) -> list[WeightFormat]:
    """Returns how the weights of each layer are stored, and why some are not quantised.

        for layer in kerasvit.weight_formats(model):
            print(layer.path, layer.dtype, layer.bytes, layer.reason)

    Args:
        model: Built `keras.Model`, quantised or not; for a trainer pass
            `trainer.model`.
    """
    weights: dict[int, tuple[keras.layers.Layer, list[Any]]] = {}
    by_variable = owners(model)
    for variable in model.weights:
        layer = by_variable[id(variable)]
        weights.setdefault(id(layer), (layer, []))[1].append(variable)
    return [
        WeightFormat(
            layer.path or layer.name,
            type(layer).__name__,
            layer.quantization_mode
            or keras.backend.standardize_dtype(variables[0].dtype),
            sum(_bytes(variable) for variable in variables),
            _reason(layer, variables),
        )
        for layer, variables in weights.values()
    ]


def _bytes(variable: Any) -> int:
    dtype = np.dtype(keras.backend.standardize_dtype(variable.dtype))
    return int(np.prod(variable.shape)) * dtype.itemsize


def _reason(layer: keras.layers.Layer, variables: list[Any]) -> str:
    if layer.quantization_mode is not None:
        return ""
    if isinstance(layer, keras.layers.Dense):
        return "not chosen"
    if any(len(v.shape) == 4 and v.name == "kernel" for v in variables):
        return "Keras quantises no convolutions"
    return "no matrix product: a norm, scale, table or token"


class QuantizableModel(ClonableModel):
    """A model whose dense layers are quantised by one call.

    Attributes:
        adapters: Settings of LoRA, which its subclasses set, or None.
    """

    adapters: dict[str, Any] | None = None

    def quantize(
        self,
        mode: str | None = None,
        config: Any = None,
        filters: Filters = None,
    ) -> None:
        """Quantises the dense layers in place; see kerasvit/QUANTIZATION.md.

        All other layers keep their weights: Keras quantises no convolutions.
        `kerasvit.weight_formats` lists both.

            model.quantize("int8")
            model.quantize("int8", filters=lambda layer: layer.name != "head")

        Args:
            mode: "int8"; "int4", which quantises kernels alone, in blocks of 128
                inputs; or "float8", for training. None: that of `config`.
            config: `keras.quantizers.Int8QuantizationConfig` or
                `Int4QuantizationConfig`, for other settings.
            filters: Which dense layers: a regular expression or a list of them,
                searched in the layers' paths; or a function of a layer. None: all.

        Raises:
            ValueError: The mode is another one, the layers are quantised already,
                compute in float16 or have adapters, or `filters` selects none. The
                model is unchanged.
        """
        quantize(self, _resolved(mode, config), filters)

    def make_train_function(self, force: bool = False) -> None:
        """Makes Keras's train function, of a model whose trained layers are floating.

        Raises:
            ValueError: A quantised layer is not frozen.
        """
        check_no_integers_trained(self)
        force = trained_weights_changed(self) or force
        super().make_train_function(force=force)


def _resolved(mode: Any, config: Any) -> keras.quantizers.QuantizationConfig:
    """Returns the settings that `mode` or `config` states.

    Keras 3.15 passes settings to `quantize` of any model; 3.16 passes the arguments.
    """
    if isinstance(config, str):  # as in Keras
        mode, config = config, None
    if config is not None and mode not in (None, config.mode):
        raise ArgumentError(
            f"`mode` and `config` must agree. Received: mode={mode!r:.100} and "
            f"settings of {config.mode}. Leave one out.",
            "mode",
        )
    mode = mode if config is None else config.mode
    if mode not in CONFIGS:
        raise ArgumentError(
            f"`mode` must be one of {', '.join(CONFIGS)}. Received: {mode!r:.100}. "
            "Keras's gptq and awq are calibrated with samples of text; with images, "
            "call kerasvit.quantization.gptq.",
            "mode",
        )
    return CONFIGS[mode]() if config is None else config


def quantize(model: Any, config: Any, filters: Filters = None) -> None:
    """Quantises dense layers of a model, all or none if an error is raised.

    Args:
        model: `QuantizableModel`.
        config: `keras.quantizers.QuantizationConfig`.
        filters: As for `QuantizableModel.quantize`.

    Raises:
        ValueError: As for `QuantizableModel.quantize`.
    """
    quantize_all(model, checked(model, config, filters), config)


def checked(model: Any, config: Any, filters: Filters) -> list[keras.layers.Layer]:
    """Returns the layers that `quantize` quantises, or raises as it does."""
    if model.adapters:
        raise ValueError(
            f"{model.name} has adapters, which cannot be merged into quantised kernels "
            "later. Call kerasvit.merge_lora(model) before `quantize`."
        )
    if any(getattr(layer, "rounding", None) for layer in layers_in(model)):
        raise ValueError(
            f"{model.name} is simulated: its other products would still be rounded. "
            "Quantise the model that it was made of, after "
            "`model.set_weights(simulated.get_weights())`."
        )
    if _inputs(config) not in (
        None,
        _inputs(keras.quantizers.Int8QuantizationConfig()),
    ):
        raise ArgumentError(
            "`activation_quantizer` must be the default or None: files state no other. "
            f"Received: {config.activation_quantizer!r:.200}.",
            "config",
        )
    layers = _chosen(model, filters)
    if done := [layer for layer in layers if layer.quantization_mode is not None]:
        raise ValueError(
            f"{model.name} is quantised already: {done[0].path} and {len(done) - 1} "
            f"other layers are {done[0].quantization_mode}. Load or build the model "
            "again, or choose other layers with `filters`."
        )
    return layers


def _chosen(model: keras.Model, filters: Filters) -> list[keras.layers.Layer]:
    """Returns the dense layers that `filters` selects."""
    dense = [x for x in layers_in(model) if isinstance(x, keras.layers.Dense)]
    if not dense:
        raise ValueError(
            f"{model.name} has no dense layers, and Keras quantises no convolutions. "
            'Take a model with dense layers, or dtype="mixed_bfloat16".'
        )
    if filters is None:
        chosen = dense
    elif callable(filters):
        chosen = [layer for layer in dense if filters(layer)]
    else:
        chosen = [x for x in dense if _matches(filters, x.path)]
    if not chosen:
        kinds = dict.fromkeys("/".join(layer.path.split("/")[-2:]) for layer in dense)
        raise ArgumentError(
            f"`filters` must select dense layers of {model.name}, which are "
            f"{', '.join(kinds)}. Received: filters={filters!r:.200}.",
            "filters",
        )
    return chosen


def _matches(filters: str | Iterable[str], path: str) -> bool:
    patterns = [filters] if isinstance(filters, str) else filters
    try:
        return any(re.search(pattern, path) for pattern in patterns)
    except (re.error, TypeError) as error:
        raise ArgumentError(
            "`filters` must be a regular expression, a list of them, or a function of "
            f"a layer. Received: filters={filters!r:.200}, {error}.",
            "filters",
        ) from error


@alone
def quantize_all(
    model: keras.Model, layers: list[keras.layers.Layer], config: Any
) -> None:
    """Quantises layers that `checked` has returned."""
    narrow = [layer.path for layer in layers if layer.compute_dtype == "float16"]
    if config.mode == "int8" and narrow:
        raise ArgumentError(
            f"int8 needs layers that compute in float32 or bfloat16: float16 cannot "
            f"hold their sums. Received: {len(narrow)} layers of float16, such as "
            f'{narrow[0]}. Build the model with dtype="mixed_bfloat16".',
            "dtype",
        )
    for layer in layers:
        layer.quantize(config.mode, config=config)
    variables_changed(model)


def settings_of(model: keras.Model) -> list[dict[str, Any]]:
    """Returns which layers are quantised and how, as in the module's docstring."""
    groups: list[dict[str, Any]] = []
    for layer in layers_in(model):
        if isinstance(layer, keras.layers.Dense) and layer.quantization_mode:
            settings = _settings(layer)
            same = (group for group in groups if settings.items() <= group.items())
            group = next(same, None)
            if group is None:
                groups.append(group := {**settings, "layers": []})
            group["layers"] = sorted([*group["layers"], layer.path])
    return groups


def _settings(layer: keras.layers.Dense) -> dict[str, Any]:
    config = layer.quantization_config
    settings = {"mode": config.mode, "inputs": _inputs(config) is not None}
    if config.mode == "int4":
        settings["block_size"] = config.block_size
    return settings


def _inputs(config: Any) -> dict[str, Any] | None:
    quantizer = config.activation_quantizer
    return quantizer and keras.quantizers.serialize(quantizer)


def restore(model: keras.Model, settings: Iterable[dict[str, Any]]) -> None:
    """Quantises the layers that `settings_of` names, for kernels assigned afterwards.

    Layers that Keras has restored as quantised, those of the graph, stay as they are.

    Raises:
        ValueError: The model has no such layer.
    """
    dense = {x.path: x for x in layers_in(model) if isinstance(x, keras.layers.Dense)}
    for group in settings:
        if missing := [path for path in group["layers"] if path not in dense]:
            raise ValueError(
                f"The model {model.name} has no dense layers {', '.join(missing[:5])}, "
                "which are said to be quantised."
            )
        layers = [dense[path] for path in group["layers"]]
        layers = [layer for layer in layers if layer.quantization_mode is None]
        quantize_all(model, layers, _config(group))


def _config(settings: dict[str, Any]) -> Any:
    quantizers = keras.quantizers
    default = quantizers.Int8QuantizationConfig().activation_quantizer
    inputs = {"activation_quantizer": default if settings["inputs"] else None}
    if settings["mode"] == "int8":
        return quantizers.Int8QuantizationConfig(**inputs)
    if settings["mode"] == "int4":
        size = settings["block_size"]
        return quantizers.Int4QuantizationConfig(**inputs, block_size=size)
    return quantizers.Float8QuantizationConfig()
