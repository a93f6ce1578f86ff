"""Theorem 1 of Cordonnier et al. 2020, arXiv 1911.03584: convolution as attention."""

import math

import keras
import numpy as np
from keras import ops

from kerasvit import layers
from kerasvit.layers import kernel_of_patches, set_convolution

from . import measures
from .experiment import Claim, Column, Experiment, Number

PAPER = """
An attention layer of K² heads with relative positions of three numbers or more can be
equal to any convolution of K × K cells (theorem 1). For patches of P × P pixels,
(2 ⌈(K − 1) / (2 P)⌉ + 1)² heads are enough, and necessary (Li et al. 2021,
arXiv 2111.01353).
"""
ROUNDING = 1e-8  # an error below it counts as that
SIDE, CHANNELS, FILTERS = 12, 3, 5
CASES = {"K 3": (3, 1), "K 5": (5, 1), "K 3, P 4": (3, 4), "K 9, P 4": (9, 4)}


def measure(subject) -> dict:
    """Returns heads, errors of the attention layer, and that of one head fewer."""
    size, patch = CASES[subject.label]
    random = np.random.default_rng(subject.seed)
    x = random.normal(size=(2, SIDE, SIDE, CHANNELS)).astype("float32")
    kernel = random.normal(size=(size, size, CHANNELS, FILTERS)).astype("float32")
    wanted = ops.convert_to_numpy(ops.conv(x, kernel, padding="same"))
    if patch > 1:
        x, wanted = (_patches(each, patch) for each in (x, wanted))
        kernel = kernel_of_patches(kernel, patch)
    side = kernel.shape[0]
    attention = layers.QuadraticAttention(
        side**2,
        head_dim=min(kernel.shape[2:]),
        filters=kernel.shape[-1],
        padding=side // 2,
    )
    attention(x)
    set_convolution(attention, kernel)
    found = ops.convert_to_numpy(attention(x))
    attention.output_dense.kernel.assign(_without_a_head(attention))
    fewer = ops.convert_to_numpy(attention(x))
    scale = np.abs(wanted).max()
    return {
        "heads": side**2,
        "error": float(np.abs(found - wanted).max() / scale),
        "error_of_fewer": float(np.abs(fewer - wanted).max() / scale),
    }


def _patches(x, patch):
    """Returns images as maps of patches (N, H / P, W / P, P · P · C)."""
    count, height, width, channels = x.shape
    cells = x.reshape(count, height // patch, patch, width // patch, patch, channels)
    return cells.transpose(0, 1, 3, 2, 4, 5).reshape(
        count, height // patch, width // patch, -1
    )


def _without_a_head(attention):
    """Returns the output kernel with zeros for the first head."""
    kernel = keras.ops.convert_to_numpy(attention.output_dense.kernel).copy()
    kernel[: attention.head_dim] = 0
    return kernel


def _heads(case):
    return lambda seed: seed[case]["heads"]


CLAIMS = (
    Number(
        "largest error of the four layers, of the largest output",
        0.0,
        1e-5,
        "theorem 1: 0",
        lambda s: max(found["error"] for found in s.values()),
    ),
    Number("heads for K 5", 25, 0, "theorem 1: K² = 25", _heads("K 5")),
    Number("heads for K 9 and P 4", 9, 0, "(2 ⌈8/8⌉ + 1)² = 9", _heads("K 9, P 4")),
    Claim(
        "log₁₀ of the least error with a head set to 0, over that of all heads",
        1,
        "arXiv 2111.01353: all heads are necessary",
        lambda s: math.log10(
            min(
                found["error_of_fewer"] / max(found["error"], ROUNDING)
                for found in s.values()
            )
        ),
    ),
)
COLUMNS = (
    Column("heads", lambda m: m["heads"], 0),
    Column("error, 10⁻⁶ of the largest output", lambda m: 1e6 * m["error"]),
    Column("error with one head set to 0, %", lambda m: 100 * m["error_of_fewer"], 1),
)


def draw(figure, results) -> None:
    """Plots the errors with all heads and without one."""
    axis = figure.subplots()
    for place, (key, label) in enumerate(
        {"error": "all heads", "error_of_fewer": "one head set to 0"}.items()
    ):
        values = [
            [row[key] for row in rows] for rows in zip(*results.values(), strict=True)
        ]
        measures.draw_line(axis, range(len(results)), values, label, place)
    axis.set_xticks(range(len(results)), results)
    axis.set(yscale="log", ylabel="largest error / largest output")
    axis.legend(frameon=False)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=lambda settings: dict.fromkeys(CASES),
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(6, 4),
    notes="Random images and kernels; the seeds differ in them. Without a head, its "
    "part of the output is left out, the other heads are as they were. ",
)
