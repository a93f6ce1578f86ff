"""Measures and pictures that several experiments have."""

import math
import statistics
import time
from collections.abc import Callable

import keras
import numpy as np
from scoring import corruptions, sets

from kerasvit import inspection
from kerasvit.fine_tuning import heads_of

from .experiment import Column, Results

KINDS = (  # of those that exist for images of 28 pixels
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "brightness"),
    *("contrast", "pixelate", "jpeg_compression"),
)
CORRUPTED = (
    "“Corrupted” is the mean accuracy of at most 200 test images under those "
    f"{len(KINDS)} of the corruptions of ImageNet-C that exist for small images "
    f"({', '.join(kind.replace('_', ' ') for kind in KINDS)}), each in five severities."
)
OVERLAP = (
    "The overlap is the intersection over union of the patches that hold 60 % of the "
    "attention with the pixels of the object, which are brighter than half of the "
    "range of the image. "
)
IMAGES, SHOWN = 200, 6
ROUNDS = 5  # of times that are measured
KERNEL_IMAGES = 32
ACCURACY = Column("test accuracy, %", lambda m: 100 * m["accuracy"], 1)
# Colours of Okabe and Ito, which colour-blind readers can tell apart.
MARKERS = "osD^vP*"
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def accuracy(subject) -> dict:
    """Returns the test accuracy of a training."""
    return {"accuracy": subject.result["accuracy"]}


def corrupted(subject, count: int = IMAGES) -> dict:
    """Returns the accuracies on corrupted test images, and their mean.

    Args:
        subject: `trainings.Subject`.
        count: Number of test images, at most.
    """
    found = sets.of_dataset("test", subject.dataset).sample(count)
    labels = np.repeat([first for first, *_ in found.labels], 5)
    model, by_kind = subject.model, {}
    options = {"batch_size": 100, "normalize": subject.normalizes}
    for kind in KINDS:
        batches = corruptions.Corrupted(found, kind).batches(
            model.preprocessing, **options
        )
        outputs = [
            np.asarray(model.predict_on_batch(images)).argmax(-1)
            for images, *_ in batches.as_numpy_iterator()
        ]
        by_kind[kind] = float(np.mean(np.concatenate(outputs) == labels))
    return {"corrupted": float(np.mean(list(by_kind.values()))), "by_kind": by_kind}


def images_per_second(predict: Callable, x: np.ndarray) -> float:
    """Returns the images that a function predicts in a second: the median of five."""
    times = []
    for _ in range(1 + ROUNDS):  # the first compiles
        times.append(-time.perf_counter())
        predict(x)
        times[-1] += time.perf_counter()
    return len(x) / statistics.median(times[1:])


def objects(x) -> np.ndarray:
    """Returns where the object of each image is, booleans (images, height, width).

    It is what is brighter than half of the range of values, as a digit on black.
    """
    mean = x.mean(-1)
    low, high = mean.min((1, 2), keepdims=True), mean.max((1, 2), keepdims=True)
    return (mean > (low + high) / 2) | (low == high)  # a uniform image is one object


def pictures(x, heat) -> dict:
    """Returns a few images and their heat."""
    shown = np.linspace(0, len(x) - 1, min(len(x), SHOWN)).astype(int)
    return {
        "images": np.round(x[shown].mean(-1), 2).tolist(),
        "heat": np.round(100 * heat[shown], 2).tolist(),
    }


def features(subject, images) -> np.ndarray:
    """Returns the input of the head for `Images`, (count, width)."""
    x, _ = subject.prepared(images)
    model = subject.model
    before = keras.Model(model.inputs[0], heads_of(model)[0].input)
    return before.predict(x, verbose=0)


def log_ratio(quantity: str, above: str, below: str):
    """Returns a function of a seed: log₁₀ of the ratio of a quantity of two subjects.

    It returns NaN where one of the numbers is not positive, not finite, or missing.
    """

    def difference(seed) -> float:
        values = [seed[label][quantity] or 0.0 for label in (above, below)]
        known = all(0 < value < math.inf for value in values)
        return math.log10(values[0] / values[1]) if known else math.nan

    return difference


def points(quantity: str, one: str, other: str):
    """Returns a function of a seed: 100 × the difference of a share of two subjects.

    It returns NaN if one of the subjects is not part of the experiment.
    """

    def difference(seed) -> float:
        if not {one, other} <= seed.keys():
            return math.nan
        return 100 * (seed[one][quantity] - seed[other][quantity])

    return difference


