"""Parses and checks a command before the slow imports: Keras, TensorFlow, kerasvit.

    config = command_line.read(sys.argv[1:], PRESETS, "finetune.py")

This module imports none of them, so that a wrong option gives an error in a second.
"""

import contextlib
import dataclasses
import difflib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import device_request
import limits
import method_settings
import names
import paths
import reachable
import startup
import tyro

# Names of these options in other programs. tyro suggests options with a similar
# spelling (--epoch, --modle), but does not find these.
ALIASES = {
    "lr": "learning-rate",
    "lr-rate": "learning-rate",
    "bs": "batch-size",
    "wd": "weight-decay",
    "decay": "weight-decay",
    "opt": "optimizer",
    "beta": "momentum",
    "sched": "schedule",
    "lr-scheduler": "schedule",
    "decay-milestones": "decay-at",
    "milestones": "decay-at",
    "decay-epochs": "decay-at",
    "decay-rate": "decay-factor",
    "gamma": "decay-factor",
    "warmup": "warmup-steps",
    "warmup-epochs": "warmup-steps",
    "warmup-lr": "warmup-from",
    "min-lr": "final-rate",
    "clip-grad": "clip",
    "global-clipnorm": "clip",
    "max-grad-norm": "clip",
    "aug": "augment",
    "aa": "rand-augment",
    "randaugment": "rand-augment",
    "mixup-alpha": "mixup",
    "cutmix-alpha": "cutmix",
    "reprob": "erasing",
    "random-erasing": "erasing",
    "aug-repeats": "repeats",
    "repeated-aug": "repeats",
    "smoothing": "label-smoothing",
    "arch": "model",
    "checkpoint": "weights",
    "ckpt": "weights",
    "pretrained": "weights",
    "folder": "data",
    "validation-split": "validation-share",
    "val-split": "validation-share",
    "output": "out",
    "save-dir": "out",
    "resolution": "image-size",
    "precision": "dtype",
    "accum": "accumulate",
    "accum-steps": "accumulate",
    "gradient-accumulation-steps": "accumulate",
    "gradient-checkpointing": "remat",
    "grad-checkpointing": "remat",
    "gpus": "devices",
    "num-gpus": "devices",
    "n-gpus": "devices",
    "drop-path": "stochastic-depth",
    "licence": "license",
    "rank": "lora",
    "lora-r": "lora",
    "lora-rank": "lora",
    "target-modules": "lora-layers",
    "linear-probe": "probe-epochs",
    "head-epochs": "probe-epochs",
    "finetune-size": "then-size",
}
EXCLUSIVE = (
    ("--steps", "--epochs"),
    ("--then-steps", "--then-epochs"),
    ("--data", "--dataset"),
)
# {setting: option without which it changes nothing}; any value where it is a CAPITAL
NEEDED = {
    "resize": "--augment resize_crop",
    "teacher_input": "--teacher MODEL",
    "distill": "--teacher MODEL",
    "alpha": "--teacher MODEL",
    "tau": "--distill soft",
    "decay_at": "--schedule steps",
    "decay_factor": "--schedule steps",
    "lora_layers": "--lora RANK",
    "train_norms": "--lora RANK",
    "keep_adapters": "--lora RANK",
    "probe_epochs": "--weights FILE",
    "rule": "--weights FILE",
    "probe_learning_rate": "--probe-epochs N",
    "then_steps": "--then-size PIXELS",
    "then_epochs": "--then-size PIXELS",
    "then_learning_rate": "--then-size PIXELS",
}


class BadInput(ValueError):
    """Error in the user's input."""


@contextlib.contextmanager
def checking_input() -> Iterator[None]:
    """Raises a `ValueError` of its block as a `BadInput`."""
    try:
        yield
    except ValueError as error:
        raise BadInput(str(error)) from error


def read(arguments: Sequence[str], presets: dict, script: str):
    """Returns the checked configuration of a command, and imports TensorFlow.

    A wrong command ends the process with one line: an unknown option, preset or
    backend, a number out of range, a path that does not exist, or a dataset that needs
    a download while no server answers. The fastest checks run first.

    Args:
        arguments, presets, script: As for `parse`.
    """
    config = main(lambda: checked(parse(arguments, presets, script)))
    startup.import_quietly("tensorflow")
    return config


