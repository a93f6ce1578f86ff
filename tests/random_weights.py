"""Random weights for models whose fresh ones are zeros in part."""

import numpy as np


def randomised(model, seed=0, scale=0.3):
    """The model, with normally distributed weights in place of its own."""
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=w.shape, scale=scale) for w in model.weights])
    return model
