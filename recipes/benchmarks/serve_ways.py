"""The ways to answer with a model that `serve` measures, each in its own process.

    python -m recipes.benchmarks.serve_ways WAY FOLDER CORES

reads numbers of images, one in a line, and prints the seconds of a call with so many.
At the end of its input it prints the most bytes that the process took.
"""

import dataclasses
import functools
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from command import startup
from exporting import runtime
from exporting.formats import FORMATS

from .import_timm import import_timm, timm_model
from .settings import Config

EXPORT = Path(__file__).parents[1] / "export.py"
NAMES = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
CALLS = {1: 8, 8: 1, 32: 1}  # {number of images: calls in each round}
IMAGES = "images.npy"  # what all ways take


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to answer.

    Attributes:
        load: Folder → function of images (N, H, W, C), float32, that returns logits.
        backend: Of Keras, if it needs one.
        write: Writes what it loads beside the model of kerasvit: (settings, folder).
    """

    load: Callable[[Path], Callable]
    backend: str | None = None
    write: Callable[[Config, Path], None] | None = None


def found(name: str) -> dict[str, Way]:
    """Returns the ways to answer with a variant that are installed."""
    ways = {}
    for backend in filter(importlib.util.find_spec, startup.BACKENDS):
        library = f"kerasvit, {NAMES[backend]}"
        ways[f"{library}, predict"] = Way(_predict, backend)
        ways[f"{library}, predict_on_batch"] = Way(_predict_on_batch, backend)
        if backend == "torch":
            ways[f"{library}, compiled"] = Way(_compiled, backend)
        if name.startswith("ViT") and importlib.util.find_spec("keras_hub"):
            ways[f"keras-hub, {NAMES[backend]}, predict_on_batch"] = Way(
                _keras_hub, backend, _write_keras_hub
            )
    if importlib.util.find_spec("timm"):
        ways["timm, PyTorch"] = Way(_timm)
        ways["timm, ONNX"] = Way(_timm_onnx, None, _write_timm_onnx)
    for form, about in FORMATS.items():
        for dtype, needed in (("float32", {}), ("int8", about.quantizer)):
            if dtype == "int8" and not needed:
                continue
            if all(map(importlib.util.find_spec, {**about.modules, **needed})):
                of = form, dtype
                ways[f"{form}, {dtype}"] = Way(
                    functools.partial(_exported, *of),
                    write=functools.partial(_export, *of),
                )
    return ways


def write(config: Config, folder: Path) -> dict[str, Way]:
    """Returns the ways, and writes into a folder what they load."""
    import keras

    import kerasvit

    from .keras_steps import batch, kerasvit_model

    model = kerasvit_model(config)
    random = np.random.default_rng(0)
    for each in model.weights:
        if "head" in each.path:  # zeros in a new model
            each.assign(random.normal(size=each.shape, scale=0.02))
    kerasvit.save_pretrained(model, folder / "model")
    images, _ = batch(dataclasses.replace(config, batch_size=max(CALLS)))
    np.save(folder / IMAGES, images)
    keras.backend.clear_session()
    ways = found(config.name)
    for each in {way.write for way in ways.values() if way.write}:
        each(config, folder)
    return ways


def _keras_model(folder):
    import kerasvit

    return kerasvit.from_pretrained(folder / "model")


def _predict(folder):
    return functools.partial(_keras_model(folder).predict, verbose=0)


def _predict_on_batch(folder):
    return _keras_model(folder).predict_on_batch


def _compiled(folder):
    model = _keras_model(folder)
    model.compile(jit_compile=True)
    return model.predict_on_batch


def _write_keras_hub(config, folder):
    from .rivals import new_keras_hub_model

    new_keras_hub_model(config).save(folder / "keras-hub.keras")


def _keras_hub(folder):
    import keras
    import keras_hub  # noqa: F401  its classes

    model = keras.saving.load_model(folder / "keras-hub.keras", compile=False)
    return model.predict_on_batch


def _timm_model(folder):
    config = json.loads((folder / "model" / "config.json").read_text("utf-8"))
    return timm_model(folder / "model", config).eval()


def _timm(folder):
    import torch

    model = _timm_model(folder)

    def run(images):
        with torch.inference_mode():
            return model(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()

    return run


def _write_timm_onnx(config, folder):
    import torch

    import_timm()
    images = torch.zeros(2, 3, config.image_size, config.image_size)
    torch.onnx.export(
        _timm_model(folder),
        (images,),
        folder / "timm.onnx",
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        verbose=False,
    )


def _timm_onnx(folder):
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "timm.onnx")
    (taken,) = session.get_inputs()

    def run(images):
        inputs = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        return session.run(None, {taken.name: inputs})[0]

    return run


def _export(form, dtype, config, folder):
    options = ["--inputs", "normalized", "--outputs", "logits", "--dtype", dtype]
    out = folder / f"{form}-{dtype}"
    environment = {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
    subprocess.run(
        [sys.executable, EXPORT, folder / "model", "--format", form, "--out", out]
        + options,
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _exported(form, dtype, folder):
    return runtime.READERS[form](str(folder / f"{form}-{dtype}"))


def main(name: str, folder: str, cores: str) -> None:
    """Answers until the input ends."""
    # What the libraries print goes to the standard error.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    images = np.load(Path(folder) / IMAGES)
    run = found(Path(folder).name)[name].load(Path(folder))
    for line in sys.stdin:
        start = time.perf_counter()
        run(images[: int(line)])
        print(time.perf_counter() - start, file=answers, flush=True)
    # `resource` has the most of the process that started this one, too.
    status = Path("/proc/self/status").read_text("utf-8")
    kilobytes = status.partition("VmHWM:")[2].split()[0]
    print(int(kilobytes) * 1024, file=answers, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
