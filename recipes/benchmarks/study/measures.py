"""Measures the trainings of a study, and compiles each program once."""

import contextlib
import math
import shutil
from pathlib import Path

import keras
import numpy as np
from devices import devices
from training import training_data

import kerasvit
from kerasvit.inspection import largest_eigenvalue


def measure(config, curved_images: int) -> dict:
    """Returns the loss on the training images and its Hessian's largest eigenvalue.

    The images for the Hessian are drawn at random, the same for all trainings with the
    same training images.

    Args:
        config: `pretrain.Config` of a finished training.
        curved_images: Number of training images for the Hessian.
    """
    model = kerasvit.from_pretrained(Path(config.out) / "model")
    train = training_data.find_data(config, devices.ONE).train
    options = training_data.batch_options(config, model)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    count = min(curved_images, len(train))
    batches = math.ceil(count / config.batch_size)
    options["batch_size"] = count // batches  # may omit a few images
    sample = train.batches(**options).with_epochs_of(batches)
    sample = list(sample.as_numpy_iterator())
    return {
        "loss": float(model.evaluate(train.images.batches(**options), verbose=0)),
        "sharpness": largest_eigenvalue(model, sample, tolerance=0.02),
    }


def mean_and_deviation(values) -> tuple[float, float]:
    """Returns mean and standard deviation of a sample, the latter 0 for one value."""
    return float(np.mean(values)), float(np.std(values, ddof=min(1, len(values) - 1)))


@contextlib.contextmanager
def compilation_cache(folder: Path):
    """On JAX, compiles programs once for all seeds with a cache in a folder."""
    if keras.backend.backend() != "jax":
        yield
        return
    import jax
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    def set_cache(path):
        jax.config.update("jax_compilation_cache_dir", path)
        reset_cache()  # JAX reads the path only once

    before = jax.config.jax_compilation_cache_dir
    set_cache(str(folder.resolve()))
    try:
        yield
    finally:
        set_cache(before)
    shutil.rmtree(folder, ignore_errors=True)
