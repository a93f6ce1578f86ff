"""Reads a command before the imports that take seconds: Keras, TensorFlow, kerasvit.

    config = command_line.read(sys.argv[1:], PRESETS, "finetune.py")

This module imports none of them, so that a typing error is answered in a second.
"""

import contextlib
import dataclasses
import difflib
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import names
import reachable
import startup
import tyro

LIMITS = {  # where a configuration has such a number
    "batch_size": (1, math.inf),
    "image_size": (1, math.inf),
    "learning_rate": (1e-12, math.inf),
    "warmup_steps": (0, math.inf),
    "steps": (1, math.inf),
    "epochs": (1, math.inf),
    "weight_decay": (0, math.inf),
    "clip": (0, math.inf),
    "rho": (0, math.inf),
    "micro_batches": (1, math.inf),
    "label_smoothing": (0, 0.99),
    "dropout": (0, 0.99),
    "stochastic_depth": (0, 0.99),
    "seeds": (1, 100),
    "curved_images": (1, math.inf),
    "seed": (0, 2**31 - 1),
}
# Names that other programs have for our options. tyro suggests those that are spelled
# alike (--epoch, --modle); these it does not find.
ALIASES = {
    "lr": "learning-rate",
    "lr-rate": "learning-rate",
    "bs": "batch-size",
    "wd": "weight-decay",
    "decay": "weight-decay",
    "opt": "optimizer",
    "aug": "augment",
    "arch": "model",
    "checkpoint": "weights",
    "ckpt": "weights",
    "pretrained": "weights",
    "folder": "data",
    "output": "out",
    "save-dir": "out",
    "resolution": "image-size",
    "precision": "dtype",
    "drop-path": "stochastic-depth",
    "licence": "license",
}
EITHER = (("--steps", "--epochs"), ("--data", "--dataset"))


class BadInput(ValueError):
    """What the user gave is wrong."""


@contextlib.contextmanager
def checking_input() -> Iterator[None]:
    """Raises each `ValueError` of its block as a `BadInput`."""
    try:
        yield
    except ValueError as error:
        raise BadInput(str(error)) from error


def read(arguments: Sequence[str], presets: dict, script: str):
    """The checked configuration of a command; then imports TensorFlow without notes.

    A command that is wrong ends the process with one line: an unknown option, preset
    or backend, a number out of range, a path that does not exist, a data set that
    would have to be downloaded and cannot be. The first of these that costs least is
    found first.

    Args:
        arguments, presets, script: As for `parse`.
    """
    config = main(lambda: checked(parse(arguments, presets, script)))
    startup.import_quietly("tensorflow")
    return config


def checked(config):
    """The configuration, once all is checked that needs no slow import.

    Raises:
        BadInput: A setting, the backend, a path or the name of a data set is wrong.
    """
    with checking_input():
        check(config)
        startup.check_backend()
        startup.check_reader()
        if not config.data:
            names.check_dataset(config.dataset)
            reachable.check(config.dataset)
    return config


def parse(arguments: Sequence[str], presets: dict, script: str):
    """The configuration: that of a preset, with what the options change.

    Args:
        arguments: Of the command line: maybe a preset's name, then options.
        presets: Name → configuration. Where none is named, it is the first, the demo,
            if no option names other images, else the defaults of its class.
        script: What messages call the program.

    Raises:
        BadInput: There is no such preset, or no such option and a known alias.
        SystemExit: tyro explained what is wrong, or printed the help.
    """
    options = list(arguments)
    if options and not options[0].startswith("-"):
        preset = options.pop(0)
        if preset not in presets:
            near = difflib.get_close_matches(preset, presets) or presets
            raise BadInput(f"There is no preset {preset!r}. Close: {', '.join(near)}.")
        return _options(options, presets[preset], presets, script)
    demo = next(iter(presets.values()))
    config = _options(options, type(demo)(), presets, script)
    if (config.data, config.dataset) != (demo.data, demo.dataset):
        return config
    return _options(options, demo, presets, script)


def _options(options, default, presets, script):
    return parse_options(
        options,
        default,
        prog=f"{script} [PRESET]",
        description=f"{type(default).__doc__} Presets: {', '.join(presets)}.",
    )


