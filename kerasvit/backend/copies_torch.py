"""Copies from the memory of the host to a GPU for which nobody waits.

PyTorch waits for all work of the GPU at each copy from ordinary memory, and Keras's
losses and metrics copy numbers: the size of a batch, the weight of its loss. Until the
copy is done, the next operations are not even queued.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .keras_private import get_device
from .recorded import is_recorded

MOST_BYTES = 2**20  # of a copy: it takes memory that the system cannot swap out
_OF_NUMBERS = (torch.as_tensor, torch.tensor)


class QueuedCopies(TorchFunctionMode):
    """Context in which small copies to a GPU are queued behind its other work."""

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _OF_NUMBERS and args and not isinstance(args[0], torch.Tensor):
            if _is_gpu(kwargs.get("device")):
                made = func(*args, **{**kwargs, "device": "cpu"})
                return _queued(made, kwargs["device"])
        elif func is torch.Tensor.to and len(args) == 2 and not kwargs:
            tensor, to = args
            if isinstance(to, str | torch.device) and _is_gpu(to):
                return _queued(tensor, to)
        return func(*args, **kwargs)


class FilledNumbers(TorchFunctionMode):
    """Context in which a single number is recorded as one, and not as a copy of it."""

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _OF_NUMBERS and args:
            value: Any = args[0]
            shape = (1,) if isinstance(value, tuple | list) and len(value) == 1 else ()
            value = value[0] if shape else value
            is_number = type(value) in (bool, int, float)
            if is_number and kwargs.keys() <= {"dtype", "device"}:
                return torch.full(shape, value, **kwargs)
        return func(*args, **kwargs)


def unqueued() -> AbstractContextManager:
    """Returns a context without `queued_copies`, nor any other mode of functions.

    For many operations on given tensors, which copy no numbers.
    """
    return torch._C.DisableTorchFunction()


def queued_copies() -> AbstractContextManager:
    """Returns a context for operations that copy numbers, if Keras computes on a GPU.

    All functions of PyTorch take longer in it: not for a whole step. A compiled pass
    records the numbers, and copies none.
    """
    if is_recorded():
        return FilledNumbers()
    return QueuedCopies() if _is_gpu(get_device()) else nullcontext()


def _is_gpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def _queued(tensor: torch.Tensor, device: Any) -> torch.Tensor:
    small = tensor.numel() * tensor.element_size() <= MOST_BYTES
    if tensor.device.type != "cpu" or tensor.requires_grad or not small:
        return tensor.to(device)
    # The memory is not used again before the copy is done.
    return tensor.pin_memory().to(device, non_blocking=True)