def checked(config):
    """Checks everything that needs no slow import, and returns the configuration.

    Raises:
        BadInput: A setting, the backend, a path or the name of a dataset is wrong.
    """
    with checking_input():
        check(config)
        startup.check_backend()
        startup.check_reader()
        if hasattr(config, "devices"):
            device_request.check(config.devices, startup.backend())
        if not config.data:
            names.check_dataset(config.dataset)
            reachable.check(config.dataset)
    return config


def parse(arguments: Sequence[str], presets: dict, script: str):
    """Returns the configuration of a preset, changed by the options.

    Args:
        arguments: Arguments of the command line: an optional preset, then options.
        presets: {name: configuration}. Without a preset, the first one, the demo, is
            used if no option selects other images; else the defaults of the class.
        script: Name of the program for messages.

    Raises:
        BadInput: The preset does not exist, or an option is an alias in another
            program.
        SystemExit: tyro printed an error or the help.
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
    """Parses options with tyro, after checks for aliases and exclusive options.

    Args:
        options: Arguments of the command line.
        default: Dataclass instance with the defaults, or the class if a setting has no
            default.
        prog: Name of the program for messages.
        description: First lines of the help.

    Raises:
        BadInput: An option is an alias in another program, or two options exclude each
            other.
        SystemExit: tyro printed an error or the help.
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
    for one, other in EXCLUSIVE:
        if {one, other} <= given:
            raise BadInput(f"Give {one} or {other}, not both.")
    defaults = {} if kind is default else {"default": default}
    return tyro.cli(
        kind, args=list(options), prog=prog, description=description, **defaults
    )


def check(config) -> None:
    """Raises a `ValueError` for a wrong number, name, combination or path."""
    limits.check(config)
    if getattr(config, "model", None) is not None:
        names.check_model(config.model, config.small)
    if getattr(config, "accumulate", 1) > 1:
        check_perturbation(config)
    check_needed(config)
    if hasattr(config, "method"):
        method_settings.check(config)
    for name in ("no_decay", "lora_layers"):
        if getattr(config, name, None) is not None:
            check_expression(name, getattr(config, name))
    if hasattr(config, "check"):
        config.check()
    for name in ("data", "weights", "teacher"):
        if getattr(config, name, None):
            paths.check_name_of(
                name, Path(getattr(config, name)).expanduser().resolve()
            )
    if getattr(config, "data", None) is not None:
        paths.existing_data(config.data)
    if getattr(config, "weights", None) is not None:
        paths.check_weights(config.weights)
    if getattr(config, "teacher", None) is not None:
        paths.check_teacher(config.teacher)


def check_needed(config) -> None:
    """Raises a `ValueError` for a setting that changes nothing without another one."""
    defaults = default_settings(config)
    for name in [name for name in NEEDED if name in defaults]:
        if getattr(config, name) != defaults[name] and not has_effect(config, name):
            option = name.replace("_", "-")
            raise ValueError(f"`{name}`: give {NEEDED[name]} with --{option}.")


def has_effect(config, name: str) -> bool:
    """Returns whether the option is given without which a setting changes nothing."""
    if name not in NEEDED:
        return True
    option, value = NEEDED[name].removeprefix("--").split()
    other = option.replace("-", "_")
    given = getattr(config, other)
    if value.islower():  # in upper case: any but the default
        return given == value
    return given != default_settings(config)[other]


def default_settings(config) -> dict:
    """Returns {setting: default} of the dataclass of a configuration."""
    return {field.name: field.default for field in dataclasses.fields(config)}


def check_expression(setting: str, pattern: str) -> None:
    """Raises a `ValueError` for a regular expression that Python cannot read."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"`{setting}` must be a regular expression, such as 'bias$|/norm'. "
            f"Received: {pattern!r}, {error}."
        ) from error


def check_perturbation(config) -> None:
    """Raises a `ValueError` if the parts of a batch cannot be perturbed as asked."""
    if config.rho != 0 and config.perturbation == "global":
        raise ValueError(
            "`accumulate`: the parts of a batch are perturbed one after the other, and "
            "--perturbation global needs the gradient of the whole batch first. Give "
            "--perturbation local, or --remat instead of --accumulate."
        )


def main(work: Callable):
    """Calls a function; ends the process with one line if the user's input is wrong.

    Returns:
        The result of `work`.
    """
    try:
        return work()
    except BadInput as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit(
            "\nInterrupted. The same command continues from the last saved state, if "
            "there is one."
        )
