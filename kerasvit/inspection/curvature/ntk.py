"""The empirical neural tangent kernel of a model, and its condition number."""

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError, integer, one_of
from kerasvit.backend import gradients_at
from kerasvit.backend.forward import array_of, outputs_of
from kerasvit.backend.keras_private import in_dtype, in_variable_dtype
from kerasvit.types import Tensor

from .mean_loss import chosen_variables, inner_model

FORMS = ("logit", "summed", "traced", "full")


@dataclass(frozen=True)
class NTK:
    """The Gram matrix Θ of a model's gradients on n images, and its spectrum.

    Args:
        matrix: Symmetric array; its shape depends on the form, see `ntk`.
        eigenvalues: Array of all eigenvalues, ascending; (K, n) for the form "logit".
        condition_number: κ = λmax / λmin, a float, or an array (K,) for "logit". It is
            infinite where λmin is 0 up to rounding.
    """

    matrix: np.ndarray
    eigenvalues: np.ndarray
    condition_number: Any


def ntk(
    model: keras.Model,
    x: Any,
    *,
    form: str = "traced",
    logits: Sequence[int] | None = None,
    head: str | None = None,
    dtype: str | None = None,
    memory: int = 2**30,
    seed: int = 0,
) -> NTK:
    """Returns the empirical neural tangent kernel of a model on images.

    Its entries are products of gradients by all trainable weights, of logits f_a(x_i):

        form        Θ                                            shape
        "logit"     ∇f_a(x_i)·∇f_a(x_j), one matrix per logit    (K, n, n)
        "summed"    ∇Σ_a f_a(x_i)·∇Σ_b f_b(x_j)                  (n, n)
        "traced"    Σ_a ∇f_a(x_i)·∇f_a(x_j)                      (n, n)
        "full"      ∇f_a(x_i)·∇f_b(x_j), row i·K + a             (n·K, n·K)

    arXiv 2106.01548 (table 1) gives κ at initialisation, and does not say of which
    form. The head of a new model is zero, and so are the gradients of all weights below
    it: `head="random"` computes with another one. The model runs with `training=False`
    and is not changed.

    Cost: n gradients for "summed", n·K for the others, once for every block of weights.
    A block holds so many that the gradients of all images by them, for "full" those of
    all logits, fit into `memory`. On the device are one image and a copy of the
    gradients.

    Args:
        model: Built `keras.Model` with one output (N, K), the logits; not
            probabilities, whose sum has no gradient.
        x: Inputs (n, ...), an array or a list or dictionary of arrays.
        form: One of the table.
        logits: Indices of the K logits to use; None: all outputs.
        head: "random": the kernel of the head is drawn from N(0, 1 / its inputs), as at
            LeCun's initialisation. None: the head as it is, which must not be zero.
        dtype: Dtype of the gradients, "float32" or, on TensorFlow, "float64"; Keras
            lowers float64 to float32 on the other backends. None: the most precise one.
            In float32 the relative error of κ is about 1e-7 · κ.
        memory: Bytes on the host for gradients, ≥ 1; it does not change the result.
        seed: Seed of the random head.

    Returns:
        `NTK`.

    Raises:
        ValueError: An argument is out of its range; the kernel of the head is zero; all
            gradients are zero, or one is not finite; as for `Hessian`, for the model.

    References: Jacot et al. 2018, arXiv 1806.07572; κ: Xiao et al. 2020, arXiv
    1912.13053.
    """
    one_of("form", form, FORMS)
    dtypes = ("float32", "float64")[: 1 + (keras.backend.backend() == "tensorflow")]
    dtype = one_of("dtype", dtype or dtypes[-1], dtypes)
    integer("memory", memory, 1)
    chosen = chosen_variables(model)
    model = inner_model(model)
    count = _outputs(model)
    indices = [*range(count)] if logits is None else list(logits)
    integer("len(logits)", len(indices), 1)
    one_of("head", head, (None, "random"))
    images = integer("len(x)", len(keras.tree.flatten(x)[0]), 1)
    directions = np.eye(count)[[integer("logits", a, 0, count - 1) for a in indices]]
    if form == "summed":
        _check_logits(model, x)
        directions = directions.sum(0, keepdims=True)
    # Gradients of different logits are compared in the full form alone.
    groups = [directions] if form == "full" else [*directions[:, None]]
    values = _values(model, chosen, head, seed)
    size = sum(math.prod(variable.shape) for variable in chosen)
    with in_dtype(model, dtype):
        gradient = _gradient(model, x, values, len(chosen), dtype)
        matrices = np.stack(
            [_gram(gradient, size, images, group, memory) for group in groups]
        )
    return _spectrum(matrices if form == "logit" else matrices.sum(0), dtype)


def _outputs(model: keras.Model) -> int:
    """Returns the number of logits."""
    shape: Any = getattr(model, "output_shape", None)
    if not isinstance(shape, tuple) or len(shape) != 2 or shape[-1] is None:
        raise ArgumentError(
            "`model` must have one output of shape (N, K), the logits. Received: "
            f"{model!r} with output shape {shape}. For other outputs, wrap it: "
            "keras.Model(model.inputs, logits).",
            "model",
        )
    return shape[-1]


