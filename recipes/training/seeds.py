"""Sets the random seeds of a training, so that it can continue from any step."""

import keras
import numpy as np


def set_seeds(progress) -> None:
    """Sets the seeds of dropout before a step.

    Args:
        progress: `saving.Progress` of the training.
    """
    if progress.step % progress.round_steps == 0:
        # By the round, as in version 0.1. Inside a round the seeds are those of the
        # saved state.
        number = progress.step // progress.round_steps
        random = np.random.default_rng([progress.seed, number])
        for variable in progress.model.non_trainable_variables:
            if variable.path.endswith("seed_generator_state"):
                variable.assign(random.integers(2**31, size=2))
    if keras.backend.backend() == "torch":
        # A Dropout without a seed uses PyTorch's own generator. This is not done
        # earlier, because the data draws from it.
        seeds = [progress.seed, progress.step, progress.devices.process]
        _seed_torch(int(np.random.SeedSequence(seeds).generate_state(1)[0]))


def _seed_torch(seed):
    import torch

    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:  # a hundred times faster: it looks for no accelerator
        torch.default_generator.manual_seed(seed)
