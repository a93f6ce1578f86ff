"""Plots of the spectra of Hessians and kernels, and of the loss around weights.

They need matplotlib.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasvit.arguments import ArgumentError
from kerasvit.inspection.figures import new_figure

from .batch_spectrum import BatchSpectrum
from .landscape import Landscape
from .ntk import NTK
from .spectrum import SpectralDensity, smoothed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart; and the lines' own
# styles, for print without colours.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")
LEVELS = 20  # of the contour lines
LOWEST = 1e-6  # of the highest density: what is drawn below is the tail of a Gaussian


def plot_spectral_density(
    densities: SpectralDensity | Mapping[str, SpectralDensity],
) -> "Figure":
    """Draws densities of eigenvalues, on a logarithmic axis.

    Read it from the right: where a curve ends there is the sharpest direction; the
    share of directions of negative curvature is left of 0. Most weights are in the
    narrow peak at 0. A density is per unit of eigenvalue, so that its area is 1.

    Args:
        densities: The result of `spectral_density`, or {label: result}.

    Returns:
        `matplotlib.figure.Figure` with one pair of axes.
    """
    figure, (axes,) = _figure(1)
    highest = 0.0
    for i, (label, each) in enumerate(_labelled(densities, SpectralDensity).items()):
        axes.plot(each.grid, each.density, label=label, **_line(i))
        highest = max(highest, each.density.max())
    axes.set(
        yscale="log",
        ylim=(LOWEST * highest, 2 * highest),
        xlabel="Eigenvalue of the Hessian (loss / weight²)",
        ylabel="Density (share of eigenvalues / unit)",
    )
    return _finished(figure, axes, densities)


def plot_landscape(
    landscapes: Landscape | Mapping[str, Landscape], *, log: bool = False
) -> "Figure":
    """Draws the loss around weights: curves, or maps of colours with contour lines.

    Several planes have the same colours and the same contour lines, so that they can be
    compared: a flat minimum has few lines. A point marks the model.

    Args:
        landscapes: The result of `landscape`, or {label: result}. All have the same
            grid.
        log: Whether colours, lines and the axis of curves are logarithmic; the losses
            must then be > 0.

    Returns:
        `matplotlib.figure.Figure` with one pair of axes for all curves, or with one for
        each plane and one for the colours.

    Raises:
        ArgumentError: The grids differ; a loss is ≤ 0 and `log` is True.
    """
    named = _labelled(landscapes, Landscape)
    first, *others = named.values()
    for other in others:
        shapes = [first.loss.shape, other.loss.shape]
        pairs = zip(first.grid, other.grid, strict=False)
        if shapes[0] != shapes[1] or not all(np.array_equal(a, b) for a, b in pairs):
            raise ArgumentError(
                "`landscapes` must have the same grid, to be compared. Received: "
                f"shapes {shapes}. Pass the same `grid` to `landscape`, or draw each "
                "alone.",
                "landscapes",
            )
    lowest = min(each.loss.min() for each in named.values())
    if log and lowest <= 0:
        raise ArgumentError(
            f"`log` must be False for losses ≤ 0. Received: a loss of {lowest:.4g}.",
            "log",
        )
    return _curves(named, log) if first.loss.ndim == 1 else _planes(named, log)


def plot_ntk(kernels: NTK | Mapping[str, NTK]) -> "Figure":
    """Draws the eigenvalues of kernels over their rank, both axes logarithmic.

    The eigenvalues are divided by the largest one, so that a curve ends at 1 / κ. A
    steep curve means that gradient descent fits few directions fast and all others
    slowly. Eigenvalues ≤ 0 are rounding, and are not drawn.

    Args:
        kernels: The result of `ntk` of any form but "logit", or {label: result}.

    Returns:
        `matplotlib.figure.Figure` with one pair of axes.

    Raises:
        ArgumentError: A kernel is of the form "logit".
    """
    figure, (axes,) = _figure(1)
    for i, (label, each) in enumerate(_labelled(kernels, NTK).items()):
        if each.eigenvalues.ndim > 1:
            raise ArgumentError(
                '`kernels` must be of the form "summed", "traced" or "full". Received: '
                f"eigenvalues of shape {each.eigenvalues.shape}, one row for each "
                "logit.",
                "kernels",
            )
        values = each.eigenvalues[::-1] / each.eigenvalues[-1]
        ranks = np.arange(1, len(values) + 1)
        text = f"{label}: κ = {each.condition_number:.4g}".removeprefix(": ")
        axes.plot(
            *(a[values > 0] for a in (ranks, values)),
            label=text,
            marker="o",
            **_line(i),
        )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="Rank of the eigenvalue",
        ylabel="Eigenvalue of the kernel / largest",
    )
    return _finished(figure, axes, True)


def plot_batch_spectrum(
    spectra: BatchSpectrum | Mapping[str, BatchSpectrum],
) -> "Figure":
    """Draws the density of mini-batches' eigenvalues, negative and positive apart.

    The left axes have the negative eigenvalues and the right ones the positive, as in
    figure 4 of arXiv 2202.06709, here over the logarithm of their magnitude. The areas
    of a model, in decades, are the shares of both, and sum to 1. Each value is drawn as
    a Gaussian of Scott's width.

    Args:
        spectra: The result of `batch_spectrum`, or {label: result}.

    Returns:
        `matplotlib.figure.Figure` with two pairs of axes.
    """
    figure, pair = _figure(2)
    highest = 0.0
    for i, (label, each) in enumerate(_labelled(spectra, BatchSpectrum).items()):
        share = f"{label}: {100 * each.negative_share:.1f} % negative"
        for axes, sign in zip(pair, (-1, 1), strict=True):
            values = sign * each.values.ravel()
            grid, density = _density_of_logarithms(values[values > 0], len(values))
            axes.plot(10**grid, density, label=share.removeprefix(": "), **_line(i))
            highest = max(highest, density.max(initial=0))
    for axes, kind in zip(pair, ("negative", "positive"), strict=True):
        axes.set(
            xscale="log",
            xlabel=f"Magnitude of the {kind} eigenvalues\n(loss / weight²)",
            ylim=(0, 1.3 * highest or 1),  # with room for the legend
        )
    pair[0].invert_xaxis()  # larger magnitudes are further from the middle
    pair[0].set_ylabel("Density (share of eigenvalues / decade)")
    return _finished(figure, pair[1], True)


def _density_of_logarithms(
    values: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns decimal logarithms and the density of those of values > 0.

    Its integral is the number of values over `count`.
    """
    if not values.size:
        return np.empty(0), np.empty(0)
    logs = np.log10(values)
    sigma = max(logs.std() * len(logs) ** -0.2, 0.02)  # Scott's rule
    grid = np.linspace(logs.min() - 4 * sigma, logs.max() + 4 * sigma, 512)
    return grid, smoothed(grid, logs, np.full(len(logs), 1 / count), sigma)


