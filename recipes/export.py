"""Exports a model to the format of another runtime, and reads it back.

    python recipes/export.py runs/pets --format onnx
    python recipes/export.py ViTB16/sam --format litert --out vit.litert --batch 1
    python recipes/export.py hf://user/name --format torch --outputs logits
    python recipes/export.py --help

The exported model takes pixels from 0 to 255 and returns probabilities. Images must
have its size: `transform.py` in its folder reads photographs as `kerasvit.classify`
does, with Pillow and NumPy alone. With `--inputs photo` the model takes photographs of
any size and resizes them itself. The folder has the file of the format, `labels.txt`
with the name of class i in line i + 1, and `export.json` with sizes, transform and
measured errors. If the backend of KERAS_BACKEND does not write the format, one that
does loads the model. EXPORT.md has the use of each format, and what works where.
"""

# ruff: noqa: E402
import os
import sys

from command import command_line, startup
from exporting import formats
from exporting.settings import Config, check_folder, complete_folder


def parse(arguments) -> Config:
    """Returns the configuration of a command: `command_line.parse_options`."""
    return command_line.parse_options(
        arguments, Config, prog="export.py", description=Config.__doc__
    )


def start(arguments) -> Config:
    """Returns the checked configuration of a command, and sets its backend."""
    config = parse(arguments)
    with command_line.checking_input():
        chosen = os.environ.get("KERAS_BACKEND")
        if chosen and chosen != "openvino":  # which runs models, and writes none
            startup.check_backend()
        backend = formats.backend_for(config.format, config.dtype, chosen)
        config.check(backend)
    os.environ["KERAS_BACKEND"] = backend
    return config


if __name__ == "__main__":  # before the imports that take seconds
    CONFIG = command_line.main(lambda: start(sys.argv[1:]))

import dataclasses
import shutil
from pathlib import Path

import keras
from exporting import checking, metadata, quantizing, writing
from scoring import candidates
from training.progress import console
from training.run_folder import write_json

import kerasvit
from kerasvit import __version__

TRANSFORM = Path(__file__).with_name("exporting") / "transform.py"


def export(config: Config) -> Path:
    """Exports the model, reads it back, and returns the folder of the export.

    Raises:
        command_line.BadInput: The input is wrong, or the export differs from the model.
    """
    with command_line.checking_input():
        backend = keras.backend.backend()
        config.check(backend)
        out = check_folder(config.folder, config.replace)
        candidate = load(config)
        precision = writing.precision(candidate.model)
        formats.check_model(config.format, precision, backend)
        served = writing.served(candidate, config.inputs, config.outputs, config.batch)
        images = None
        if config.calibrate:
            images = quantizing.calibration_images(config.calibrate, served)
        with complete_folder(out, config.replace) as folder:
            writing.write(served.model, config.format, folder)
            metadata.write(config.format, folder, candidate)
            ends = served.low, served.high
            errors = checking.check(
                served.model, precision, config.format, folder, *ends
            )
            checking.check_errors(errors, precision)
            stated = described(config, precision, served, errors, candidate)
            if formats.by_runtime(config.format, config.dtype):
                stated["dtype"] = config.dtype
                stated["int8"] = quantizing.quantized(
                    config.format, folder, served, images, candidate
                )
            write_json(folder / "export.json", stated)
            shutil.copyfile(TRANSFORM, folder / TRANSFORM.name)
    for line in report(out, served, errors, stated.get("int8")):
        console.print(line, highlight=False, soft_wrap=True)
    return out


def load(config: Config) -> candidates.Candidate:
    """Returns the model in its precision, for images of one size."""
    integers = config.dtype in ("int8", "int4")
    keras.config.set_dtype_policy("float32" if integers else config.dtype)
    by_keras = integers and not formats.by_runtime(config.format, config.dtype)
    found = candidates.load(
        config.model,
        config.model_input,
        config.image_size,
        headless=True,
        state=config.state,
    )
    model = found.model
    if None in model.inputs[0].shape[1:3]:
        model = kerasvit.resize(model, found.transform.size)
    if by_keras and writing.precision(model) != config.dtype:
        model.quantize(config.dtype)
    return dataclasses.replace(found, model=model)


def described(
    config: Config,
    precision: str,
    served: writing.Served,
    errors: checking.Errors,
    candidate: candidates.Candidate,
) -> dict:
    """Returns what `export.json` says about an export."""
    backend, found = keras.backend.backend(), served.calibration
    of_classes = {"label_names": metadata.names(candidate)}
    if candidate.has_head:
        of_classes["task"] = candidate.task
        of_classes["thresholds"] = found and found.thresholds
    return {
        "model": config.model,
        "format": config.format,
        "dtype": precision,
        "input": {
            "name": "image",
            "shape": list(served.model.input_shape),
            "values": served.inputs,
            "dtype": served.model.inputs[0].dtype,
        },
        "output": {
            "name": served.outputs,
            "shape": list(served.model.output_shape),
            **of_classes,
        },
        "preprocessing": served.transform.to_config(),
        "compared": dataclasses.asdict(errors),
        "versions": {
            "kerasvit": __version__,
            "keras": keras.__version__,
            backend: sys.modules[backend].__version__,
        },
    }


def report(
    out: Path, served: writing.Served, errors: checking.Errors, int8: dict | None
) -> list[str]:
    """Returns lines about an export."""
    height, width = served.transform.size
    sizes = ", ".join(map(str, dict.fromkeys(errors.batch_sizes)))
    taken = {
        "photo": "uint8 photographs of any size, RGB, and resizes them to "
        f"{height} × {width}",
        "pixels": f"pixels from 0 to 255 of {height} × {width}",
        "normalized": f"normalised images of {height} × {width}",
    }[served.inputs]
    resizing = (
        " Resizing is not inside: `read` of its transform.py does it, with Pillow."
    )
    if served.inputs == "photo":
        resizing = ""
    size = sum(each.stat().st_size for each in out.rglob("*") if each.is_file())
    compared = []
    if errors.of_rounding is not None:
        compared.append(
            f"On average it is {errors.of_rounding:.2g} times the change of the Keras "
            f"model's outputs when the images change by {checking.ROUNDING:.0e}; at "
            f"most {checking.MOST_OF_ROUNDING} passes."
        )
    return [
        f"Read back by {errors.runtime}, without Keras, with "
        f"{sum(errors.batch_sizes)} images in batches of {sizes}: largest difference "
        f"{errors.absolute:.1e}, {errors.relative:.1e} of the largest output.",
        *compared,
        *(quantizing.report(int8) if int8 else []),
        f"It takes {taken}, and returns {served.outputs}.{resizing}",
        f"Written on {keras.backend.backend()}: {out}, {size / 1e6:.1f} MB.",
    ]


if __name__ == "__main__":
    command_line.main(lambda: export(CONFIG))
