"""Parses and checks a command before the slow imports: Keras, TensorFlow, kerasvit.

    config = command_line.read(sys.argv[1:], PRESETS, "finetune.py")

This module imports none of them, so that a wrong option gives an error in a second.
"""

# ruff: noqa: E402
import contextlib
import dataclasses
import difflib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from command import startup

startup.check_packages()  # before the first of them, tyro

from command import device_request, limits, names, paths
from command.options import (
    ALIASES,
    EXCLUSIVE,
    LENGTHS,
    check_expression,
    check_needed,
    parse_groups,
)


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
    """Returns the checked configuration of a command.

    A wrong command ends the process with one line: an unknown option, preset or
    backend, a number out of range, a path that does not exist, or a dataset that needs
    a download while no server answers. The fastest checks run first.

    Args:
        arguments, presets, script: As for `parse`.
    """
    return start(functools.partial(parse, presets=presets, script=script), arguments)


def start(parser: Callable, arguments: Sequence[str]):
    """Returns the checked configuration of a command.

    Args:
        parser: Function of the arguments that returns the configuration.
        arguments: Arguments of the command line.
    """
    return main(lambda: checked(parser(arguments)))


def checked(config):
    """Checks everything that needs no slow import, and returns the configuration.

    Raises:
        BadInput: A setting, the backend, a path or the name of a dataset is wrong.
    """
    with checking_input():
        check(config)
        startup.check_backend()
        if hasattr(config, "devices"):
            device_request.check(config.devices, startup.backend())
        if not getattr(config, "data", True) and config.dataset is not None:
            names.check_dataset(config.dataset)
            names.check_reachable(config.dataset)
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
    config = parse_groups(
        kind,
        None if kind is default else default,
        args=list(options),
        prog=prog,
        description=description,
    )
    replaced = {  # such as the epochs of a preset, if steps are given
        other.removeprefix("--").replace("-", "_"): None
        for pair in LENGTHS
        for one, other in (pair, pair[::-1])
        if one in given and other.removeprefix("--") in fields
    }
    return dataclasses.replace(config, **replaced)


def check(config) -> None:
    """Raises a `ValueError` for a wrong number, name, combination or path."""
    limits.check(config)
    if getattr(config, "model", None) is not None:
        names.check_model(config.model, config.small)
    check_needed(config)
    for name in ("no_decay", "lora_layers", "freeze"):
        if getattr(config, name, None) is not None:
            check_expression(name, getattr(config, name))
    if hasattr(config, "check"):
        config.check()
    for name in ("data", "weights", "teacher"):
        if getattr(config, name, None):
            paths.check_name_of(
                name, Path(os.path.expanduser(getattr(config, name))).resolve()
            )
    if getattr(config, "data", None) is not None:
        data = paths.existing_data(config.data)
        if data.is_file() and data.suffix.lower() == ".csv":
            paths.check_header(data, getattr(config, "task", "single_label"))
    if getattr(config, "weights", None) is not None:
        paths.check_weights(config.weights)
    elif getattr(config, "state", None) is not None and hasattr(config, "weights"):
        raise ValueError("`state` chooses a model in a file: give --weights, too.")
    if getattr(config, "teacher", None) is not None:
        paths.check_teacher(config.teacher)


def main(work: Callable):
    """Calls a function; ends the process with one line if the user's input is wrong.

    Returns:
        The result of `work`.
    """
    try:
        try:
            return work()
        finally:
            sys.stdout.flush()  # what --help has printed
    except BrokenPipeError:  # the reader has ended, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except BadInput as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit(
            "\nInterrupted. The same command continues from the last saved state, if "
            "there is one."
        )
