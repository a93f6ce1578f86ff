"""Finds models that SAM cannot train."""

import keras

from kerasvit.arguments import check_built
from kerasvit.backend.keras_internals import layers_in


def check_model(model):
    """Raises for a model that SAM cannot train.

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
        for part in layers_in(model)
        if isinstance(part, keras.layers.TorchModuleWrapper)
    ]
    if torch_modules:
        raise ValueError(
            f"`model` wraps torch modules, {torch_modules}, which keep to their own "
            "parameters, so that no second pass can be made elsewhere. Write these "
            "layers in Keras. " + received
        )
    steps = ("train_step", "test_step", "predict_step")
    overridden = [
        step
        for step in steps
        if getattr(getattr(model, step), "__func__", None)
        is not getattr(keras.Model, step)
    ]
    if overridden:
        raise ValueError(
            f"`model` has its own {', '.join(overridden)}, which SAM would replace. "
            "Move what is special into `compute_loss`, or wrap "
            "`keras.Model(model.inputs, model.outputs)` for Keras's own step on the "
            "same variables. " + received
        )
