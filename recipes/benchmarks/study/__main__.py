"""Runs a study: `python -m recipes.benchmarks.study [claim|optimizers]`."""

import importlib
import sys

from command import command_line

from . import settings

MODULES = {
    settings.Study: "small",
    settings.Claim: "claim",
    settings.Optimizers: "optimizers",
}


def main() -> None:
    """Parses and checks the command, and only then imports what takes seconds."""
    study = command_line.main(lambda: settings.read(sys.argv[1:]))
    module = importlib.import_module(f"{__package__}.{MODULES[type(study)]}")
    command_line.main(lambda: module.report(study, module.run(study)))


if __name__ == "__main__":
    main()