def parse_options(options: Sequence[str], default, prog: str, description: str):
    """What tyro makes of options, once the names of other programs are explained.

    Args:
        options: Of the command line.
        default: Dataclass of the settings, or its class if one has no default.
        prog: What messages call the program.
        description: Head of the help.

    Raises:
        BadInput: One is a well-known name of one of ours, or two exclude each other.
        SystemExit: tyro explained what is wrong, or printed the help.
    """
    kind = default if isinstance(default, type) else type(default)
    fields = {field.name.replace("_", "-") for field in dataclasses.fields(kind)}
    for option in options:
        name = option.removeprefix("--").split("=")[0].replace("_", "-")
        if option.startswith("--") and name not in fields:
            if ALIASES.get(name) in fields:
                raise BadInput(
                    f"There is no option --{name}. Did you mean --{ALIASES[name]}? "
                    f"--help lists all."
                )
    given = {each.split("=")[0].replace("_", "-") for each in options}
    for one, other in EITHER:
        if {one, other} <= given:
            raise BadInput(f"Give {one} or {other}, not both.")
    given = {} if kind is default else {"default": default}
    return tyro.cli(
        kind, args=list(options), prog=prog, description=description, **given
    )


def check(config) -> None:
    """Raises a `ValueError` for a wrong number, name, combination or path."""
    check_numbers(config)
    if getattr(config, "model", None) is not None:
        names.check_model(config.model, config.small)
    if hasattr(config, "check"):
        config.check()
    for name in ("data", "weights"):
        if getattr(config, name, None):
            check_name_of(name, Path(getattr(config, name)).expanduser().resolve())
    if getattr(config, "data", None) is not None:
        existing_folder(config.data)
    if getattr(config, "weights", None) is not None:
        check_weights(config.weights)


def check_numbers(config) -> None:
    """Raises a `ValueError` for a number out of its range."""
    for name, (low, high) in LIMITS.items():
        value = getattr(config, name, None)
        given = value if isinstance(value, tuple) else (value,)
        given = [each for each in given if each is not None]
        if not all(low <= each <= high and math.isfinite(each) for each in given):
            most = f" and at most {high}" if high < math.inf else ""
            raise ValueError(
                f"`{name}` must be at least {low}{most}. Received: {value}."
            )


def check_name_of(setting: str, path: Path) -> None:
    """Raises a `ValueError` for a file or folder that a card could not name."""
    try:
        path.name.encode("utf-8")
    except UnicodeEncodeError as error:  # of an old archive, or of another system
        raise ValueError(
            f"`{setting}`: the name {path.name!r} is not UTF-8, as what is written "
            "about the model has to be. Rename it."
        ) from error


def existing_folder(path) -> Path:
    """The folder of a data set.

    Raises:
        ValueError: There is none.
    """
    folder = Path(path).expanduser()
    if not str(path) or not folder.is_dir():
        raise ValueError(
            f"`data`: there is no folder {path} (looked in {Path.cwd()}). Give one "
            "that holds a folder of images for every class."
        )
    return folder


def check_weights(weights: str) -> None:
    """Raises a `ValueError` where weights are a path that does not exist.

    A word without a separator or an ending, such as "sam", may be the name of public
    weights; kerasvit knows these.
    """
    if weights and ("://" in weights or Path(weights).expanduser().exists()):
        return
    ending = weights.lower().endswith((".npz", ".safetensors"))
    if not weights or ending or re.search(r"[/\\~]|^\.", weights):
        on_hub = re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", weights) and not ending
        hub = f" Of the Hugging Face Hub it is hf://{weights}." if on_hub else ""
        raise ValueError(
            f"`weights`: there is no file or folder {weights} (looked in {Path.cwd()})."
            f"{hub}"
        )


def main(work: Callable):
    """Runs a part of a recipe: a mistake of the user's ends the process with a line.

    Returns:
        What `work` returns.
    """
    try:
        return work()
    except BadInput as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit(
            "\nInterrupted. The same command continues from the state that was saved "
            "last, if there is one."
        )
