"""Table 1 of Liu et al. 2021, arXiv 2106.14156: post-training quantisation of a ViT."""

from pathlib import Path

import keras
import numpy as np

import kerasvit

from . import measures, trainings
from .experiment import Claim, Column, Experiment

PAPER = """
With about 8 bits, DeiT-B keeps 81.29 % of 81.8 % on ImageNet (abstract). Fewer bits
lose more. Here Keras quantises the kernels of dense layers, without calibration; the
methods of the paper calibrate with images. The page `kerasvit/QUANTIZATION.md` has the
table of larger models.
"""
KERNELS = keras.quantizers.Int8QuantizationConfig
MODES = {"float32": None, "int8": "int8", "int8 kernels": "kernels", "int4": "int4"}
IMAGES = 2_000


def measure(subject) -> dict:
    """Returns the accuracy and the error of the logits in each mode."""
    x, y = subject.images("test", IMAGES)
    exact, found = subject.model.predict(x, verbose=0), {}
    for name, mode in MODES.items():
        model = kerasvit.from_pretrained(Path(subject.config.out) / "model")
        if mode == "kernels":
            model.quantize("int8", config=KERNELS(activation_quantizer=None))
        elif mode:
            model.quantize(mode)
        logits = model.predict(x, verbose=0)
        found[name] = {
            "accuracy": float(np.mean(logits.argmax(-1) == y)),
            "error": float(np.abs(logits - exact).mean() / np.abs(exact).mean()),
        }
    return found


def _lost(mode):
    """Returns a function of a seed: accuracy of a mode minus that of float32."""
    return lambda s: (
        100 * (s["ViT"][mode]["accuracy"] - s["ViT"]["float32"]["accuracy"])
    )


CLAIMS = (
    Claim("accuracy, points: int8 − float32", -1, "81.29 − 81.8 = −0.5", _lost("int8")),
    Claim(
        "accuracy, points: int4 − int8",
        -1,
        "fewer bits lose more",
        lambda s: _lost("int4")(s) - _lost("int8")(s),
    ),
    Claim(
        "error of the logits, %: int4 − int8",
        1,
        "fewer bits",
        lambda s: 100 * (s["ViT"]["int4"]["error"] - s["ViT"]["int8"]["error"]),
    ),
)
COLUMNS = [
    column
    for mode in MODES
    for column in (
        Column(f"{mode}: accuracy, %", lambda m, k=mode: 100 * m[k]["accuracy"]),
        Column("error of the logits, %", lambda m, k=mode: 100 * m[k]["error"]),
    )
]


def draw(figure, results) -> None:
    """Plots the accuracy and the error of the logits in each mode."""
    for axis, key in zip(figure.subplots(1, 2), ("accuracy", "error"), strict=True):
        values = [[100 * row[mode][key] for mode in MODES] for row in results["ViT"]]
        measures.draw_line(axis, range(len(MODES)), values, "ViT", 0)
        axis.set_xticks(range(len(MODES)), MODES)
        axis.set_ylabel(f"{key}, %")


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=lambda settings: {"ViT": trainings.of(settings, "ViT")},
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(10, 4),
    notes="With --full it is the ViT of arXiv 2106.01548, and not DeiT. ",
)
