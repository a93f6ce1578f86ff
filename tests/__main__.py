"""Runs the test suite on every installed backend, one process each.

Further arguments go to pytest: `python -m tests -k vit`. The 15 slowest tests of each
backend are listed. The last line is `N passed, N failed`, over all backends.
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).parents[1]
BACKENDS = ("tensorflow", "jax", "torch")
NO_TESTS = 5  # pytest's exit code where none was selected


def run(backend, arguments, alike_on, packages=""):
    """Counts {"passed", "failed", "skipped"} of the suite on a backend.

    `alike_on` is the backend that runs the tests that are alike on all; `packages` a
    folder of packages that go before those that are installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        workers = str(min(os.cpu_count() or 1, 4))
        command = [sys.executable, "-m", "pytest", "-q", "-n", workers]
        command.append("--durations=15")
        command.append(f"--junitxml={report}")
        environment = {
            # JAX takes most of its time to compile thousands of small functions:
            # it is done without optimisation, and once for all workers.
            "XLA_FLAGS": xla_flags(),
            "JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            # One thread for each worker: threads of several would wait for each other.
            "OMP_NUM_THREADS": "1",
            "TF_NUM_INTRAOP_THREADS": "1",
            **os.environ,
            "PYTHONUTF8": "1",  # of texts of tests, on Windows
            "KERAS_BACKEND": backend,
            "PYTHONPATH": os.pathsep.join(
                filter(None, (packages, os.environ.get("PYTHONPATH")))
            ),
            "KERASVIT_TESTS_ALIKE_ON": alike_on,
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        code = subprocess.run(
            [*command, *arguments], env=environment, cwd=ROOT
        ).returncode
        if not report.is_file():
            return {"passed": 0, "failed": 1, "skipped": 0}
        suite = ElementTree.parse(report).getroot().find("testsuite")
    total, skipped = (int(suite.get(key)) for key in ("tests", "skipped"))
    failed = int(suite.get("failures")) + int(suite.get("errors"))
    if code not in (0, NO_TESTS) and not failed:
        failed = 1  # a crash or an interrupt
    return {"passed": total - failed - skipped, "failed": failed, "skipped": skipped}


def xla_flags():
    """Flags with which JAX compiles fast; an unknown one would end the process."""
    flags = "--xla_backend_optimization_level=0"
    flags += " --xla_cpu_parallel_codegen_split_count=1"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        version = importlib.metadata.version("jaxlib").split(".")
        if (int(version[0]), int(version[1])) < (0, 11):  # 0.12 does not know it
            flags += " --xla_cpu_use_fusion_emitters=false"
    return flags


def read_arguments():
    """(backends to run, arguments of pytest, other options) of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--backend", choices=BACKENDS, help="run this one only")
    subset = parser.add_mutually_exclusive_group()
    subset.add_argument(
        "--quick",
        action="store_true",
        help="the tests that are not marked `slow`, whatever -m says, in less than two "
        "minutes on one backend: that of KERAS_BACKEND, or the last that is installed",
    )
    subset.add_argument(
        "--long",
        action="store_true",
        help="the tests that are marked `long`, which take minutes, and no others",
    )
    parser.add_argument(
        "--next-keras",
        action="store_true",
        help="tests/backend and tests/training with the newest preview of Keras, which "
        "is downloaded into a temporary folder",
    )
    options, arguments = parser.parse_known_args()
    if None in map(importlib.util.find_spec, ("pytest", "xdist")):
        sys.exit("pytest is not installed. Type: pip install -e '.[recipes,test]'")
    backends = [name for name in BACKENDS if importlib.util.find_spec(name)]
    if not backends:
        sys.exit("No backend is installed: pip install -e '.[jax]', or another.")
    if options.quick:
        backends = [os.environ.get("KERAS_BACKEND", backends[-1])]
        arguments += ["-m", "not slow and not long"]
    if options.long:
        arguments += ["-m", "long"]
    if options.next_keras:
        arguments += ["tests/backend", "tests/training"]
    backends = [options.backend] if options.backend else backends
    return backends, arguments, options


def install_next_keras(folder):
    """Installs the newest preview of Keras, without what it depends on."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--pre"]
    subprocess.run([*pip, "--target", folder, "keras-nightly"], check=True)
    print(*(path.stem for path in Path(folder).glob("keras_nightly-*.dist-info")))


def main():
    """Runs the suite; the number of failures decides the exit code."""
    backends, arguments, options = read_arguments()
    if not options.next_keras:
        return run_all(backends, arguments, options.long)
    with tempfile.TemporaryDirectory() as folder:
        install_next_keras(folder)
        return run_all(backends, arguments, options.long, packages=folder)


def run_all(backends, arguments, may_be_none, packages=""):
    """Runs the suite on backends, and prints the sums; returns the exit code."""
    sums = dict.fromkeys(("passed", "failed", "skipped"), 0)
    lines = []
    for backend in backends:
        print(f"\n== {backend} ==", flush=True)
        start = time.monotonic()
        counts = run(backend, arguments, backends[-1], packages)
        minutes = (time.monotonic() - start) / 60
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in counts.items())
        lines.append(f"{backend}: {outcomes} in {minutes:.1f} minutes")
        sums = {key: sums[key] + counts[key] for key in sums}
    if not any(sums.values()) and not may_be_none:
        sums["failed"] = 1  # such as a misspelled -k
    print("\n" + "\n".join(lines))
    skipped = f", {sums['skipped']} skipped" if sums["skipped"] else ""
    print(f"{sums['passed']} passed, {sums['failed']} failed{skipped}")
    return 1 if sums["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
