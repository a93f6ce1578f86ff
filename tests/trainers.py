"""Every trainer of the SAM family by name, and small models that all of them train."""

import keras
import numpy as np
from keras import layers, ops

from kerasvit.training import ASAM, GSAM, MSAM, SAM, SAMON, FriendlySAM, LookSAM

RATE = 0.1

backend = keras.backend.backend()

# Functions of a model and of the options that all trainers have.
TRAINERS = {
    "sam": lambda model, **options: SAM(model, 0.3, **options),
    "asam": lambda model, **options: ASAM(model, 0.3, **options),
    "gsam": lambda model, **options: GSAM(
        model, 0.3, 0.1, 0.5, lr_max=0.2, lr_min=0.0, **options
    ),
    "sam_on": lambda model, **options: SAMON(model, 0.3, **options),
    "looksam": lambda model, **options: LookSAM(model, 0.3, 2, **options),
    "msam": lambda model, **options: MSAM(model, 0.3, **options),
    "friendly": lambda model, **options: FriendlySAM(model, 0.3, 0.5, **options),
    "every": lambda model, **options: SAM(model, 0.3, every=2, **options),
    "parts": lambda model, **options: SAM(
        model, 0.3, **{"micro_batches": 2, **options}
    ),
}

# The trainers of the tests of conditions: all on PyTorch, which compiles nothing;
# elsewhere two that use all features of a train step: two passes, memory, a period,
# parts. SAM has other tests, and the others differ in formulas, which
# test_successors.py tests on all backends.
NAMES = list(TRAINERS) if backend == "torch" else ["looksam", "parts"]


def small(*last, seed=1, **dense):
    """Two dense layers around a normalisation, 5 numbers in and 3 out."""
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(4, activation="tanh", name="hidden", **dense),
            layers.BatchNormalization(momentum=0.7, name="norm"),
            *last,
            layers.Dense(3, name="head"),
        ]
    )


def batch(n=6, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5)).astype("float32")
    return x, rng.normal(size=(n, 3)).astype("float32")


EAGER = {"run_eagerly": True, "jit_compile": False}  # faster where steps are few
COMPILED = {"run_eagerly": False, "jit_compile": backend == "jax"}
# {name: options of `compiled`}. PyTorch compiles nothing.
MODES = {"eager": {}} if backend == "torch" else {"eager": {}, "compiled": COMPILED}


def compiled(trainer, optimizer=None, loss="mse", **options):
    """Compiles a trainer, with plain SGD and eagerly by default; returns it."""
    options = {**EAGER, **options}
    trainer.compile(optimizer or keras.optimizers.SGD(RATE), loss, **options)
    return trainer


def values(model):
    """All variables, as arrays."""
    return [ops.convert_to_numpy(v) for v in model.variables]


def assert_same(actual, expected, tolerance=2e-6):
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=0, atol=tolerance)
