"""Measures `forward` and `train`: the same step of kerasvit and other libraries.

The others are keras-hub's ViT, for BiT and similar models the ResNet-50 v2 of
keras.applications, with batch normalisation, and timm's model in plain torch, if they
are installed; and of a given checkout KerasFormers' ViT, and on JAX the authors' code.
"""

from collections.abc import Callable

import kerasvit

from . import rivals
from .keras_steps import batch, kerasvit_model, kerasvit_step
from .matrix_product import operations_per_second
from .results import Result
from .settings import Config
from .timing import SPREAD, in_turns, kerasvit_ratio, spread

COLUMNS = (*SPREAD, "images/s", "of products", "kerasvit / it", "95 %")
PASSES = {"forward": 1, "train": 3}  # the gradients take two products for each


def measure(config: Config, backend: str) -> Result:
    """Times kerasvit and other libraries, and computes the ratios.

    `of products` is the share of the rate of multiply-adds of a large product of two
    matrices, in the same precision.
    """
    times = in_turns(steps(config), config)
    most = operations_per_second(config.dtype)
    variant = getattr(kerasvit, config.name)
    rows = []
    for name, seconds in times.items():
        row = [name, *spread(seconds)]
        speed = config.batch_size / float(row[1])
        needed = 2e9 * (variant.multiply_adds or 0) * PASSES[config.what] * speed
        stated = name != "ResNet50V2" and needed
        stated = stated and config.image_size == variant.defaults["image_size"]
        row += [f"{speed:.1f}", f"{needed / most:.0%}" if stated else ""]
        rows.append(row + kerasvit_ratio(times, name))
    result = Result.of(config, backend, COLUMNS, rows, times)
    result.about["products"] = f"{most / 1e9:.0f} GFLOP/s"
    return result


def steps(config: Config) -> dict[str, Callable]:
    """Returns {name: step} of kerasvit and the rivals that can run."""
    images, labels = batch(config)
    found = {"kerasvit": kerasvit_step(config, kerasvit_model(config), images, labels)}
    for name, build in rivals.found(config).items():
        found[name] = build(config, images, labels)
    return found
