"""Seeds of PyTorch's own generators."""

import keras
import numpy as np


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
