"""`ImageModel`, the class that all builders return, with its input and head."""

import json
import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import keras

from kerasvit.adapters import attach
from kerasvit.arguments import ArgumentError
from kerasvit.layers.rescaling import Rescaling, with_channels_last
from kerasvit.preprocessing import Preprocessing
from kerasvit.quantization import QuantizableModel, restore, settings_of
from kerasvit.records import OWNER, found_record, table_size
from kerasvit.types import Tensor

# Arguments of layers that do not affect inference: initial values, precision, and
# arguments for training.
_FREE = {"trainable", "dtype", "seed", "rate", "dropout", "stochastic_depth"}
_FREE |= {"momentum", "build_config", "shared_object_id"}
_FREE_ENDS = ("_initializer", "_regularizer", "_constraint")
HEADS = ("head", "head_distillation")  # of the class and of the distillation token


@keras.saving.register_keras_serializable("kerasvit")
class ImageModel(QuantizableModel):
    """A functional model with a record of how it was built.

    `keras.models.clone_model` keeps the record if the clone computes the same function
    for the same weights. Clones with other layers have the record None. `.keras` files
    and clones also keep which layers are quantised.

    Attributes:
        record: JSON object that `.keras` files and model folders store: `builder` and
            `kwargs`, which rebuild the architecture; `variant`, the name of the variant
            or None; `origin`, the code base of the weights or None; `preprocessing`,
            the evaluation transform of the weights; `label_names`, a list, "imagenet1k"
            or None; `problem_type`, in transformers' words, if the files state it;
            `kernel`, which resamples the position table, if it is not that of the code
            base.
        preprocessing: The `Preprocessing` of the record, or None.
        adapters: Settings of LoRA that `add_lora` sets and `.keras` files and clones
            keep, or None; see `kerasvit/adapters.py`.
        card: The README.md of the files that the model was loaded from, with a hash of
            the weights that it is about, which `save_pretrained`, `push_to_hub`,
            `.keras` files and clones keep; or None. See `kerasvit/loaded_card.py`.
    """

    record: dict[str, Any] | None
    adapters: dict[str, Any] | None = None
    card: dict[str, Any] | None = None

    # Keras recognises functional subclasses by this signature.
    def __init__(
        self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any
    ) -> None:
        record = kwargs.pop("record", None)
        super().__init__(inputs, outputs, name=name, **kwargs)
        self.record = record
        if len(self.outputs) == 1:
            if record is None:
                self._inherit()
            vars(self.outputs[0]).setdefault(OWNER, self)

    def _inherit(self) -> None:
        """Copies the record and the adapters of the model with the same graph."""
        record, model = found_record(self), self.pop_original()
        if model is not None and isinstance(model.record, dict):
            same = computes_the_same(self, model)
            record = model.record if same else None
            if same:
                restore(self, settings_of(model))
            if same and model.adapters:
                attach(self, json.loads(json.dumps(model.adapters)))
            if same and model.card:
                self.card = dict(model.card)
        self.record = record and json.loads(json.dumps(record))

    @property
    def preprocessing(self) -> Preprocessing | None:
        """The evaluation transform of the record; None if the record has none.

        `model.preprocessing = kerasvit.Preprocessing(…)` changes the record.

        Raises:
            ValueError: The record's transform is damaged; or the new one is no
                `Preprocessing` or None, makes images of another size than the model
                takes, or has not the mean and deviation that the model has built in;
                or the model has no record.
        """
        found = self.record and self.record.get("preprocessing")
        return None if found is None else Preprocessing.from_config(found)

    @preprocessing.setter
    def preprocessing(self, transform: Preprocessing | None) -> None:
        if not isinstance(self.record, dict):
            raise ArgumentError(
                "The model has no record of kerasvit, which holds the transform. Build "
                "it with a variant or load it with `kerasvit.from_pretrained`.",
                "preprocessing",
            )
        if transform is not None:
            self._check_transform(transform)
        self.record["preprocessing"] = transform and transform.to_config()

    def _check_transform(self, transform: Any) -> None:
        """Raises an `ArgumentError` for a transform that does not fit the model."""
        if not isinstance(transform, Preprocessing):
            raise ArgumentError(
                "`preprocessing` must be a kerasvit.Preprocessing or None. Received: "
                f"{transform!r:.300}.",
                "preprocessing",
            )
        taken = self.inputs[0].shape[1:3]
        sides = zip(taken, transform.size, strict=True)
        if any(size not in (None, own) for size, own in sides):
            raise ArgumentError(
                f"`preprocessing` makes images of {transform.size[0]} × "
                f"{transform.size[1]}, and the model takes {taken[0]} × {taken[1]}. "
                "Pass preprocessing.with_size(…), or `kerasvit.resize` the model.",
                "preprocessing",
            )
        channels = self.inputs[0].shape[-1]
        if transform.channels != channels:
            raise ArgumentError(
                f"`preprocessing` has means of {transform.channels} channels, and the "
                f"model takes {channels}. State a mean and a deviation for each.",
                "preprocessing",
            )
        built_in = ((self.record or {}).get("kwargs") or {}).get("normalization")
        own = {"mean": list(transform.mean), "std": list(transform.std)}
        if built_in and own != {key: list(value) for key, value in built_in.items()}:
            raise ArgumentError(
                f"`preprocessing` has {own}, and the model normalises images itself, "
                f"with {built_in}. Pass a transform with these, or build the model "
                "with include_preprocessing=False.",
                "preprocessing",
            )

    def export(
        self, filepath: Any, format: str = "tf_saved_model", *args: Any, **kwargs: Any
    ) -> None:
        """Exports as `keras.Model.export`; recipes/EXPORT.md has what works where.

        Raises:
            ValueError: JAX or PyTorch would export a model for images of any size, or
                PyTorch a SavedModel without torch_xla, or OpenVINO another format than
                its own.
        """
        if keras.backend.backend() == "openvino" and format != "openvino":
            raise ValueError(
                f'On OpenVINO `format` must be "openvino". Received: {format!r}. Load '
                "the weights with KERAS_BACKEND=tensorflow, jax or torch."
            )
        xla = keras.backend.backend() != "torch" or find_spec("torch_xla")
        if format == "tf_saved_model" and not xla:
            raise ValueError(
                "Keras writes SavedModels of PyTorch with torch_xla, which is not "
                "installed. Load the weights with KERAS_BACKEND=tensorflow or jax, or "
                'export another format, such as format="torch".'
            )
        signature = kwargs.get("input_signature") or args[1:]
        unknown = None in self.inputs[0].shape[1:3] and not signature
        if unknown and keras.backend.backend() in ("jax", "torch"):
            raise ValueError(
                "JAX and PyTorch export models for images of one size. Received: a "
                "model for images of any size. Export `kerasvit.resize(model, size)`, "
                "or pass input_signature=[keras.InputSpec('float32', (None, height, "
                "width, 3))]."
            )
        super().export(filepath, format, *args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """Returns the graph's configuration, the record, adapters and quantisation."""
        record = self.record and dict(self.record)
        config = {**super().get_config(), "record": record}
        if self.adapters:
            config["adapters"] = dict(self.adapters)
        if settings := settings_of(self):
            config["quantization"] = settings
        if self.card:
            config["card"] = dict(self.card)
        return config

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> "ImageModel":
        """Builds the model with its record, adapters and quantised layers."""
        config = dict(config)
        record, adapters = config.pop("record", None), config.pop("adapters", None)
        settings, card = config.pop("quantization", ()), config.pop("card", None)
        config = with_channels_last(config)
        model = super().from_config(config, custom_objects=custom_objects)
        model.record, model.card = record, card
        restore(model, settings)
        if adapters:
            attach(model, adapters)
        return model

    def __repr__(self) -> str:
        record: Any = getattr(self, "record", None)
        kwargs: Any = record.get("kwargs") if isinstance(record, dict) else None
        size = kwargs.get("image_size") if isinstance(kwargs, dict) else None
        if not isinstance(size, (list, tuple)) or len(size) != 2:
            return super().__repr__()
        height, width = size
        pixels = f"{height} × {width} pixels" if height else "images of any size"
        classes = kwargs.get("num_classes")
        head = f"{classes} classes" if classes else f"{self.output_shape[-1]} features"
        count = sum(math.prod(variable.shape) for variable in self.weights)
        fixed = sum(math.prod(v.shape) for v in self.non_trainable_weights)
        policies = {layer.dtype_policy.name for layer in self.layers if layer.weights}
        parts = [
            record.get("variant") or record.get("builder"),
            f"{pixels} to {head}",
            f"{count:,} parameters" + (f", {fixed:,} not trainable" if fixed else ""),
            *([] if policies == {"float32"} else [" and ".join(sorted(policies))]),
            _weights(record),
        ]
        return f"<{type(self).__name__} {self.name}: {', '.join(map(str, parts))}>"


def _weights(record: dict[str, Any]) -> str:
    """Returns a description of the source of the weights."""
    base, origin = record.get("base"), record.get("origin")
    source = base.get("source") if isinstance(base, dict) else None
    if source:
        return f"weights from {source}"
    return f"weights from a file of {origin}" if origin else "random initial weights"


def new_record(builder: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the record of a model with fresh weights."""
    size, normalization = table_size(kwargs) or 224, kwargs.get("normalization")
    transform = Preprocessing(size, **(normalization or {}))
    transform = transform.with_channels(kwargs.get("channels", 3))
    return {
        "builder": builder,
        "variant": None,
        "kwargs": kwargs,
        "origin": None,
        "preprocessing": transform.to_config(),
        "label_names": None,
    }


def image_input(
    image_size: Sequence[int | None],
    normalization: dict[str, Any] | None = None,
    channels: int = 3,
) -> tuple[Tensor, Tensor]:
    """The model's input, and the image that its first layer sees.

    Args:
        image_size: (height, width) in pixels; (None, None) for images of any size.
        normalization: {"mean": ..., "std": ...} of pixels in 0…1 for a model that
            takes 0…255 and normalises itself; or None.
        channels: Number of channels.

    Returns:
        (input, image), both (batch, H, W, channels).
    """
    image = keras.Input((*image_size, channels), name="image")
    if normalization is None:
        return image, image
    mean, std = normalization["mean"], normalization["std"]
    # In the variables' dtype: bfloat16 would round the pixels before they are centred.
    scale = Rescaling(
        [1 / (255 * s) for s in std],
        [-m / s for m, s in zip(mean, std, strict=True)],
        dtype=keras.config.dtype_policy().variable_dtype,
        name="normalization",
    )
    return image, scale(image)


def head(num_classes: int, name: str = "head") -> Callable[[Tensor], Tensor]:
    """Returns the layer from features to logits; the identity for no classes.

    Zero at the start, as in vit_jax; full precision, for the loss.
    """
    if not num_classes:
        return lambda features: features
    return keras.layers.Dense(
        num_classes,
        kernel_initializer="zeros",
        dtype=keras.config.dtype_policy().variable_dtype,
        name=name,
    )


def mean_of_heads(x: Tensor, num_classes: int) -> Tensor:
    """Returns the mean logits of the first two tokens: (B, N, D) → (B, num_classes).

    Without classes it is the mean of the tokens, (B, D).
    """
    logits = [head(num_classes, key)(x[:, i]) for i, key in enumerate(HEADS)]
    # In the heads' full precision.
    average = keras.layers.Average(
        dtype=keras.config.dtype_policy().variable_dtype, name="average"
    )
    return average(logits)


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
