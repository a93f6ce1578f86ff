"""Freezes layers of a model by a regular expression of their paths."""

import math
import re

import keras

from kerasvit.inspection import layers_in


def freeze(model: keras.Model, pattern: str | None) -> str | None:
    """Freezes layers, also the statistics of their normalisation.

    A copy of a model on its devices must be frozen again.

    Args:
        model: Built model.
        pattern: Regular expression, searched in the layers' paths, such as
            "encoder_block_0" and "encoder_block_0/attention"; None freezes nothing.

    Returns:
        A sentence with the layers and the number of trained weights.

    Raises:
        ValueError: No layer matches, or no weight would be trained.
    """
    if pattern is None:
        return None
    layers = [each for each in layers_in(model, include_self=False) if each.weights]
    chosen = [each for each in layers if re.search(pattern, each.path)]
    if not chosen:
        names = ", ".join(dict.fromkeys(each.path.split("/")[0] for each in layers))
        raise ValueError(
            f"`freeze` matches no layer. Received: {pattern!r}, for the layers {names}."
        )
    for layer in chosen:
        layer.trainable = False
    if not model.trainable_variables:
        raise ValueError(
            f"`freeze`: {pattern!r} freezes all layers. Leave one, such as the head."
        )
    # A layer in a frozen one is not named.
    paths = {each.path for each in chosen}
    shown = [p for p in paths if not any(p.startswith(f"{other}/") for other in paths)]
    order = [each.path for each in chosen if each.path in shown]
    return f"Frozen: {', '.join(order)}. {trained_weights(model)}"


def trained_weights(model: keras.Model) -> str:
    """Returns a sentence with the number of weights that are trained."""
    trained = sum(math.prod(weight.shape) for weight in model.trainable_variables)
    return f"{trained:,} of {model.count_params():,} weights are trained."
