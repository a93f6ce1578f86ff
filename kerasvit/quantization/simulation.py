"""Simulates quantised models of papers: rounds in arithmetic of floating point."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError, integer, one_of
from kerasvit.backend.forward import array_of
from kerasvit.backend.keras_private import layers_in
from kerasvit.backend.threads import using
from kerasvit.layers import MLP, AttentionUnit, Dense
from kerasvit.layers.layer import Roundable
from kerasvit.types import Tensor

from . import ranges, ranking
from .quantizers import Log2, Quantizer
from .ranking import KERNELS, Values
from .stored import QuantizableModel

#: Method of `simulate` → that of its uniform quantizers.
METHODS = {
    "min_max": "min_max",
    "percentile": "percentile",
    "mse": "mse",
    "entropy": "entropy",
    "twin_uniform": "mse",
    "log2": "min_max",
    "ranking": "min_max",
}
BATCH = 32  # images of a call, for an array
SAMPLE = 2**17  # values that are kept of a tensor
M = TypeVar("M", bound=QuantizableModel)


class Rounding:
    """Rounds the operands of a layer.

    Args:
        quantizers: {name of an operand: its quantizer}.
    """

    def __init__(self, quantizers: Mapping[str, Quantizer]) -> None:
        self.quantizers = quantizers

    def __call__(self, operation: Callable, operands: dict[str, Tensor]) -> Tensor:
        rounded = (self.quantizers[name](x) for name, x in operands.items())
        return operation(*rounded)


def simulate(
    model: M, batches: Any, method: str = "min_max", bits: int | tuple[int, int] = 8
) -> M:
    """Returns a copy of a model that rounds weights and activations to few bits.

    It computes in floating point, so that its accuracy is that of a model of integers,
    but not its speed or size. Both factors of each product are rounded: inputs and
    kernels of dense layers and convolutions, queries and keys, attention weights and
    values. Kernels have a scale for each output, other tensors one.

        simulated = kerasvit.quantization.simulate(model, images, "mse", bits=4)
        simulated.compile(loss=loss, metrics=["accuracy"])
        simulated.evaluate(validation)

    Gradients pass the rounding unchanged, but for values out of range, whose gradient
    is 0 (straight-through estimation): `fit` of the copy, or of a trainer such as
    `kerasvit.SAM` around it, is quantisation-aware training. The ranges stay. The copy
    has the variables of the model:

        simulated.fit(images, labels)
        model.set_weights(simulated.get_weights())

    Files and clones of the copy have its weights, and do not round.

    Args:
        model: Model of kerasvit, in floating point. It is not changed.
        batches: Images that give the ranges, as the model takes them: an array (N, H,
            W, C), or a finite iterable of batches, such as a dataset, whose labels are
            not read. Some hundred are enough.
        method: How to choose the ranges. "min_max": the smallest and the largest value;
            "percentile", "mse" (least squared error) and "entropy" (TensorRT) leave out
            rare large ones. "twin_uniform" (PTQ4ViT): as "mse", but the outputs of
            softmax and GELU have two ranges with scales of their own. "log2" (FQ-ViT):
            as "min_max", but softmax is rounded to powers of two; and the inputs of
            LayerNorms, which other methods leave as they are, are rounded too, with a
            power of two for each channel. "ranking" (Liu et al.): scales that maximise
            the correlation of each product with the rounded one and keep the order of
            attention scores, and up to 2 bits more or less for sensitive layers and
            others; see `kerasvit.quantization.ranking`.
        bits: Number of bits, 2 to 16; or (of weights, of activations). For "ranking"
            the mean of all weights.

    Raises:
        ValueError: The model is none of kerasvit, or is quantised or simulated already;
            there are no images, or they have another size; `method` or `bits` is
            another one; activations are not finite.

    Reference: `kerasvit.quantization.ranges` and `.quantizers` have the equations.
    PTQ4ViT weights errors by gradients (its equation 7); here all errors count alike.
    """
    check_floating(model)
    one_of("method", method, tuple(METHODS))
    pair = _bits(bits)
    images = images_of(model, batches)
    copy = floating_copy(model)
    values = _observed(copy, images, method == "log2")
    if method == "ranking":
        chosen = ranking.searched(copy, images[0], values, pair)
    else:
        chosen = _quantizers(values, _after_gelu(copy), method, pair)
    for layer, quantizers in chosen.items():
        layer.rounding = Rounding(quantizers)
    return copy


def _quantizers(
    values: Values, after_gelu: list, method: str, bits: tuple[int, int]
) -> dict[Any, dict[str, Any]]:
    """Returns {layer: {name of an operand: quantizer}} by the operands alone."""

    def one(layer: Any, name: str, x: np.ndarray) -> Quantizer:
        if name in KERNELS:
            return ranges.of_kernel(x, name, METHODS[method], bits[0])
        kind = "gelu" if layer in after_gelu else name
        return _quantizer(kind, x, method, bits[1])

    return {
        layer: {name: one(layer, name, x) for name, x in own.items()}
        for layer, own in values.items()
    }


def _quantizer(name: str, values: np.ndarray, method: str, bits: int) -> Quantizer:
    """Returns the quantizer of an operand that is no kernel."""
    if name == "normalized":
        return ranges.with_factors(values, bits)
    if name == "weights" and method == "log2":
        return Log2(bits)
    if name == "weights" and method == "twin_uniform":
        return ranges.of_softmax(values, bits)
    if name == "gelu" and method == "twin_uniform":
        return ranges.of_gelu(values, bits)
    return ranges.of_activations(values, METHODS[method], bits)


def check_floating(model: Any) -> None:
    """Raises a `ValueError` for what is no model of kerasvit in floating point."""
    if not isinstance(model, QuantizableModel):
        raise ArgumentError(
            "`model` must be a model of kerasvit; for a trainer pass trainer.model. "
            f"Received: {model!r:.200}.",
            "model",
        )
    for layer in layers_in(model):
        mode = layer.quantization_mode
        if getattr(layer, "rounding", None) is not None:
            mode = "simulated"
        if mode is not None:
            raise ArgumentError(
                f"`model` must compute in floating point. Received: {model.name}, "
                f"whose {layer.path} is {mode}. Take the model before `quantize` and "
                "`simulate`.",
                "model",
            )


def check_finite(path: str, operands: Iterable[np.ndarray]) -> None:
    """Raises a `ValueError` for operands of a layer that are not finite."""
    if not all(np.isfinite(each).all() for each in operands):
        raise ArgumentError(
            f"The operands of {path} must be finite. Received: Inf or NaN. Check the "
            "images and the weights.",
            "batches",
        )


def _bits(bits: Any) -> tuple[int, int]:
    """Returns the numbers of bits of weights and activations."""
    pair = bits if isinstance(bits, (tuple, list)) and len(bits) == 2 else (bits, bits)
    meaning = "or (bits of weights, bits of activations)"
    of_weights, of_activations = (
        integer("bits", each, 2, 16, meaning=meaning) for each in pair
    )
    return of_weights, of_activations


def images_of(model: keras.Model, batches: Any) -> list[Any]:
    """Returns batches of images without their labels."""
    shape = getattr(batches, "shape", None)
    if shape is not None and len(shape):
        batches = [batches[i : i + BATCH] for i in range(0, len(batches), BATCH)]
    elif shape is not None or not isinstance(batches, Iterable):
        raise ArgumentError(
            "`batches` must be an array of images (N, H, W, C) or an iterable of "
            f"batches. Received: {type(batches).__name__}.",
            "batches",
        )
    found = [b[0] if isinstance(b, (tuple, list)) else b for b in batches]
    if not found:
        raise ArgumentError(
            "`batches` must have images, which give the ranges. Received: none.",
            "batches",
        )
    expected = tuple(model.inputs[0].shape)
    for batch in found:
        shape = tuple(getattr(batch, "shape", ()))
        sides = zip(expected, shape, strict=False)
        fits = len(shape) == len(expected) and shape[0]
        if not fits or any(side not in (None, own) for side, own in sides):
            raise ArgumentError(
                f"`batches` must have images {expected[1:]}, as {model.name} takes "
                f"them, in batches. Received: shape {shape}. Resize the images, or the "
                "model with `kerasvit.resize`.",
                "batches",
            )
    return found


def floating_copy(model: M) -> M:
    """Returns a copy of a model whose products are all of our own layers."""

    def again(layer: Any) -> Any:
        kind = Dense if type(layer) is keras.layers.Dense else type(layer)
        return kind.from_config(layer.get_config())

    copy = keras.models.clone_model(model, clone_function=again)
    with using(model.variables):
        copy.set_weights([*map(array_of, model.weights)])
    return copy


def _after_gelu(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers whose inputs are the outputs of a GELU."""
    layers = layers_in(model)
    after = [layer.dense_1 for layer in layers if isinstance(layer, MLP)]
    return after + [x.conv for x in layers if isinstance(x, AttentionUnit)]


