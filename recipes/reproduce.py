"""Reproduces the figures and tables of the papers, in miniature or at full size.

    python recipes/reproduce.py list
    python recipes/reproduce.py chen2021-table1          # minutes, data that is here
    python recipes/reproduce.py chen2021-table1 --jobs 2 --seeds 5
    python recipes/reproduce.py chen2021-table1 --full   # says how long it takes first
    python recipes/reproduce.py chen2021-table1 --help

Each writes a page: the paper's numbers beside ours, a picture, and a verdict on each
claim. Stopped, the same command goes on; experiments share their trainings. The pages
of all miniatures are in recipes/experiments/results.
"""

# ruff: noqa: E402
import os
import sys

from command import command_line
from experiments import catalogue
from experiments.settings import Settings

ONE_THREAD = {  # of each backend, and of TensorFlow, which reads the images
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def parse(arguments) -> Settings:
    """Returns the settings of a command: `command_line.parse_options`."""
    return command_line.parse_options(
        arguments, Settings, prog="reproduce.py", description=Settings.__doc__
    )


if __name__ == "__main__":  # before the imports that take seconds
    if sys.argv[1:] == ["list"]:
        sys.exit(print(catalogue.table()))
    SETTINGS = command_line.start(parse, sys.argv[1:])
    if not SETTINGS.full:
        os.environ.update({**ONE_THREAD, **os.environ})

from experiments import laboratory


def reproduce(settings: Settings) -> dict | None:
    """Trains and measures what is left, and writes the page.

    Returns:
        The content of the experiment's JSON file; None if only the time was asked for.

    Raises:
        command_line.BadInput: The input is wrong, or a training failed.
    """
    with command_line.checking_input():
        command_line.check(settings)
        experiment = catalogue.load(settings)
    return laboratory.run(experiment, settings)


if __name__ == "__main__":
    command_line.main(lambda: reproduce(SETTINGS))
