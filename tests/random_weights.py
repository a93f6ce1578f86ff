"""Sets random weights, because some fresh weights are zeros."""

import numpy as np


def randomised(model, seed=0, scale=0.3):
    """Replaces the weights of a model by normally distributed ones; returns it.

    The variances of batch normalisations are positive.
    """
    rng = np.random.default_rng(seed)
    values = [rng.normal(size=w.shape, scale=scale) for w in model.weights]
    for i, weight in enumerate(model.weights):
        if weight.path.endswith("moving_variance"):
            values[i] = abs(values[i])
    model.set_weights(values)
    return model