def kappa(subject, x) -> float | None:
    """Returns the condition number of the tangent kernel at the start, on 32 images.

    None if it is infinite, because the smallest eigenvalue is 0 up to rounding.

    The new kernel of the head is random, because that of the models is zero at the
    start: then all gradients below it are zero.
    """
    options = {"form": "summed", "head": "random", "seed": subject.seed}
    found = inspection.ntk(subject.fresh, x[:KERNEL_IMAGES], **options)
    value = float(found.condition_number)
    return value if math.isfinite(value) else None


def draw_points(axis, results: Results, column: Column, log: bool = False) -> None:
    """Plots a quantity: a point per training and a line at the mean, by model.

    Args:
        axis: Matplotlib axis.
        results: {label: numbers of each seed}.
        column: The quantity; what is missing is left out.
        log: Whether the axis is logarithmic, if there are positive values.
    """
    everything = []
    for place, rows in enumerate(results.values()):
        values = [v for row in rows if (v := column.value(row)) is not None]
        if not values:
            continue
        everything += values
        color = COLORS[place % len(COLORS)]
        axis.scatter([place] * len(values), values, color=color, s=18, zorder=2)
        axis.hlines(np.mean(values), place - 0.3, place + 0.3, color=color)
    axis.set_xticks(range(len(results)), results, rotation=45, ha="right")
    axis.set_title(column.heading, fontsize="medium")
    if log and everything and min(everything) > 0:
        axis.set_yscale("log")
    tidy(axis)


def draw_rows(figure, rows: dict) -> None:
    """Shows pictures in rows, {label: (pictures, colours, end of the scale)}."""
    lines = figure.subplots(len(rows), len(next(iter(rows.values()))[0]))
    for line, (label, (pictures, colors, top)) in zip(lines, rows.items(), strict=True):
        line[0].set_ylabel(label)
        for axis, picture in zip(line, pictures, strict=True):
            axis.imshow(picture, cmap=colors, vmin=0 if top else None, vmax=top)
            axis.set(xticks=(), yticks=())


def draw_line(axis, x, values, label: str, place: int) -> None:
    """Plots the mean of the seeds as a line, and their range around it.

    Args:
        axis: Matplotlib axis.
        x: Positions (n,).
        values: One of each seed and position (seeds, n).
        label: Name of the line.
        place: Number of the line, which has its colour and marker.
    """
    values, color = np.asarray(values, "float64"), COLORS[place % len(COLORS)]
    marker = MARKERS[place % len(MARKERS)] if values.shape[1] <= 30 else None
    axis.fill_between(x, values.min(0), values.max(0), color=color, alpha=0.15)
    axis.plot(x, values.mean(0), color=color, marker=marker, label=label)
    tidy(axis)


def draw_shares(
    axis, results: Results, subject: str, quantity: str, label: str, place: int
) -> None:
    """Plots a share in percent over the share of the images, on a logarithmic axis.

    Args:
        axis: Matplotlib axis.
        results: {"subject, share of the images": numbers of each seed}.
        subject: The one that is plotted; nothing, if it is not there.
        quantity: Key of the quantity.
        label, place: As for `draw_line`.
    """
    found = {k: rows for k, rows in results.items() if k.startswith(f"{subject}, ")}
    if found:
        shares = [float(name.split(", ")[1]) for name in found]
        values = [[100 * row[quantity] for row in rows] for rows in found.values()]
        draw_line(axis, shares, np.transpose(values), label, place)
        axis.set_xscale("log")
        axis.set_xticks(shares, [f"{share:g}" for share in shares])
        axis.minorticks_off()


def tidy(axis) -> None:
    """Gives an axis a light grid and no frame above and on the right."""
    axis.grid(alpha=0.3, axis="y")
    axis.spines[["top", "right"]].set_visible(False)


def plain_logarithms(axis) -> None:
    """Labels logarithmic axes of few decades at 1, 2 and 5, without powers of ten."""
    from matplotlib.ticker import LogLocator

    for each in (axis.xaxis, axis.yaxis):
        if each.get_scale() == "log":
            each.set_minor_locator(LogLocator(subs=(2, 5)))
            each.set_major_formatter("{x:g}")
            each.set_minor_formatter("{x:g}")
