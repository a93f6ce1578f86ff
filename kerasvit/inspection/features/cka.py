"""Centred kernel alignment of the features of layers."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from kerasvit.arguments import number, one_of

from .activations import Activations, activations_of
from .images import image_batches

SMALLEST = 4  # images in a batch, for an unbiased estimate


@dataclass(frozen=True)
class Alignment:
    """Similarity of the features of two models' layers.

    Args:
        names: Paths of the layers of the first model, in the order of depth.
        other_names: Those of the second model.
        values: Array (names, other_names), CKA: 1 for the same features up to rotation
            and scale, about 0 for independent ones; an estimate may be below 0.
    """

    names: list[str]
    other_names: list[str]
    values: np.ndarray


def cka(
    model: keras.Model | Activations,
    x: Any,
    other: keras.Model | Activations | None = None,
    *,
    kernel: str = "linear",
    bandwidth: float = 1.0,
    batch_size: int = 64,
) -> Alignment:
    """Returns the centred kernel alignment between layers.

    CKA = HSIC(K, L) / √(HSIC(K, K) HSIC(L, L)), K and L the kernel matrices of the
    images' features in both layers. Each HSIC is the mean over batches of the unbiased
    estimator HSIC₁, weighted by the number of images, so that its expectation does not
    depend on the size of the batches. The features of an image are all values of the
    layer, prefix tokens included, as one vector.

    Args:
        model: Built functional `keras.Model`, or `Activations` of chosen layers.
        x: Images (N, H, W, C) as both models take them, or an iterable of batches. At
            least 4 images per batch, of the last one too.
        other: Second model. None: the layers of `model` with each other.
        kernel: "linear": a·b. "rbf": exp(−‖a − b‖² / (2 s² m)), m the median of all
            squared distances in the batch, those of an image to itself included, as in
            google-research/google-research representation_similarity.
        bandwidth: s, for "rbf"; > 0.
        batch_size: Number of images per batch.

    Raises:
        ValueError: As for `Activations`; a batch has fewer than 4 images, or a layer
            has the same features for most pairs of them; the message names it.

    Reference: Kornblith et al. 2019, arXiv 1905.00414; Nguyen et al. 2021,
    arXiv 2010.15327, equations 2 and 3.
    """
    one_of("kernel", kernel, ("linear", "rbf"))
    scale = number("bandwidth", bandwidth, positive=True) if kernel == "rbf" else None
    chosen = [activations_of(each) for each in (model, other) if each is not None]
    names = [name for each in chosen for name in each.names]
    total = np.zeros((len(names), len(names)))
    for images in _batches(x, batch_size):
        features = [array for each in chosen for array in each(images)]
        _check_distinct(names, features)
        total += len(images) * hsic(np.stack([_gram(each, scale) for each in features]))
    own = np.diag(total)
    if not (own > 0).all():
        raise ValueError(
            "The estimate of HSIC of a layer with itself must be above 0. Received: "
            f"{own.min():.2g} for {names[own.argmin()]!r}. Take more images."
        )
    values = total / np.sqrt(np.outer(own, own))
    rows, columns = len(chosen[0].names), len(chosen[-1].names)
    return Alignment(
        chosen[0].names, chosen[-1].names, values[:rows, len(names) - columns :]
    )


def hsic(grams: np.ndarray) -> np.ndarray:
    """Returns the unbiased estimates HSIC₁ between all pairs of kernel matrices.

    Args:
        grams: (layers, n, n), symmetric, n ≥ 4.

    Returns:
        Array (layers, layers).

    Reference: Song et al. 2012, JMLR 13, p. 1393; arXiv 2010.15327, equation 3.
    """
    n = grams.shape[-1]
    grams = grams * (1 - np.eye(n))
    flat = grams.reshape(len(grams), -1)
    rows = grams.sum(-1)
    sums = rows.sum(-1)
    means = np.outer(sums, sums) / ((n - 1) * (n - 2))
    return (flat @ flat.T + means - 2 / (n - 2) * rows @ rows.T) / (n * (n - 3))


def _gram(features: np.ndarray, bandwidth: float | None) -> np.ndarray:
    """Returns the kernel matrix (n, n); a bandwidth of None is the linear kernel."""
    rows = features.reshape(len(features), -1).astype("float64")
    rows -= rows.mean(0)  # changes neither estimate; smaller numbers round less
    linear = rows @ rows.T
    if bandwidth is None:
        return linear
    squares = np.diag(linear)
    distances = np.maximum(squares[:, None] + squares - 2 * linear, 0)
    return np.exp(-distances / (2 * bandwidth**2 * np.median(distances)))


def _batches(x: Any, batch_size: int) -> Iterator[np.ndarray]:
    for images in image_batches(x, batch_size):
        if len(images) < SMALLEST:
            raise ValueError(
                f"Each batch must have at least {SMALLEST} images, the last one too. "
                f"Received: {len(images)}. Choose another `batch_size`."
            )
        yield images


def _check_distinct(names: list[str], features: list[np.ndarray]) -> None:
    for name, each in zip(names, features, strict=True):
        same = Counter(row.tobytes() for row in each).values()
        if 2 * sum(count**2 for count in same) > len(each) ** 2:
            raise ValueError(
                f"The features of {name!r} must differ between images. Received: the "
                f"same for most pairs of {len(each)} images. Choose other layers or "
                "images."
            )
