"""Random numbers that a compiled pass can draw, too."""

import keras

from kerasvit.typing import Tensor

from .recorded import is_recorded


class DrawsInGraphs:
    """Base of layers that draw by `uniform`, and so can be compiled."""

    seed: int | None
    name: str


def uniform(shape: tuple, seed: keras.random.SeedGenerator) -> Tensor:
    """Returns float32 numbers in [0, 1), of PyTorch's own generator if it is compiled.

    PyTorch compiles no generators with a seed. Keras's `Dropout` draws as this does.
    """
    if not is_recorded():
        return keras.random.uniform(shape, dtype="float32", seed=seed)
    import torch

    from .keras_private import get_device

    return torch.rand(shape, dtype=torch.float32, device=get_device())
