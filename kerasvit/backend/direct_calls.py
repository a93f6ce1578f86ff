"""Calls of layers inside a model without Keras's bookkeeping, on PyTorch.

`keras.Layer.__call__` converts inputs, opens name scopes, binds arguments and looks for
masks. That takes 0.13 ms each time, for a ViT with 12 blocks longer than a GPU computes
on 100 images. Other backends trace a call once.
"""

import contextlib
import inspect
from typing import Any

import keras

from kerasvit.typing import Tensor

if keras.backend.backend() == "torch":
    import torch
    from keras.src.backend import AutocastScope
    from keras.src.backend.common import global_state


class DirectCalls(keras.layers.Layer):
    """Base of layers whose `__call__` skips what has no effect, on PyTorch.

    A call is direct if the layer is built, another layer calls it with one tensor in
    its compute dtype, without a mask and with the same `training`, and its outputs have
    neither a regulariser nor a layout. What follows the bookkeeping remains: PyTorch's
    hooks, rematerialisation, quantisation, and the arguments in the message of an
    exception.
    """

    _takes_training: bool

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._takes_training = "training" in inspect.signature(cls.call).parameters

    if keras.backend.backend() == "torch":

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            outer = global_state.get_global_attribute("current_call_ctx")
            if outer is None or len(args) != 1 or kwargs.keys() - {"training"}:
                return super().__call__(*args, **kwargs)
            inherited = outer.get_value("training")
            given = kwargs.get("training")
            same = given is None or given is inherited
            if not same or not self._takes_as_it_is(args[0]):
                return super().__call__(*args, **kwargs)
            passes = self._takes_training and inherited is not None
            kwargs = {"training": inherited} if passes else {}
            with self._scope():
                return torch.nn.Module.__call__(self, *args, **kwargs)

    def _takes_as_it_is(self, x: Any) -> bool:
        """Returns whether Keras would pass `x` on as it is, and the result."""
        return (
            type(x) is torch.Tensor
            and self.built
            and getattr(x, "_keras_mask", None) is None
            and (
                not self.autocast
                or keras.backend.standardize_dtype(x.dtype) == self.compute_dtype
            )
            and self.activity_regularizer is None
            and keras.distribution.distribution() is None
            and _fits(self.input_spec, x)
        )

    def _scope(self) -> contextlib.AbstractContextManager:
        """Returns the context that casts variables, as Keras chooses it."""
        scope = global_state.get_global_attribute("autocast_scope")
        dtype = self.compute_dtype if self.autocast else None
        current = self.variable_dtype if scope is None else scope.dtype
        if dtype == current or dtype is scope is None:
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
