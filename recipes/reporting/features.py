"""Measures of intermediate features, and of a model with a part changed."""

import re

import numpy as np
from matplotlib.colors import LogNorm

from kerasvit import inspection
from kerasvit.inspection import BLOCKS

from .figures import by_depth, lines, maps
from .measure import (
    JOINT,
    Measure,
    Passes,
    block_paths,
    either,
    quantised,
    without_blocks,
    without_derivatives,
    without_hidden,
    without_maps,
)
from .tables import Table

FIELD_IMAGES = 32
FIELD_PIXELS = 56
CKA_BATCH = 64
NOISE = 0.5  # root mean square, in deviations of the images


def _fourier(subject):
    found = inspection.relative_log_amplitudes(
        subject.model, subject.x, batch_size=subject.batch_size
    )
    return {
        "layers": found.names,
        "frequencies": [each.tolist() for each in found.frequencies],
        "amplitudes": [each.tolist() for each in found.amplitudes],
    }


def _show_fourier(results):
    high = {n: [a[-1] for a in r["amplitudes"]] for n, r in results.items()}
    series = {
        name: [
            (r["frequencies"][i], r["amplitudes"][i]) for i in (0, len(r["layers"]) - 1)
        ]
        for name, r in results.items()
    }
    label = "Δ log amplitude"
    return [
        by_depth("Highest frequency, by depth", high, label),
        lines(
            "By frequency, after the first and the last block",
            series,
            "frequency (π per cell)",
            label,
            ends=("first", "last"),
        ),
    ]


def _noise(subject):
    rms = NOISE * float(subject.x.std())
    found = inspection.frequency_noise_accuracy(
        subject.model,
        subject.x,
        subject.y,
        rms,
        seed=subject.seed,
        batch_size=subject.batch_size,
        bands=_bands(subject.x.shape[1]),
    )
    return {
        "bands": [list(band) for band in found.bands],
        "accuracy": found.accuracies.tolist(),
        "clean": found.clean,
        "rms": rms,
    }