def _check_logits(model: keras.Model, x: Any) -> None:
    """Checks that the outputs of the first images are not probabilities.

    The derivatives of their sum, which is 1, are rounding errors.
    """
    first = keras.tree.map_structure(lambda a: np.asarray(a[:2]), x)
    with in_variable_dtype(model):
        outputs = outputs_of(model, first)
    if (outputs >= 0).all() and np.allclose(outputs.sum(1), 1, atol=1e-4):
        raise ArgumentError(
            "`model` must return logits, whose sum depends on the weights. Received: "
            f"{model!r}, whose outputs are probabilities. Pass "
            "keras.Model(model.inputs, logits), or another `form`.",
            "model",
        )


def _values(
    model: keras.Model, chosen: list[keras.Variable], head: str | None, seed: int
) -> list[tuple[keras.Variable, np.ndarray]]:
    """Returns all variables with their values, the chosen ones first."""
    known = {id(variable) for variable in chosen}
    variables = [*chosen, *(v for v in model.variables if id(v) not in known)]
    kernels = {id(v) for v in _head_kernels(model)}
    generator = np.random.default_rng(seed)
    pairs = []
    for variable in variables:
        value = array_of(variable)
        if id(variable) in kernels and head == "random":
            inputs = np.prod(value.shape[:-1])
            value = generator.standard_normal(value.shape) / np.sqrt(inputs)
        elif id(variable) in kernels and not value.any():
            raise ArgumentError(
                "The kernel of the head is zero, and so are the gradients of all "
                f"weights below it. Received: {variable.path!r}. Pass "
                '`head="random"` for a random kernel, or a trained model.',
                "head",
            )
        pairs.append((variable, value))
    return pairs


def _head_kernels(model: keras.Model) -> list[keras.Variable]:
    """Returns the kernels of the layers named head, or of the last with weights."""
    layers = [layer for layer in model.layers if layer.weights]
    heads = [layer for layer in layers if re.match("head(_|$)", layer.name)]
    kernels: list[keras.Variable] = []
    for layer in heads or layers[-1:]:
        if isinstance(layer, keras.Model):
            kernels += _head_kernels(layer)
        else:
            kernels += [v for v in layer.weights if v.name == "kernel"]
    return kernels


def _gradient(
    model: keras.Model,
    x: Any,
    values: list[tuple[keras.Variable, np.ndarray]],
    count: int,
    dtype: str,
) -> Callable[[int, np.ndarray], np.ndarray]:
    """Returns the gradient (P,) of an image's logits along a direction (K,)."""

    def tensor(value: Any) -> Tensor:
        real = np.issubdtype(value.dtype, np.floating)
        return ops.convert_to_tensor(value, dtype if real else None)

    def projection(image: Any, direction: Tensor) -> Tensor:
        return ops.sum(model(image, training=False)[0] * direction)

    gradients = gradients_at([v for v, _ in values], projection, count)
    tensors = [tensor(value) for _, value in values]

    def gradient(i: int, direction: np.ndarray) -> np.ndarray:
        image = keras.tree.map_structure(lambda a: tensor(np.asarray(a[i : i + 1])), x)
        _, found = gradients(tensors, image, tensor(direction))
        return np.concatenate([ops.convert_to_numpy(each).ravel() for each in found])

    return gradient


def _gram(
    gradient: Callable[[int, np.ndarray], np.ndarray],
    size: int,
    images: int,
    directions: np.ndarray,
    memory: int,
) -> np.ndarray:
    """Returns the products of the gradients of all images and directions.

    Args:
        gradient: Function of an image's index and a direction, as `_gradient` returns.
        size: Number of entries of a gradient, P.
        images: Number of images, n.
        directions: Array (R, K).
        memory: Bytes for the gradients.

    Returns:
        Array (n·R, n·R), row i·R + j.
    """
    rows = [*itertools.product(range(images), directions)]
    width = max(1, memory // (len(rows) * np.dtype("float64").itemsize))
    total = np.zeros((len(rows), len(rows)))
    for start in range(0, size, width):
        block = np.empty((len(rows), min(width, size - start)))
        for i, row in enumerate(rows):
            block[i] = gradient(*row)[start : start + width]
        total += block @ block.T
    return total


def _spectrum(matrix: np.ndarray, dtype: str) -> NTK:
    if not np.isfinite(matrix).all():
        raise ValueError(
            "The gradients of the logits must be finite. Received: Inf or NaN. Check "
            "the images and the weights."
        )
    values = np.linalg.eigvalsh(matrix)
    largest, smallest = values[..., -1], values[..., 0]
    if not np.all(largest > 0):
        raise ValueError(
            "The logits must depend on the weights. Received: gradients that are all "
            "zero. Check the images and the weights."
        )
    rounding = matrix.shape[-1] * np.finfo(dtype).eps * largest
    singular = smallest <= rounding
    condition = np.where(singular, np.inf, largest / np.where(singular, 1, smallest))
    return NTK(matrix, values, condition if condition.ndim else float(condition))
