"""Runs a study: `python -m recipes.benchmarks.study [claim|optimizers]`."""

import importlib
import os
import sys

from command import command_line

from . import settings

MODULES = {
    settings.Study: "small",
    settings.Claim: "claim",
    settings.Optimizers: "optimizers",
}
ONE_THREAD = {  # of each backend, and of TensorFlow, which reads the images
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def main() -> None:
    """Parses and checks the command, and only then imports what takes seconds."""
    study = command_line.main(lambda: settings.read(sys.argv[1:]))
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)
    module = importlib.import_module(f"{__package__}.{MODULES[type(study)]}")
    command_line.main(lambda: module.run(study))


if __name__ == "__main__":
    main()
