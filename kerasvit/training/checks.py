"""Checks whether SAM can train a model."""

from typing import Any

import keras
import numpy as np

from kerasvit.arguments import check_built
from kerasvit.backend.keras_private import layers_in


def check_model(model: Any) -> None:
    """Checks that SAM can train a model.

    Raises:
        ValueError: `model` is not a built `keras.Model` with Keras's own train, test
            and predict steps, or wraps torch modules, or is wrapped itself.
    """
    received = f"Received: model={model!r}."
    sharded = any(base.__name__ == "FSDPModule" for base in type(model).__mro__)
    if sharded or isinstance(getattr(model, "module", None), keras.Model):
        raise ValueError(
            "`model` must be the keras.Model itself, neither wrapped (take "
            "`model.module`) nor sharded: DistributedDataParallel and FSDP average the "
            "gradients of parameters, and SAM takes gradients at perturbed copies. The "
            "trainer itself averages over the processes of torchrun. " + received
        )
    check_built(model)
    torch_modules = [
        layer.name
        for layer in layers_in(model)
        if isinstance(layer, keras.layers.TorchModuleWrapper)
    ]
    if torch_modules:
        raise ValueError(
            f"`model` wraps torch modules, {torch_modules}, which always compute with "
            "their own parameters, so that SAM cannot run them at perturbed weights. "
            "Write these layers in Keras. " + received
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
            "Move the custom code into `compute_loss`, or pass "
            "`keras.Model(model.inputs, model.outputs)`, which has Keras's own step "
            "and the same variables. " + received
        )


def head_of_zeros(model: keras.Model) -> str | None:
    """Returns a warning if loaded weights have a new head, which is zeros, else None.

    The first gradient is then 0 in all weights but the head, and SAM's whole step goes
    into it: the gradients at w' change pretrained weights to suit a wrong head. For
    fresh weights a head of zeros is the papers' start.

    Args:
        model: Built `keras.Model`. One of kerasvit knows whether its weights were
            loaded.
    """
    record = getattr(model, "record", None)
    kernels = [v for v in model.weights if len(v.shape) > 1]
    if not isinstance(record, dict) or not record.get("origin") or not kernels:
        return None
    head, trained = kernels[-1], [v for v in kernels if v.trainable]
    alone = trained == [] or trained[0] is head
    if alone or not head.trainable or np.any(keras.ops.convert_to_numpy(head)):
        return None
    return (
        "The head of the model is zeros, beside weights that were loaded, and SAM "
        "would train these to suit a random head. Fit the head first, by "
        "`kerasvit.fit_head(model, data)`, or begin with epochs of `rho=0`."
    )
