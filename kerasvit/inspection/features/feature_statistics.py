"""Variance of feature maps and share of active neurons, by depth."""

from typing import Any

import keras
import numpy as np

from .activations import Activations, activations_of

#: Regular expression of the last layers of the blocks' MLPs, whose inputs are the
#: hidden neurons.
HIDDEN = r"(mlp|_mixing)/dense_1$"


def feature_variance(
    model: keras.Model | Activations, x: Any, *, batch_size: int = 32
) -> dict[str, float]:
    """Returns the spatial variance of feature maps by depth.

    The unbiased variance over the h·w cells of a map, then its mean over images and
    channels. Prefix tokens are dropped. Attention lowers it, convolutions and MLPs
    raise it. The paper shows the values after each residual branch: for pre-norm
    Transformers `Activations(model, "_norm$", at="inputs")`.

    Args:
        model: Built functional `keras.Model`, or `Activations` of chosen layers.
        x: Images (N, H, W, C) as the model takes them, or an iterable of batches.
        batch_size: Number of images per batch; it does not change the result.

    Returns:
        Variances by layer, in the order of depth.

    Raises:
        ValueError: As for `Activations`; a map has one cell.

    Reference: Park and Kim 2022, arXiv 2202.06709, figure 9; xxxnell/how-do-vits-work
    featuremap_variance.ipynb.
    """
    activations = activations_of(model)
    count, total = 0, np.zeros(len(activations.names))
    for maps in activations.maps(x, batch_size):
        _check_cells(activations.names, maps)
        total += [
            each.astype("float64").var((1, 2), ddof=1).mean(-1).sum() for each in maps
        ]
        count += len(maps[0])
    return dict(zip(activations.names, (total / count).tolist(), strict=True))


def active_share(
    model: keras.Model | Activations, x: Any, *, batch_size: int = 32
) -> dict[str, float]:
    """Returns the share of active neurons by depth.

    A neuron is active for a token if its value after the activation is above 0; in a
    gated MLP, the product with the gate. The share is over all images, tokens and
    neurons.

    Args:
        model: Built functional `keras.Model`, of which the hidden neurons of all MLPs
            are taken, as the inputs of their last layers; or `Activations` of chosen
            layers, such as `Activations(model, "norm_1$")` for what follows these
            normalisations in a ResNet with ReLU.
        x: Images (N, H, W, C) as the model takes them, or an iterable of batches.
        batch_size: Number of images per batch; it does not change the result.

    Returns:
        Shares in [0, 1] by layer, in the order of depth.

    Raises:
        ValueError: As for `Activations`.
    """
    if not isinstance(model, Activations):
        model = Activations(model, HIDDEN, at="inputs")
    active, count = np.zeros(len(model.names)), np.zeros(len(model.names))
    for features in model.batches(x, batch_size):
        active += [np.count_nonzero(each > 0) for each in features]
        count += [each.size for each in features]
    return dict(zip(model.names, (active / count).tolist(), strict=True))


def _check_cells(names: list[str], maps: list[np.ndarray]) -> None:
    for name, each in zip(names, maps, strict=True):
        if each.shape[1] * each.shape[2] < 2:
            raise ValueError(
                f"A map must have at least 2 cells, for a variance. Received: 1 × 1 of "
                f"{name!r}. Choose other layers, or larger images."
            )
