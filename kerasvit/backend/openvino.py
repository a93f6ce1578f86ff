"""Inference on OpenVINO, which has no gradients."""

import threading
from collections.abc import Callable
from typing import Any, NoReturn

import keras
import ml_dtypes
import openvino
from keras import ops
from openvino import opset16

from kerasvit.types import Tensor

from .keras_private import compute_loss, present_values, track_loss

# OpenVINO's own choice is bfloat16 on CPUs that have products of it.
PRECISE = {"INFERENCE_PRECISION_HINT": "f32"}


def refuse(*args: Any, **kwargs: Any) -> NoReturn:
    """Stands for everything that needs gradients.

    Raises:
        ValueError: Always.
    """
    raise ValueError(
        "OpenVINO has no gradients: on this backend kerasvit computes outputs, and "
        "neither trains nor differentiates. Set KERAS_BACKEND to tensorflow, jax or "
        "torch for this call. To use a model here that was trained there, save the "
        "model itself (of a trainer `trainer.model`) with `kerasvit.save_pretrained` "
        "or `model.save`."
    )


gradients_at = input_gradient = loss_derivatives = value_at = refuse


class TrainStep:
    """Base of trainers, none of which is made."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuses before a trainer checks its model.

        Raises:
            ValueError: Always.
        """
        refuse()


class InferenceModel:
    """Base before `keras.Model`: computes in float32, with the weights as they are.

    Keras compiles a model once, with its weights as constants, which stay when the
    weights are assigned, and in the precision that OpenVINO chooses.
    """

    fit = train_on_batch = refuse

    def predict_step(self, data: Any) -> Any:
        """Returns the outputs of one batch, as arrays."""
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return outputs(self, x)

    def test_step(self, data: Any) -> dict[str, Any]:
        """Returns the metrics after one batch, as Keras's step does."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        model: Any = self
        y_pred = self.predict_step(data)
        loss = compute_loss(model, x, y, y_pred, sample_weight, training=False)
        track_loss(model, loss, len(keras.tree.flatten(x)[0]))
        return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def outputs(model: Any, x: Any) -> Any:
    """Returns the outputs of a model for a batch, as arrays.

    Args:
        model: Built `keras.Model`.
        x: Inputs of one batch.
    """
    x = keras.tree.map_structure(keras.ops.convert_to_numpy, x)
    shapes = [(each.shape[1:], each.dtype) for each in keras.tree.flatten(x)]
    # What a compiled call depends on: `variables_changed` makes new functions.
    now = [model.predict_function, shapes, *present_values(model.variables)]
    before, run = vars(model).get("_compiled", ([], None))
    if len(before) != len(now) or not all(map(_same, before, now)):
        run = _compiled(model, x)
        vars(model)["_compiled"] = now, run  # Keras would track an attribute
    return run(x)


def _same(before: Any, now: Any) -> bool:
    # Tensors compare by their values.
    return before is now or (isinstance(now, list) and before == now)


def _compiled(model: Any, x: Any) -> Callable[[Any], Any]:
    """Compiles a model with its present weights for batches of any size.

    Args:
        model: Built `keras.Model`.
        x: Inputs of one batch, arrays.

    Returns:
        Function of such inputs that returns the outputs, arrays.
    """
    nodes = [
        opset16.parameter([-1, *array.shape[1:]], array.dtype)
        for array in keras.tree.flatten(x)
    ]
    tensors = [keras.ops.convert_to_tensor(node.output(0)) for node in nodes]
    found = model(keras.tree.pack_sequence_as(x, tensors), training=False)
    results = [tensor.output for tensor in keras.tree.flatten(found)]
    dtypes = keras.tree.map_structure(lambda tensor: tensor.dtype, found)
    graph = openvino.Model(results, nodes)
    compiled = openvino.compile_model(graph, "CPU", PRECISE)
    lock = threading.Lock()  # a second call meanwhile would raise an error

    def run(x: Any) -> Any:
        with lock:
            arrays = compiled(keras.tree.flatten(x)).to_tuple()
        arrays = keras.tree.pack_sequence_as(dtypes, arrays)
        return keras.tree.map_structure(_in_dtype, arrays, dtypes)

    return run


def _in_dtype(array: Any, dtype: str) -> Any:
    # OpenVINO gives the bits of bfloat16 to NumPy as float16.
    return array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array


def normalized(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    epsilon: float,
) -> Tensor:
    """Same as `kerasvit.ops.normalized`.

    OpenVINO 2026.4 gives wrong numbers for its own operation between a convolution and
    a matrix product where the maps are constants, as in `model(x)`.
    """
    scale = ops.rsqrt(variance + epsilon)
    scale = scale if gamma is None else scale * gamma
    x = (x - mean) * scale
    return x if beta is None else x + beta
