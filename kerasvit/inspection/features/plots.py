"""Figures of measurements of features, with matplotlib.

Each function returns a `matplotlib.figure.Figure`: `figure.savefig("depth.png")`. The
colours can be told apart with any colour vision.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kerasvit.arguments import ArgumentError
from kerasvit.inspection.figures import new_figure

from .cka import Alignment
from .fourier import LogAmplitudes, NoiseAccuracy
from .lesion import Lesions
from .receptive_field import ReceptiveFields

# Okabe and Ito 2008, "Color Universal Design", without black and yellow.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = "osD^vP"
MAP = "cividis"
NAMES = 40  # at most so many names of layers along an axis


def plot_log_amplitudes(result: LogAmplitudes) -> Any:
    """Draws amplitudes by frequency for each layer, and the highest by depth.

    A line that falls steeply is that of a layer which has lost its fine detail.
    """
    figure, (left, right) = _figure(1, 2, (10.0, 4.2))
    colors = _shades(len(result.names))
    for color, *line in zip(colors, result.frequencies, result.amplitudes, strict=True):
        left.plot(*line, color=color)
    left.set(
        xlabel="frequency along the diagonal (π per cell)",
        ylabel="Δ log amplitude to frequency 0",
        title="by frequency, a line per layer as on the right",
    )
    depths = np.arange(len(result.names))
    right.plot(depths, result.high, color="0.6", zorder=1)
    right.scatter(depths, result.high, color=colors)
    right.set(ylabel="Δ log amplitude", title="highest frequency, by depth")
    _name(right.xaxis, result.names)
    return figure


def plot_noise_accuracy(results: Mapping[str, NoiseAccuracy]) -> Any:
    """Draws the accuracy under noise by frequency band, one line per model.

    Args:
        results: Measurements by name of the model. A dotted line is the accuracy
            without noise.

    Raises:
        ValueError: There are none, or more than the 6 colours.
    """
    figure, axis = _figure(1, 1, (6.5, 4.2))
    for style, (name, result) in _styled(results):
        middles = [(low + high) / 2 for low, high in result.bands]
        axis.plot(middles, 100 * result.accuracies, label=name, **style)
        axis.axhline(100 * result.clean, color=style["color"], linestyle=":")
    axis.set(xlabel="frequency of the noise (π per pixel)", ylabel="accuracy (%)")
    axis.legend(frameon=False)
    return figure


def plot_by_depth(
    results: Mapping[str, Mapping[str, float]], ylabel: str, *, log: bool = False
) -> Any:
    """Draws numbers by depth, one line per model.

    Args:
        results: Numbers by layer, as `feature_variance`, `active_share` and
            `gradient_norms` return them, by name of the model. Models with the same
            layers have the layers along the axis, others the depth from 0 to 1.
        ylabel: The quantity with its unit.
        log: Whether the axis of the numbers is logarithmic.

    Raises:
        ValueError: As for `plot_noise_accuracy`.
    """
    figure, axis = _figure(1, 1, (7.5, 4.2))
    layers = [list(values) for values in results.values()]
    same = all(names == layers[0] for names in layers)
    for style, (name, values) in _styled(results):
        depths = np.arange(len(values)) / (1 if same else max(len(values) - 1, 1))
        axis.plot(depths, list(values.values()), label=name, **style)
    if same:
        _name(axis.xaxis, layers[0])
    else:
        axis.set_xlabel("depth, from the first layer to the last")
    axis.set_ylabel(ylabel)
    if log:
        axis.set_yscale("log")
    axis.legend(frameon=False)
    return figure


def plot_alignment(result: Alignment) -> Any:
    """Draws CKA between layers: bright where their features are alike."""
    figure, axis = _figure(1, 1, (6.5, 5.5))
    image = axis.imshow(result.values, MAP, vmin=0, vmax=1, origin="lower")
    _name(axis.xaxis, result.other_names)
    _name(axis.yaxis, result.names)
    figure.colorbar(image, ax=axis, label="CKA (1: the same up to rotation and scale)")
    return figure


def plot_receptive_fields(result: ReceptiveFields) -> Any:
    """Draws which pixels the centre of each layer depends on, on a log scale."""
    columns = min(4, len(result.names))
    rows = -(-len(result.names) // columns)
    figure, axes = _figure(rows, columns, (2.6 * columns + 1, 2.6 * rows + 0.4))
    flat = np.ravel(axes)
    for axis, name, field, side in zip(
        flat, result.names, result.fields, result.sides(), strict=False
    ):
        image = axis.imshow(np.maximum(field, 1e-3), MAP, norm="log", vmin=1e-3, vmax=1)
        axis.set_title(f"{name}\nside {side:.0f} px", fontsize=8)
        axis.tick_params(labelsize=7)
    for axis in flat[len(result.names) :]:
        axis.axis("off")
    figure.supxlabel("pixels")
    figure.supylabel("pixels")
    figure.colorbar(image, ax=axes, label="gradient, relative to the largest")
    return figure


def plot_lesion(result: Lesions) -> Any:
    """Draws the accuracy without each part; heads as a map of layers and heads."""
    if all("/head_" in path for path in result.accuracies):
        return _plot_heads(result)
    figure, axis = _figure(1, 1, (7.5, 4.2))
    values = 100 * np.array(list(result.accuracies.values()))
    axis.bar(np.arange(len(values)), values, color=COLORS[0])
    axis.axhline(100 * result.clean, color=COLORS[1], linestyle="--", label="whole")
    _name(axis.xaxis, list(result.accuracies))
    axis.set_ylabel("accuracy without it (%)")
    axis.legend(frameon=False)
    return figure


def _plot_heads(result: Lesions) -> Any:
    pairs = [path.rsplit("/head_", 1) for path in result.accuracies]
    layers = list(dict.fromkeys(layer for layer, _ in pairs))
    heads = 1 + max(int(head) for _, head in pairs)
    lost = np.full((len(layers), heads), np.nan)  # stages may have fewer heads
    for (layer, head), accuracy in zip(pairs, result.accuracies.values(), strict=True):
        lost[layers.index(layer), int(head)] = 100 * (accuracy - result.clean)
    reach = max(np.nanmax(np.abs(lost)), 1e-9)
    figure, axis = _figure(1, 1, (6.5, 5.0))
    image = axis.imshow(
        lost, "PuOr", vmin=-reach, vmax=reach, origin="lower", aspect="auto"
    )
    axis.set_xlabel("head")
    axis.set_xticks(np.arange(heads))
    _name(axis.yaxis, layers)
    label = f"change of the accuracy of {100 * result.clean:.1f} % (percentage points)"
    figure.colorbar(image, ax=axis, label=label)
    return figure


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    figure = new_figure(*size)
    return figure, figure.subplots(rows, columns)


def _shades(count: int) -> Any:
    """Returns colours from dark, the first layer, to bright."""
    import matplotlib

    return matplotlib.colormaps[MAP](np.linspace(0, 0.85, count))


def _styled(results: Mapping[str, Any]) -> list[tuple[dict[str, Any], tuple[Any, ...]]]:
    if not 1 <= len(results) <= len(COLORS):
        raise ArgumentError(
            f"`results` must have 1 to {len(COLORS)} models. Received: {len(results)}.",
            "results",
        )
    styles = [{"color": c, "marker": m} for c, m in zip(COLORS, MARKERS, strict=True)]
    return list(zip(styles, results.items(), strict=False))


def _name(axis: Any, names: Sequence[str]) -> None:
    """Writes names of layers along an axis, not more than there is place for."""
    places = range(0, len(names), -(-len(names) // NAMES))
    rotation = 90 if axis.axis_name == "x" else 0
    axis.set_ticks(places, [names[i] for i in places], rotation=rotation, fontsize=7)
