"""Frequencies in feature maps, and accuracy under noise of one frequency band."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import ArgumentError, integer, number
from kerasvit.backend.forward import outputs_of

from .accuracy import accuracy, check_labels
from .activations import (
    Activations,
    activations_of,
    check_functional,
)
from .images import check_images

BANDS = tuple((i / 10, (i + 1) / 10) for i in range(10))


@dataclass(frozen=True)
class LogAmplitudes:
    """Amplitudes of feature maps by frequency, relative to those of frequency 0.

    Args:
        names: Paths of the layers, in the order of depth.
        frequencies: For each layer an array (K,), frequencies on the diagonal in units
            of π per cell, from 0 on, below 1 for even maps.
        amplitudes: For each layer an array (K,), natural logarithms; the first is 0.
    """

    names: list[str]
    frequencies: list[np.ndarray]
    amplitudes: list[np.ndarray]

    @property
    def high(self) -> np.ndarray:
        """The amplitude of the highest frequency of each layer, array (layers,)."""
        return np.array([values[-1] for values in self.amplitudes])


def relative_log_amplitudes(
    model: keras.Model | Activations, x: Any, *, batch_size: int = 32
) -> LogAmplitudes:
    """Returns the amplitudes of feature maps by frequency and depth.

    For each channel of each map F = log(|fft2| + 1e-6), and its mean over images and
    channels, after the logarithm. The values on the diagonal, F[k, k] for frequencies
    2 k / h from 0 to the highest below 1 (for an odd h, up to (h - 1) / h), minus the
    first of them. Prefix tokens are dropped. Attention lowers high frequencies,
    convolutions and MLPs raise them.

    The paper plots the values after each residual branch. For pre-norm Transformers
    these are `Activations(model, "_norm$", at="inputs")`. It draws the highest
    frequency at π, where here it is 2 k / h. For a map that is not square, h is the
    shorter side, and the longer one has the nearest frequencies to the same fractions
    of π.

    Args:
        model: Built functional `keras.Model`, or `Activations` of chosen layers.
        x: Images (N, H, W, C) as the model takes them, or an iterable of batches.
        batch_size: Number of images per batch; it does not change the result.

    Raises:
        ValueError: As for `Activations`; a map has fewer than 3 cells along a side.

    Reference: Park and Kim 2022, arXiv 2202.06709, figures 2a and 8;
    xxxnell/how-do-vits-work fourier_analysis.ipynb.
    """
    activations = activations_of(model)
    for name, (cells, _) in zip(activations.names, activations.layouts(), strict=True):
        if min(side or 3 for side in cells) < 3:
            raise ValueError(
                f"A map must have at least 3 cells along each side, for a frequency "
                f"above 0. Received: {cells[0]} × {cells[1]} of {name!r}. Choose other "
                "layers, or larger images."
            )
    count, total = 0, list[np.ndarray]()
    for maps in activations.maps(x, batch_size):
        terms = [_diagonal(each).mean(-1).sum(0) for each in maps]
        total = [*map(np.add, total, terms)] if total else terms
        count += len(maps[0])
        sides = [min(each.shape[1:3]) for each in maps]
    return LogAmplitudes(
        activations.names,
        [2 * np.arange(len(t)) / side for t, side in zip(total, sides, strict=True)],
        [(values - values[0]) / count for values in total],
    )


def _diagonal(maps: np.ndarray) -> np.ndarray:
    """Returns log amplitudes on the diagonal: (B, h, w, C) → (B, K, C)."""
    sides = np.array(maps.shape[1:3])
    steps = np.arange((sides.min() + 1) // 2)
    rows, columns = (np.rint(steps * s / sides.min()).astype(int) for s in sides)
    transformed = np.fft.fft2(maps.astype("float64"), axes=(1, 2))
    return np.log(np.abs(transformed[:, rows, columns]) + 1e-6)


@dataclass(frozen=True)
class NoiseAccuracy:
    """Accuracy under noise of several frequency bands.

    Args:
        bands: Lower and upper end of each band, in units of π per pixel.
        accuracies: Array (bands,), in [0, 1].
        clean: Accuracy without noise, in [0, 1].
    """

    bands: tuple[tuple[float, float], ...]
    accuracies: np.ndarray
    clean: float


def frequency_noise_accuracy(
    model: keras.Model,
    x: np.ndarray,
    y: np.ndarray,
    rms: float,
    *,
    bands: Sequence[tuple[float, float]] = BANDS,
    seed: int = 0,
    batch_size: int = 32,
) -> NoiseAccuracy:
    """Returns the accuracy on images with noise of one frequency band, by band.

    x + s F⁻¹(F(δ) ⊙ M): δ is Gaussian noise, M a mask of the band, which is 1 for
    radial frequencies √(f_y² + f_x²) in [low, high). The scale s gives the noise of
    each image the root mean square `rms` over pixels and channels, the same in all
    bands, so that bands differ in frequency alone. δ depends on `seed` and the number
    of the image and is the same in all bands. Sums are not clipped.

    The paper shows the decrease of the accuracy by the frequency of such noise. Its
    repository has no code for it: the default bands and the norm are defined here.

    Args:
        model: Built functional `keras.Model` from images to (batch, classes).
        x: Images (N, H, W, C) as the model takes them.
        y: Class indices (N,).
        rms: Root mean square of the noise, > 0, in the units of `x`: for images that
            are normalised to deviation 1, 0.1 to 1.
        bands: Lower and upper frequency of each band, in units of π per pixel, in
            [0, √2]; 1 is the highest along rows and columns.
        seed: Seed of the noise.
        batch_size: Number of images per batch; it does not change the result.

    Raises:
        ValueError: Images or labels do not fit to the model or to each other, or a band
            has no frequency of the discrete transform.

    Reference: Park and Kim 2022, arXiv 2202.06709, figure 2b.
    """
    check_functional(model)
    number("rms", rms, positive=True)
    integer("batch_size", batch_size, 1)
    check_images(model, x)
    x = ops.convert_to_numpy(x)
    y = check_labels(model, y, len(x))
    _check_bands(bands)
    masks = [_mask(x.shape[1:3], *band) for band in bands]

    def share(mask: np.ndarray | None) -> float:
        def noisy(start: int, images: np.ndarray) -> np.ndarray:
            if mask is None:
                return images
            noise = [
                band_noise(images.shape[1:], mask, (seed, start + i))
                for i in range(len(images))
            ]
            return (images + rms * np.stack(noise)).astype("float32")

        return accuracy(functools.partial(outputs_of, model), x, y, batch_size, noisy)

    return NoiseAccuracy(
        tuple((float(low), float(high)) for low, high in bands),
        np.array([share(mask) for mask in masks]),
        share(None),
    )


def band_noise(shape: tuple[int, ...], mask: np.ndarray, seed: Any) -> np.ndarray:
    """Returns Gaussian noise (H, W, C) of the frequencies of a mask (H, W).

    Its root mean square is 1.
    """
    noise = np.random.default_rng(seed).standard_normal(shape)
    spectrum = np.fft.fft2(noise, axes=(0, 1)) * mask[..., None]
    noise = np.fft.ifft2(spectrum, axes=(0, 1)).real  # the mask is symmetric
    return noise / np.sqrt(np.mean(noise**2))


def _check_bands(bands: Any) -> None:
    if not len(bands) or not all(np.shape(band) == (2,) for band in bands):
        raise ArgumentError(
            f"`bands` must be pairs (low, high), at least one. Received: {bands}.",
            "bands",
        )


def _mask(sides: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """Returns the mask of a band, (H, W) booleans in the order of `fft2`."""
    down, across = (2 * np.fft.fftfreq(side) for side in sides)
    radius = np.hypot(down[:, None], across[None])  # in units of π per pixel
    mask = (radius >= low) & (radius < high)
    if not mask.any():
        raise ArgumentError(
            f"A band must contain a frequency of the images; those of {sides[0]} × "
            f"{sides[1]} pixels are multiples of 2 / side, up to √2. Received: "
            f"{(low, high)}. Choose wider bands.",
            "bands",
        )
    return mask
