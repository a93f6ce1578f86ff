"""Measures disputed accuracies with every preprocessing that may explain them.

`python -m weights.first_contact --images` does this for the names it checks. Alone:

    python -m weights.disputed --images imagenet/val --out contact

disputed.toml lists the names, the published numbers and the preprocessing to measure.
The files must be pinned. OUT/disputed.json is written after each measurement, so that a
stopped run can be continued. Next: python -m weights.status --contact contact
"""

import argparse
import datetime
import functools
import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import keras

from kerasvit.checkpoints import CheckpointError, read_json, replace_file
from kerasvit.version import __version__

from .convert import find_entry
from .labelled_images import digest_of, list_images, top1
from .originals import original, original_file

LIST = Path(__file__).with_name("disputed.toml")
MEASURED = "disputed.json"
FORMAT_VERSION = 1
# Of a measurement.
FIELDS = {"percent", "images", "classes", "digest", "preprocessing", "date", "kerasvit"}


@functools.cache
def disputed() -> dict[str, dict[str, Any]]:
    """Returns {"MODEL/TAG": table of disputed.toml}."""
    tables = tomllib.loads(LIST.read_text(encoding="utf-8"))["disputed"]
    return {table["name"]: table for table in tables}


def measure(
    name: str,
    model: keras.Model,
    sha256: str | None,
    photos: str | Path,
    out: str | Path,
) -> None:
    """Measures top-1 with each preprocessing of a name that is not yet measured.

    Args:
        name: "MODEL/TAG" of disputed.toml.
        model: `ImageModel` with the weights and the preprocessing of the catalogue.
        sha256: SHA-256 of the file of the weights.
        photos: Folder of labelled images, one folder per class.
        out: Folder of `MEASURED`, which is written after each measurement.

    Raises:
        ImageError, ValueError: As for `top1`, or `MEASURED` is damaged.
    """
    out = Path(out)
    measured = read_measured(out)
    mine = measured.get(name, {})
    mine = mine if mine.get("sha256") == sha256 else {"sha256": sha256, "top1": {}}
    fields = model.record["preprocessing"]
    images = list_images(model.record, photos)
    digest = digest_of([path for path, _ in images], photos)
    try:
        for label, changes in disputed()[name]["preprocessing"].items():
            if _is_known(mine["top1"].get(label), digest, changes):
                continue
            model.record["preprocessing"] = {**fields, **changes}
            correct, count = top1(model, photos)
            mine["top1"][label] = {
                "percent": 100 * correct / count,
                "images": count,
                "classes": len({index for _, index in images}),
                "digest": digest,
                "preprocessing": changes,
                "date": str(datetime.date.today()),
                "kerasvit": __version__,
            }
            measured[name] = mine
            content = {"format_version": FORMAT_VERSION, "measured": measured}
            out.mkdir(parents=True, exist_ok=True)
            text = json.dumps(content, indent=1) + "\n"
            replace_file(out / MEASURED, text.encode())
    finally:
        model.record["preprocessing"] = fields


def is_measured(
    name: str, sha256: str | None, folder: Path, digest: str | None
) -> bool:
    """Returns whether nothing is left to measure for a name.

    Args:
        name: "MODEL/TAG".
        sha256: SHA-256 of the file of the weights.
        folder: Folder of `MEASURED`.
        digest: `digest_of` the images.
    """
    if name not in disputed():
        return True
    mine = read_measured(folder).get(name, {"sha256": None, "top1": {}})
    return mine["sha256"] == sha256 and all(
        _is_known(mine["top1"].get(label), digest, changes)
        for label, changes in disputed()[name]["preprocessing"].items()
    )


def _is_known(measured: dict | None, digest: str | None, changes: dict) -> bool:
    """Returns whether a measurement is of these images and this preprocessing."""
    return measured is not None and (
        (measured["digest"], measured["preprocessing"]) == (digest, changes)
    )


def read_measured(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns {name: {"sha256", "top1": {label: measurement}}} of a folder.

    Raises:
        CheckpointError: The file is damaged or of another format.
    """
    path = folder / MEASURED
    content = read_json(path)
    if not content:
        return {}
    measured = content.get("measured")
    if content.get("format_version") != FORMAT_VERSION or not (
        isinstance(measured, dict) and all(map(_is_correct, measured.values()))
    ):
        raise CheckpointError(
            f"{path} is damaged, or of another version of kerasvit. Remove it, and run "
            "python -m weights.disputed again."
        )
    return measured


def _is_correct(values: Any) -> bool:
    return (
        isinstance(values, dict)
        and isinstance(values.get("sha256"), str)
        and isinstance(values.get("top1"), dict)
        and all(
            isinstance(each, dict) and each.keys() == FIELDS
            for each in values["top1"].values()
        )
    )


def main(arguments: list[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m weights.disputed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--images", required=True, help="folder of class folders")
    parser.add_argument("--out", default="contact", help="folder to write (contact)")
    options = parser.parse_args(arguments)
    try:
        for name in disputed():
            entry = find_entry(name)
            if not entry.sha256:
                raise ValueError(
                    f"{name} is not pinned. Run: python -m weights.lock --pin {name}"
                )
            path, file = original_file(entry)
            model = original(entry, path, file.sha256)
            out = Path(os.path.expanduser(options.out))
            measure(name, model, file.sha256, options.images, out)
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    print(Path(options.out) / MEASURED)


if __name__ == "__main__":
    main(sys.argv[1:])
