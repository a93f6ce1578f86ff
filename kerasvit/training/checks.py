"""Whether arguments of the trainers are what they must be."""

import math
import numbers

import keras

from ..autodiff.built import check_built


def finite(name, value, expected) -> float:
    """An argument that must be a finite number ≥ 0; `expected` says what it is.

    Raises:
        ValueError: It is not.
    """
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise ValueError(
            f"`{name}` must be a finite number {expected}. Received: {name}={value!r}."
        )
    return float(value)


def whole(name, value, expected) -> int:
    """An argument that must be a whole number ≥ 1; `expected` says what it is.

    Raises:
        ValueError: It is not.
    """
    number = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not number or value < 1:
        raise ValueError(
            f"`{name}` must be a whole number {expected}. Received: {name}={value!r}."
        )
    return int(value)


def check_model(model):
    """Finds what SAM could not train.

    Raises:
        ValueError: `model` is not a built `keras.Model` that trains as Keras does.
    """
    received = f"Received: model={model!r}."
    sharded = any(kind.__name__ == "FSDPModule" for kind in type(model).__mro__)
    if sharded or isinstance(getattr(model, "module", None), keras.Model):
        raise ValueError(
            "`model` must be the keras.Model itself, neither wrapped (take "
            "`model.module`) nor sharded: DistributedDataParallel and FSDP average the "
            "gradients of weights, and see none at the perturbed weights. The trainer "
            "averages over the processes of torchrun by itself. " + received
        )
    check_built(model)
    torch_modules = [
        part.name
        for part in model._flatten_layers()
        if isinstance(part, keras.layers.TorchModuleWrapper)
    ]
    if torch_modules:
        raise ValueError(
            f"`model` wraps torch modules, {torch_modules}, which keep to their own "
            "parameters, so that no second pass can be made elsewhere. Write these "
            "layers in Keras. " + received
        )
    steps = ("train_step", "test_step", "predict_step")
    own = [
        step
        for step in steps
        if getattr(getattr(model, step), "__func__", None)
        is not getattr(keras.Model, step)
    ]
    if own:
        raise ValueError(
            f"`model` has its own {', '.join(own)}, which SAM would replace. Move what "
            "is special into `compute_loss`, or wrap "
            "`keras.Model(model.inputs, model.outputs)` for Keras's own step on the "
            "same variables. " + received
        )
