"""Exports small models of each family and kind, and writes the table of MEASURED.md.

    python -m recipes.benchmarks.exports            # every backend that is installed
    python -m recipes.benchmarks.exports --table    # the table from what was measured

Each cell is the error that `export.py` measured: the largest difference of a logit from
the Keras model's, divided by its largest logit. It is kept in runs/benchmarks/, in the
file exports-BACKEND.json, and not measured again with the same versions.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from command import startup
from exporting.formats import DTYPES, FORMATS

FOLDER = Path("runs/benchmarks")
PAGE = Path(__file__).parents[1] / "MEASURED.md"
MARKS = ("<!-- table -->\n", "<!-- end -->\n")
PACKAGES = (
    *("keras", "tensorflow", "jax", "torch", "onnx", "onnxscript", "onnxruntime"),
    *("openvino", "ai-edge-litert"),
)
VIT = {"patch_size": 4, "width": 32, "depth": 2, "num_heads": 2, "mlp_dim": 64}
FAMILIES = {  # {name in the table: (builder, arguments)}
    "ViT": ("VisionTransformer", VIT),
    "DeiT": ("DistilledVisionTransformer", VIT),
    "hybrid": (
        "HybridVisionTransformer",
        {**VIT, "patch_size": 1, "resnet_depths": [1, 1], "width_factor": 0.5},
    ),
    "Mixer": (
        "MLPMixer",
        {
            "patch_size": 4,
            "width": 32,
            "depth": 2,
            "tokens_mlp_dim": 16,
            "channels_mlp_dim": 64,
        },
    ),
    "BiT": ("BigTransfer", {"depths": [1, 1], "width_factor": 0.5}),
    "Swin": (
        "SwinTransformer",
        {
            "patch_size": 2,
            "width": 16,
            "depths": [2, 2],
            "num_heads": [1, 2],
            "window_size": 4,
        },
    ),
    "AlterNet": (
        "AlterNet",
        {
            "depths": [1, 2],
            "attention_depths": [0, 1],
            "bottleneck": False,
            "stem": "cifar",
            "widths": [16, 16],
            "stem_width": 16,
            "num_heads": [1, 2],
            "head_width": 8,
            "window_size": 4,
        },
    ),
}
IN_OTHER_DTYPES = ("ViT", "BiT")
KINDS = ("features", "segmenter", "several labels", "any size")  # of ViT and Swin
COLUMNS = (*FAMILIES, *KINDS)


def main() -> None:
    """Measures what is missing, and writes the table."""
    startup.check_packages()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("--on", choices=startup.BACKENDS, help="measure on this one")
    options = parser.parse_args()
    if options.on:
        os.environ["KERAS_BACKEND"] = options.on
        measure(options.on)
        return
    for backend in () if options.table else startup.BACKENDS:
        if importlib.util.find_spec(backend):
            command = [sys.executable, "-m", "recipes.benchmarks.exports", "--on"]
            subprocess.run([*command, backend], check=True)
    before, _, rest = PAGE.read_text("utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    PAGE.write_text(f"{before}{MARKS[0]}\n{table()}\n{MARKS[1]}{after}", "utf-8")


def measure(backend: str) -> None:
    """Exports all columns to all formats that a backend writes."""
    import export
    from command import command_line
    from exporting.settings import Config

    cells = stored(backend)
    for column in COLUMNS:
        for dtype in DTYPES if column in IN_OTHER_DTYPES else DTYPES[:1]:
            for name, form in FORMATS.items():
                key = cell(backend, name, dtype, column)
                refused = backend in form.refused or form.reason(dtype, backend)
                if refused or key in cells:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    path, values = saved(column, folder)
                    out = f"{folder}/out"
                    options = {"dtype": dtype, "model_input": values}
                    if column != "several labels":  # whose sigmoids are exported, too
                        options["outputs"] = "logits"
                    try:
                        export.export(Config(path, name, out, **options))
                    except command_line.BadInput as error:
                        cells[key] = str(error)
                    else:
                        text = (Path(out) / "export.json").read_text("utf-8")
                        cells[key] = json.loads(text)["compared"]["relative"]
                print(key, cells[key], flush=True)
                FOLDER.mkdir(parents=True, exist_ok=True)
                file(backend).write_text(
                    json.dumps({"of": versions(), "cells": cells}, indent=1), "utf-8"
                )


def saved(column: str, folder: str) -> tuple[str, str | None]:
    """Saves the model of a column, and returns its path and `--model-input`."""
    import segmentation

    import kerasvit

    path = f"{folder}/model"
    if column == "features":
        kerasvit.features(model("ViT"), -1).save(f"{path}.keras")
        return f"{path}.keras", None
    if column == "segmenter":
        maps = kerasvit.features(model("Swin"))
        segmentation.segmenter(maps, 10).save(f"{path}.keras")
        return f"{path}.keras", "tf"
    built = model(column if column in FAMILIES else "ViT")
    if column == "several labels":
        built.record["problem_type"] = "multi_label_classification"
    elif column == "any size":
        built = kerasvit.resize(built, (None, None))
    kerasvit.save_pretrained(built, path)
    return path, None


def model(family: str):
    """Returns a small model of a family, with random weights in all layers."""
    import keras
    import numpy as np

    import kerasvit

    keras.config.set_dtype_policy("float32")
    builder, arguments = FAMILIES[family]
    built = getattr(kerasvit, builder)(image_size=16, num_classes=10, **arguments)
    random = np.random.default_rng(0)
    for variable in built.weights:
        value = random.normal(size=variable.shape, scale=0.3)
        if "seed" not in variable.path:
            variable.assign(abs(value) if "variance" in variable.path else value)
    return built


def cell(*parts: str) -> str:
    """Returns the key of a cell: backend, format, dtype and column."""
    return " ".join(parts)


def versions() -> dict[str, str]:
    """Returns the versions of the packages that are installed."""
    found = {}
    for name in PACKAGES:
        if importlib.util.find_spec(name.replace("-", "_")):
            found[name] = importlib.metadata.version(name)
    return found


def file(backend: str) -> Path:
    """Returns the path of what was measured on a backend."""
    return FOLDER / f"exports-{backend}.json"


def stored(backend: str) -> dict[str, float | str]:
    """Returns the cells of a backend, measured with the versions of now."""
    if not file(backend).is_file():
        return {}
    found = json.loads(file(backend).read_text("utf-8"))
    return found["cells"] if found["of"] == versions() else {}


def table() -> str:
    """Returns the table in Markdown."""
    cells = {key: x for each in startup.BACKENDS for key, x in stored(each).items()}
    rows = [["format", "backend", "precision", *COLUMNS]]
    rows.append(["---"] * len(rows[0]))
    for name, form in FORMATS.items():
        for backend in form.backends:
            for dtype in (x for x in DTYPES if not form.reason(x, backend)):
                found = (cells.get(cell(backend, name, dtype, x)) for x in COLUMNS)
                rows.append([name, backend, dtype, *map(shown, found)])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines += ["", "Not written, and why:", ""]
    for name, form in FORMATS.items():
        lines += [
            textwrap.fill(f"- {name}, {what}: {why}.", 100, subsequent_indent="  ")
            for what, why in form.refused.items()
        ]
    of = f"With {', '.join(map(' '.join, versions().items()))}."
    return "\n".join([*lines, "", textwrap.fill(of, 100), ""])


def shown(value: float | str | None) -> str:
    """Returns an error as a cell; the reason where there is none."""
    if value is None:
        return ""
    return value.replace("|", "/") if isinstance(value, str) else f"{value:.0e}"


if __name__ == "__main__":
    main()
