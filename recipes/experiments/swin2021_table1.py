"""Table 1 of Liu et al. 2021, arXiv 2103.14030: sizes, multiply-adds and speed."""

import functools

import keras
import numpy as np
from benchmarks.import_timm import import_timm
from scoring import multiply_adds

import kerasvit

from . import measures
from .experiment import Claim, Column, Experiment, Number

# {label: (model, pixels, parameters / 10⁶, multiply-adds / 10⁹, images/s, top-1)}
ROWS = {
    "RegNetY-4G": ("timm:regnety_040", 224, 21, 4.0, 1156.7, 80.0),
    "RegNetY-8G": ("timm:regnety_080", 224, 39, 8.0, 591.6, 81.7),
    "RegNetY-16G": ("timm:regnety_160", 224, 84, 16.0, 334.7, 82.9),
    "EfficientNet-B3": ("keras:EfficientNetB3", 300, 12, 1.8, 732.1, 81.6),
    "EfficientNet-B4": ("keras:EfficientNetB4", 380, 19, 4.2, 349.4, 82.9),
    "ViT-B/16": ("ViTB16", 384, 86, 55.4, 85.9, 77.9),
    "ViT-L/16": ("ViTL16", 384, 307, 190.7, 27.3, 76.5),
    "DeiT-S": ("DeiTS16", 224, 22, 4.6, 940.4, 79.8),
    "DeiT-B": ("DeiTB16", 224, 86, 17.5, 292.3, 81.8),
    "Swin-T": ("SwinT", 224, 29, 4.5, 755.2, 81.3),
    "Swin-S": ("SwinS", 224, 50, 8.7, 436.9, 83.0),
    "Swin-B": ("SwinB", 224, 88, 15.4, 278.1, 83.5),
    "Swin-B, 384": ("SwinB", 384, 88, 47.0, 84.7, 84.5),
    "R-101x3 (22K)": ("BiTR101x3", 384, 388, 204.6, None, 84.4),
    "Swin-L (22K)": ("SwinL", 384, 197, 103.9, 42.1, 87.3),
}
PAPER = """
Images/s of a V100 in batches of 64; top-1 on ImageNet, with (22K) after pre-training on
ImageNet-22K.

| | pixels | parameters, 10⁶ | multiply-adds, 10⁹ | images/s | top-1, % |
|---|---|---|---|---|---|
""" + "\n".join(
    f"| {label} | {' | '.join(str(each or '–') for each in row[1:])} |"
    for label, row in ROWS.items()
)
TIMED = ("DeiT-S", "DeiT-B", "Swin-T", "Swin-S", "Swin-B", "EfficientNet-B3")
BATCH = 4  # in miniature; with --full all rows, in batches of 64


def subjects(settings) -> dict:
    """Returns the rows; those of timm with its own backend only."""
    torch = keras.backend.backend() == "torch"
    return {
        label: None
        for label, (model, *_) in ROWS.items()
        if torch or not model.startswith("timm:")
    }


def measure(subject) -> dict:
    """Returns parameters, multiply-adds, and images per second of some rows."""
    name, pixels, parameters, adds, *_ = ROWS[subject.label]
    found, predict = _built(name, pixels)
    found["off"] = 100 * (found["parameters"] / 1e6 / parameters - 1)
    found["mac_off"] = 100 * (found["multiply_adds"] / 1e9 / adds - 1)
    full = subject.settings.full
    if full or subject.label in TIMED:
        x = np.zeros((64 if full else BATCH, pixels, pixels, 3), "float32")
        found["images_per_second"] = measures.images_per_second(predict, x)
    return found


def _built(name, pixels):
    """Returns the numbers of a model with fresh weights, and its prediction."""
    library, _, own = name.rpartition(":")
    if library == "timm":
        return _of_timm(own, pixels)
    if library:
        shape = (pixels, pixels, 3)
        model = getattr(keras.applications, own)(weights=None, input_shape=shape)
    else:
        windows = {"window_size": pixels // 32} if own.startswith("Swin") else {}
        model = getattr(kerasvit, own)(image_size=pixels, **windows)
    numbers = {"parameters": model.count_params()}
    numbers["multiply_adds"] = multiply_adds.of(model)
    return numbers, functools.partial(model.predict, verbose=0)


def _of_timm(name, pixels):
    """Returns the same of a model of timm."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    device = keras.ops.zeros(()).device
    model = import_timm().create_model(name).eval().to(device)

    @torch.no_grad()
    def predict(x):
        return model(torch.tensor(x, device=device).movedim(-1, 1)).cpu()

    with FlopCounterMode(display=False) as counter:
        predict(np.zeros((1, pixels, pixels, 3), "float32"))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    adds = counter.get_total_flops() // 2  # a multiplication and an addition
    return {"parameters": parameters, "multiply_adds": adds}, predict


def _largest(key):
    """Returns a function of a seed: largest deviation from the table, in percent."""
    return lambda seed: max((row[key] for row in seed.values()), key=abs)


CLAIMS = (
    Number("parameters: largest deviation, %", 0, 4, "table 1", _largest("off")),
    Number("multiply-adds: largest deviation, %", 0, 5, "table 1", _largest("mac_off")),
    Claim(
        "images/s, log₁₀: DeiT-S − Swin-T",
        1,
        "940.4 and 755.2: 0.095",
        measures.log_ratio("images_per_second", "DeiT-S", "Swin-T"),
    ),
)
COLUMNS = (
    Column("parameters, millions", lambda m: m["parameters"] / 1e6, 1),
    Column("multiply-adds, 10⁹", lambda m: m["multiply_adds"] / 1e9, 1),
    Column("images/s", lambda m: m.get("images_per_second"), 2),
)


def draw(figure, results) -> None:
    """Plots images per second over multiply-adds, of the rows that were timed."""
    axis = figure.subplots()
    timed = [k for k, rows in results.items() if "images_per_second" in rows[0]]
    for place, (label, rows) in enumerate((k, results[k]) for k in timed):
        adds = [row["multiply_adds"] / 1e9 for row in rows]
        speed = [row["images_per_second"] for row in rows]
        axis.scatter(adds, speed, color=measures.COLORS[place], s=24, label=label)
    axis.set(xlabel="multiply-adds, 10⁹", ylabel="images/s", xscale="log", yscale="log")
    measures.plain_logarithms(axis)
    axis.legend(frameon=False)
    measures.tidy(axis)


EXPERIMENT = Experiment(
    paper=PAPER,
    subjects=subjects,
    measure=measure,
    claims=CLAIMS,
    columns=COLUMNS,
    draw=draw,
    size=(7, 4.5),
    notes=f"Fresh weights; some are timed by {BATCH} images, with --full all by 64. ",
)
