"""Calls of layers inside a model without Keras's bookkeeping, on PyTorch.

`keras.Layer.__call__` converts inputs, opens name scopes, binds arguments and looks for
masks, in 0.13 ms each time. Other backends trace a call once.

Without these steps `predict` of ViT-S/16 takes 0.89 of the CPU time for batches of one
image and 0.95 for batches of 8, and `fit` 0.98 and 0.99 (2 busy cores of an EPYC, not
compiled, 15 and 9 rounds in turns, 2026-11-28). They are 25 ms of a forward pass of
ViT-B/16, in which an NVIDIA H200 computes on 300 images.
"""

import contextlib
from typing import Any

import keras
import torch

from kerasvit.backend.keras_private import (
    AutocastScope,
    current_autocast,
    current_call,
    layers_in,
)
from kerasvit.types import Tensor

KERAS_CALL = keras.layers.Layer.__call__


class DirectCalls(keras.layers.Layer):
    """Base of layers whose `__call__` skips steps of Keras on PyTorch.

    A call is direct if another layer calls this one with one tensor, without a mask, in
    the dtype in which it computes, and with the `training` of the outer call or none.
    The layer and all layers inside must be built, and its outputs have neither a
    regulariser nor a layout. These steps of Keras would then change nothing.

    What follows them remains: PyTorch's hooks, rematerialisation, quantisation, and the
    arguments in the message of an exception.
    """

    _is_plain = False  # whether `_has_no_special_steps` found so

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outer = current_call()
        if outer is None or len(args) != 1 or set(kwargs) - {"training"}:
            return super().__call__(*args, **kwargs)
        training = outer.get_value("training")
        same = kwargs.get("training", training) is training
        if not same or not self._takes_as_it_is(args[0]):
            return super().__call__(*args, **kwargs)
        takes = self._call_has_training_arg and training is not None
        kwargs = {"training": training} if takes else {}
        with self._scope():
            return torch.nn.Module.__call__(self, *args, **kwargs)

    def _takes_as_it_is(self, x: Any) -> bool:
        """Returns whether Keras would pass `x` on as it is, and the result."""
        return (
            type(x) is torch.Tensor
            and getattr(x, "_keras_mask", None) is None
            and (
                not self.autocast
                or keras.backend.standardize_dtype(x.dtype) == self.input_dtype
            )
            and self.activity_regularizer is None
            and keras.distribution.distribution() is None
            and _fits(self.input_spec, x)
            # A class after this one, or a tool, may have another `__call__`.
            and super().__call__.__func__ is KERAS_CALL
            and (self._is_plain or self._has_no_special_steps())
        )

    def _has_no_special_steps(self) -> bool:
        """Returns whether no call creates variables, masks or values of arguments."""
        if not all(layer.built for layer in layers_in(self)):
            return False  # Keras's scopes name the variables of their parts
        training = self._call_signature.parameters.get("training")
        self._is_plain = (
            set(self._call_context_args) == {"training"}
            and (training is None or not training.default)
            and type(self).compute_mask is keras.layers.Layer.compute_mask
        )
        return self._is_plain

    def _scope(self) -> contextlib.AbstractContextManager:
        """Returns the context that casts variables, as Keras chooses it."""
        scope = current_autocast()
        casts = self.autocast and "float" in self.compute_dtype
        dtype = self.compute_dtype if casts else None
        current = self.variable_dtype if scope is None else scope.dtype
        if dtype == current or (dtype is None and scope is None):
            return contextlib.nullcontext()
        return AutocastScope(dtype)


def _fits(spec: Any, x: Tensor) -> bool:
    """Returns whether a tensor has the rank and sizes of a layer's `input_spec`."""
    if spec is None:
        return True
    if not isinstance(spec, keras.layers.InputSpec) or spec.shape or spec.dtype:
        return False  # Keras compares these
    axes = spec.axes or {}
    return (
        spec.ndim in (None, x.ndim)
        and (spec.min_ndim or 0) <= x.ndim <= (spec.max_ndim or x.ndim)
        and all(size in (None, x.shape[axis]) for axis, size in axes.items())
    )