def _bands(side):
    """Returns at most ten bands, each of which has a frequency of the images."""
    count = min(10, side // 2)
    return [(i / count, (i + 1) / count) for i in range(count)]


def _show_noise(results):
    series = {
        name: [(np.mean(r["bands"], 1), 100 * np.array(r["accuracy"]))]
        for name, r in results.items()
    }
    labels = ("frequency of the noise (π per pixel)", "accuracy (%)")
    levels = {name: 100 * r["clean"] for name, r in results.items()}
    return [lines("Accuracy under noise", series, *labels, levels=levels)]


def _variance(subject):
    options = {"batch_size": subject.batch_size}
    return inspection.feature_variance(subject.model, subject.x, **options)


def _show_variance(results):
    values = {name: list(each.values()) for name, each in results.items()}
    return [by_depth("Variance of the features", values, "variance", zero=True)]


def _active(subject):
    options = {"batch_size": subject.batch_size}
    return inspection.active_share(subject.model, subject.x, **options)


def _show_active(results):
    values = {n: [100 * share for share in r.values()] for n, r in results.items()}
    return [by_depth("Active neurons of the MLPs", values, "share (%)", zero=True)]


def _cka(*subjects):
    pairs = [(each, each) for each in subjects]
    if len(subjects) == 2 and np.array_equal(*(each.x for each in subjects)):
        pairs.append(subjects)
    return {
        " and ".join(dict.fromkeys(each.name for each in pair)): _alignment(*pair)
        for pair in pairs
    }


def _alignment(one, other):
    second = None if one is other else other.model
    batch = _batch(len(one.x))
    found = inspection.cka(one.model, one.x, second, batch_size=batch)
    return {"rows": one.name, "columns": other.name, "values": found.values.tolist()}


def _batch(count):
    """Returns a size of batches of which the last has 4 images or more."""
    size = min(CKA_BATCH, count)
    while 0 < count % size < 4:
        size -= 1
    return size


def _show_cka(results):
    found = []
    for name, each in results[JOINT].items():
        values = np.array(each["values"])
        rows, columns = values.shape
        options = {
            "extent": (0.5, columns + 0.5, 0.5, rows + 0.5),
            "axes": (f"block of {each['columns']}", f"block of {each['rows']}"),
            "span": (0, 1),
        }
        found.append(maps(f"CKA of {name}", {"": [values[::-1]]}, "CKA", **options))
    return found


def _receptive_field(subject):
    x = subject.x[:FIELD_IMAGES]
    found = inspection.effective_receptive_field(
        subject.model, x, seed=subject.seed, batch_size=min(8, subject.batch_size)
    )
    last = len(found.names) - 1
    chosen = sorted({0, last // 2, last})
    step = max(1, -(-x.shape[1] // FIELD_PIXELS))
    return {
        "layers": found.names,
        "side": found.sides().tolist(),
        "image_size": list(x.shape[1:3]),
        "drawn": [found.names[i] for i in chosen],
        "fields": [found.fields[i, ::step, ::step].tolist() for i in chosen],
    }


def _show_receptive_field(results):
    sides = {name: each["side"] for name, each in results.items()}
    rows = {
        name: [np.maximum(each, 1e-3) for each in map(np.array, r["fields"])]
        for name, r in results.items()
    }
    height, width = next(iter(results.values()))["image_size"]
    titles = ("first block", "middle", "last")
    return [
        by_depth("Side of the receptive field", sides, "side (pixels)", zero=True),
        maps(
            "Effective receptive field of the centre",
            rows,
            "relative gradient",
            titles=titles if len(next(iter(rows.values()))) == 3 else (),
            extent=(0, width, height, 0),
            norm=LogNorm(1e-3, 1, clip=True),
        ),
    ]


def _gradients(subject):
    _, *data = subject.data
    return inspection.gradient_norms(
        subject.new_model(),
        *data,
        head="random",
        batch_size=subject.batch_size,
        seed=subject.seed,
    )


def _show_gradients(results):
    values = {
        name: [norm for layer, norm in r.items() if re.search(BLOCKS, layer)]
        for name, r in results.items()
    }
    return [by_depth("Norm of the gradient at the start", values, "‖∇L‖₂", log=True)]


def _lesion(subject):
    options = {"batch_size": subject.batch_size}
    data = (subject.model, subject.x, subject.y)
    blocks = inspection.lesion(*data, **options)
    result = {"clean": blocks.clean, "blocks": blocks.accuracies, "heads": None}
    if _has_heads(subject):
        result["heads"] = inspection.lesion(*data, what="head", **options).accuracies
    return result


def _has_heads(subject):
    layers = subject.model.layers
    return any(
        hasattr(getattr(layer, "attention", None), "output_dense") for layer in layers
    )


def _show_lesion(results):
    levels = {name: 100 * r["clean"] for name, r in results.items()}
    blocks = {n: [100 * a for a in r["blocks"].values()] for n, r in results.items()}
    heads = {name: [_by_layer(r["heads"])] for name, r in results.items() if r["heads"]}
    label = "accuracy (%)"
    found = [
        _lesion_table(results),
        by_depth("Accuracy without a block", blocks, label, levels=levels),
    ]
    if heads:
        caption, options = "Accuracy without a head", {"levels": levels, "points": True}
        found.append(lines(caption, heads, "attention layer", label, **options))
    return found


def _by_layer(accuracies):
    """Returns the numbers of the layers of heads, and the accuracies in %."""
    paths = [path.rpartition("/")[0] for path in accuracies]
    numbers = {path: i for i, path in enumerate(dict.fromkeys(paths), 1)}
    return [numbers[path] for path in paths], [100 * a for a in accuracies.values()]


def _lesion_table(results):
    rows = []
    for name, r in results.items():
        path = min(r["blocks"], key=r["blocks"].get)
        rows.append([name, 100 * r["clean"], 100 * r["blocks"][path], path])
    head = ["", "whole", "without the most needed block", "which is"]
    return Table("Accuracy on the images (%)", head, rows)


def _lesion_passes(subject):
    count = len(block_paths(subject)) + 1
    return Passes(count * (1 + 6 * _has_heads(subject)), 0, 2)


def _field_passes(subject):
    share = min(FIELD_IMAGES, len(subject.x)) / len(subject.x)
    count = len(block_paths(subject))
    return Passes(2 * count * share, 0, count)


ONE = Passes(1)
MEASURES = {
    "fourier": Measure(_fourier, _show_fourier, lambda s: ONE, without_maps),
    "noise": Measure(_noise, _show_noise, lambda s: Passes(11)),
    "variance": Measure(_variance, _show_variance, lambda s: ONE, without_maps),
    "active": Measure(
        _active, _show_active, lambda s: ONE, either(quantised, without_hidden)
    ),
    "cka": Measure(_cka, _show_cka, lambda *s: Passes(4), without_blocks, jointly=True),
    "receptive-field": Measure(
        _receptive_field, _show_receptive_field, _field_passes, without_maps
    ),
    "gradients": Measure(
        _gradients,
        _show_gradients,
        lambda s: Passes(0, 1),
        either(without_derivatives, without_blocks),
    ),
    "lesion": Measure(
        _lesion, _show_lesion, _lesion_passes, either(quantised, without_blocks)
    ),
}
