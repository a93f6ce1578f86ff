"""The optimizer and the loss of a rho search: the model's own, or defaults."""

from typing import Any

import keras
import numpy as np

from kerasvit.backend.keras_internals import compile_arguments

# Arguments of the model's `compile` that the trials use.
USED = (
    "loss",
    "loss_weights",
    "metrics",
    "weighted_metrics",
    "run_eagerly",
    "jit_compile",
)
RATE = 1e-4  # small enough for pretrained weights


def compile_options(
    model: keras.Model, batch: tuple[Any, ...], optimizer: Any = None, loss: Any = None
) -> tuple[dict[str, Any], str]:
    """Returns arguments of `compile`, with an optimizer and a loss.

    Args:
        model: Built `keras.Model`, compiled or not.
        batch: `(x, y, sample_weight)`, NumPy arrays, which may determine the loss.
        optimizer: Replaces the model's optimizer.
        loss: Replaces the model's loss.

    Returns:
        Dictionary, and a sentence that names the defaults used, or an empty string.

    Raises:
        ValueError: The model has no loss, `loss` is None, and the targets are not
            labels.
    """
    options, assumed = _compiled(model), []
    if loss is not None:
        options = {**options, "loss": loss, "loss_weights": None}
    if optimizer is not None:
        options["optimizer"] = optimizer
    if "loss" not in options:
        options.update(_classification(model, *batch[:2]))
        assumed.append("the cross-entropy of labels")
    if options.get("optimizer") is None:
        options["optimizer"] = keras.optimizers.AdamW(RATE)
        assumed.append(f"AdamW at a learning rate of {RATE:g}")
    if not assumed:
        return options, ""
    return options, (
        f"The model is not compiled, so it was trained with {' and '.join(assumed)}. "
        "Pass `loss` and `optimizer` for others."
    )


def _compiled(model: keras.Model) -> dict[str, Any]:
    """Returns the arguments of the model's `compile`, or an empty dictionary."""
    if not model.compiled:
        return {}
    config = compile_arguments(model)
    options = {name: config[name] for name in USED}
    return {**options, "optimizer": model.optimizer}


def _classification(model: keras.Model, x: Any, y: Any) -> dict[str, Any]:
    """Returns a loss and a metric for integer labels.

    Raises:
        ValueError: The targets are not labels of the outputs' classes.
    """
    outputs = model.predict_on_batch(x)
    single = isinstance(outputs, np.ndarray) and outputs.ndim == 2
    classes = outputs.shape[-1] if single else 0
    labels = np.issubdtype(getattr(y, "dtype", None), np.integer)
    labels = labels and y.shape in ((len(y),), (len(y), 1))
    if not labels or classes < 2 or y.min() < 0 or y.max() >= classes:
        shapes = keras.tree.map_structure(lambda a: (a.shape, str(a.dtype)), y)
        raise ValueError(
            "`model` must be compiled, or `loss` be given, or the targets be integer "
            "labels, one per sample, from 0 to the number of outputs - 1. "
            f"Received: targets of {shapes} and outputs of shape "
            f"{keras.tree.map_structure(np.shape, outputs)}. Pass a loss: "
            '`suggest_rho(model, data, loss="mse")`, or '
            "`loss=keras.losses.CategoricalCrossentropy(from_logits=True)` for one-hot "
            "targets."
        )
    sums = outputs.astype("float32").sum(-1)
    probabilities = (outputs >= 0).all() and np.allclose(sums, 1, atol=1e-2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=not probabilities)
    return {"loss": loss, "metrics": ["accuracy"]}
