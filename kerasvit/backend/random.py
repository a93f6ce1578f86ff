"""Random numbers that a compiled pass can draw, too; seeds of PyTorch's generators."""

import keras
import numpy as np

from kerasvit.types import Tensor

from .recorded import is_recorded


def uniform(shape: tuple, seed: keras.random.SeedGenerator) -> Tensor:
    """Returns float32 numbers in [0, 1), of PyTorch's own generator if it is compiled.

    PyTorch compiles no generators with a seed. Keras's `Dropout` draws as this does.
    """
    if not is_recorded():
        return keras.random.uniform(shape, dtype="float32", seed=seed)
    import torch

    from .keras_private import get_device

    return torch.rand(shape, dtype=torch.float32, device=get_device())


def seed_torch(*numbers: int) -> None:
    """Seeds PyTorch's own generators, which Keras's `Dropout` without a seed uses.

    Does nothing on the other backends, where the seeds are variables.

    Args:
        numbers: Whole numbers ≥ 0, of which all determine the seed.
    """
    if keras.backend.backend() != "torch":
        return
    import torch

    seed = int(np.random.SeedSequence(numbers).generate_state(1)[0])
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:  # a hundred times faster: it looks for no accelerator
        torch.default_generator.manual_seed(seed)
