"""Runs `python -m tests.golden DIR`: all cases of a folder on the current backend."""

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("directory", help="holds a manifest.json and its files")
    arguments = parser.parse_args()
    import keras

    from .result import Result
    from .runner import check_case, read_manifest

    counts = {"passed": 0, "failed": 0, "skipped": 0}
    print(f"keras {keras.__version__} on {keras.backend.backend()}")
    for name, case in read_manifest(arguments.directory).items():
        try:
            outcomes = list(check_case(arguments.directory, name, case))
        except Exception as error:
            outcomes = [(name, error)]
        for label, outcome in outcomes:
            if isinstance(outcome, str):
                verdict = "skipped"
            else:
                fine = isinstance(outcome, Result) and outcome.wrong is None
                verdict = "passed" if fine else "failed"
            counts[verdict] += 1
            print(f"{verdict:8}{label}: {outcome}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