def _labelled(results: Any, kind: type) -> dict[str, Any]:
    """Returns {label: result}, the label "" for a single one."""
    named = dict(results) if isinstance(results, Mapping) else {"": results}
    if not named or not all(isinstance(each, kind) for each in named.values()):
        kinds = [type(each).__name__ for each in named.values()]
        raise ArgumentError(
            f"Pass a {kind.__name__}, or a dictionary of labels and {kind.__name__}. "
            f"Received: {kinds}."
        )
    return named


def _figure(columns: int, width: float = 5.0) -> tuple["Figure", Any]:
    figure = new_figure(width * columns, 4.0)
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def _line(i: int) -> dict[str, Any]:
    return {
        "color": COLORS[i % len(COLORS)],
        "linestyle": STYLES[i % len(STYLES)],
        "markersize": 3,
    }


def _finished(figure: "Figure", axes: Any, labelled: Any) -> "Figure":
    if labelled is True or isinstance(labelled, Mapping):
        axes.legend()
    return figure


def _curves(named: dict[str, Landscape], log: bool) -> "Figure":
    figure, (axes,) = _figure(1)
    for i, (label, each) in enumerate(named.items()):
        axes.plot(each.grid[0], each.loss, label=label, **_line(i))
    axes.set(xlabel="Multiple of the direction", ylabel="Loss")
    if log:
        axes.set_yscale("log")
    return _finished(figure, axes, len(named) > 1)


def _planes(named: dict[str, Landscape], log: bool) -> "Figure":
    losses = np.array([each.loss for each in named.values()])
    ends = losses.min(), losses.max()
    figure, row = _figure(len(named))
    scale = {"norm": "log" if log else "linear", "vmin": ends[0], "vmax": ends[1]}
    levels = (np.geomspace if log else np.linspace)(*ends, LEVELS)
    for axes, (label, each) in zip(row, named.items(), strict=True):
        image = axes.pcolormesh(*each.grid, each.loss.T, cmap="cividis", **scale)
        if ends[0] < ends[1] and min(each.loss.shape) > 1:
            axes.contour(
                *each.grid, each.loss.T, levels, colors="white", linewidths=0.6
            )
        axes.plot(0, 0, "o", color="white", markeredgecolor="black")
        axes.set(title=label, xlabel="Multiple of the first direction", aspect="equal")
    row[0].set_ylabel("Multiple of the second direction")
    ticks = levels[::3]
    bar = figure.colorbar(image, ax=row, label="Loss", ticks=ticks, format="%.3g")
    bar.minorticks_off()
    return figure
