"""Checks every name of the catalogue with the file at its real server.

    python -m weights.first_contact                      all names; see --budget
    python -m weights.first_contact --only 'ViT*/sam' 'MixerB16'
    python -m weights.first_contact --budget 200GB       what fits into 200 GB
    python -m weights.first_contact --images imagenet/val --real real.json

For each name the command asks the server for the file, its size, its commit and the
licence on its card; pins the file in the package's manifest; downloads it; builds the
model in a separate process; compares its outputs with timm's and with published ones;
and classifies two photographs. With --images it also measures top-1; if the published
number is disputed, with every preprocessing of disputed.toml.

The results are in OUT/results, one file per name, and OUT/table.md. Run the command
again to continue an interrupted run, or to repeat the names that failed. If the disk is
full, files that the command downloaded are deleted. At the end it writes STATUS.md. The
exit code is 1 if a name fails.
"""

import argparse
import sys
from pathlib import Path

from kerasvit.hub.manifest import MANIFEST

from . import status
from .contact import checks, pictures, table
from .contact import results as contact_results
from .contact.examine import examine
from .contact.published_logits import COCO, PUBLISHED
from .contact.results import Result
from .contact.run import Run, is_current, prepare
from .names import name_of
from .timm_reference import INSTALL


def first_contact(run: Run) -> bool:
    """Checks the names of a run, prints the table, and returns whether all passed.

    Raises:
        ValueError: An image cannot be read, or a file was damaged since `prepare`.
        OSError: A result, or the manifest, cannot be written.
    """
    megabytes = sum(entry.megabytes for entry in run.reached)
    print(f"{len(run.reached)} names, {megabytes / 1e3:.1f} GB", flush=True)
    if not checks.timm_is_installed():
        print(f"timm is not installed: {INSTALL}", file=sys.stderr)
    published = [PUBLISHED.get(name_of(entry)) for entry in run.reached]
    with_coco = any(each and each.picture == COCO for each in published)
    run.pictures = pictures.pictures(run.out, with_coco)
    results = []
    for i, entry in enumerate(run.reached, 1):
        result = contact_results.read(run.out, name_of(entry))
        if result is None or not is_current(result, entry, run):
            result = examine(entry, run)
            contact_results.write(run.out, result)
            _report(result, f"{i}/{len(run.reached)}")
            if result.failure and result.failure["kind"] == "images":
                raise ValueError(result.failure["message"])  # for all names
        results.append(result)
    beyond = [name_of(entry) for entry in run.beyond]
    path = table.write(run.out, results, beyond)
    print(f"\n{table.text(results)}\n")
    for line in table.problems(results):
        print(line)
    if beyond:
        print(f"Not reached with this budget: {', '.join(beyond)}")
    print(f"{table.summary(results, beyond)} {path}")
    if run.manifest == MANIFEST:
        if unused := status.update(run.out):
            print(f"{len(unused)} results are not in {status.PAGE}; to list them:")
            print(f"python -m weights.status --contact {run.out}")
        print(f"Commit {status.PAGE}, {status.FACTS.name} and {MANIFEST.name}.")
    return all(result.passed for result in results)


def _report(result: Result, position: str) -> None:
    words = f"FAILED: {result.failure['kind']}" if result.failure else "passed"
    seconds = f"{result.seconds:.0f} s"
    print(f"[{position}] {result.name}: {words}, {seconds}", flush=True)


def main(arguments: list[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m weights.first_contact",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="PATTERN", help="such as 'ViT*/sam'"
    )
    parser.add_argument("--out", default="contact", help="folder of the results")
    parser.add_argument("--budget", help="limit of the downloads, such as 200GB")
    parser.add_argument("--images", help="ImageNet's validation images, for top-1")
    parser.add_argument("--real", help="real.json, the ReaL labels of these images")
    parser.add_argument(
        "--manifest",
        type=Path,
        default=MANIFEST,
        help="manifest to read and to pin files in (default: the package's)",
    )
    options = parser.parse_args(arguments)
    try:
        run = prepare(**vars(options))
    except ValueError as error:
        sys.exit(f"Error: {error}")
    try:
        passed = first_contact(run)
    except (ValueError, OSError) as error:  # failures of names are recorded
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit("Stopped. Run the same command again to continue.")
    if not passed:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