class Observer:
    """Keeps samples of the operands of a layer, and rounds none.

    Args:
        count: Number of values to keep of a tensor in one call.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._seen: dict[str, list[np.ndarray]] = {}

    def __call__(self, operation: Callable, operands: dict[str, Tensor]) -> Tensor:
        for name, x in operands.items():
            seen = self._seen.setdefault(name, [])
            if name not in KERNELS or not seen:
                seen.append(self._sample(name, ops.convert_to_numpy(x)))
        return operation(*operands.values())

    def _sample(self, name: str, x: np.ndarray) -> np.ndarray:
        x = x.astype("float32")
        if name in KERNELS:
            return x
        rows = x.reshape(-1, x.shape[-1]) if name == "normalized" else x.reshape(-1, 1)
        count = max(self._count // rows.shape[1], 1)
        if len(rows) > count:
            ends = [x.argmin() // rows.shape[1], x.argmax() // rows.shape[1]]
            drawn = np.random.default_rng(0).integers(len(rows), size=count)
            rows = rows[np.concatenate([ends, drawn])]
        return rows if name == "normalized" else rows[:, 0]

    def values(self) -> dict[str, np.ndarray]:
        """Returns {name of an operand: kernel, sample of values or sample of rows}."""
        return {
            name: seen[0] if name in KERNELS else np.concatenate(seen)
            for name, seen in self._seen.items()
        }


def _observed(model: keras.Model, images: list[Any], norms: bool) -> Values:
    """Returns {layer: what it computed with} for the layers with products.

    Args:
        model: Model that the function may change, and changes back.
        images: Batches.
        norms: Whether to observe LayerNorms, too.
    """
    observers: dict[Any, Observer] = {
        layer: Observer(SAMPLE // len(images))
        for layer in layers_in(model)
        if isinstance(layer, Roundable)
    }
    for layer, observer in observers.items():
        layer.rounding = observer
    for batch in images:
        model(ops.convert_to_tensor(batch), training=False)
    found = {}
    for layer, observer in observers.items():
        layer.rounding = None
        values = observer.values()
        if not values or ("normalized" in values and not norms):
            continue
        check_finite(layer.path, values.values())
        found[layer] = values
    return found
