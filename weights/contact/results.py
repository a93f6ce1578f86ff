"""Records of `weights.first_contact`: one JSON file per name of the catalogue.

`OUT/results/MODEL-TAG.json` contains what was found out about kerasvit.MODEL("TAG") at
the server of its file. The files are written atomically, and other commands read them.
"""

import dataclasses
import datetime
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kerasvit.checkpoints import CheckpointError, read_json, replace_file
from kerasvit.version import __version__

FORMAT_VERSION = 1
FOLDER = "results"
TOP1 = {"percent", "images", "classes", "digest", "labels", "published"}
TOP1 |= {"real_percent", "passed"}
# What is wrong if a name fails.
KINDS = ("name", "server", "licence", "format", "numbers", "images", "space")


@dataclass(frozen=True)
class Result:
    """What was found out about one name of the catalogue.

    Attributes:
        name: "MODEL/TAG".
        server: Address of the Hub, or of the server of the file, such as
            "https://storage.googleapis.com".
        entry: Fields of the catalogue's entry, without the pins.
        failure: None, or {"kind": one of `KINDS`, "message": one line}.
        pins: {"revision", "size", "sha256"} of the file, or None if it was not found;
            the revision is None for a file that is not on the Hub.
        licence: {"catalogue", "server"}: SPDX identifiers in the catalogue and in the
            model card; the second is None for a file without a card.
        loaded: Whether the model was built, all tensors of the file were used, and the
            head is as the catalogue states.
        comparisons: Comparisons of outputs, each {"reference": text, "error": float or
            None, "allowed": float, "note": None or "not compared: REASON"}.
        photographs: {photograph: five pairs [class name, probability]}; empty for
            models without the 1,000 ImageNet classes.
        top1: Accuracy on ImageNet's validation images, or None: {"percent", "images",
            "classes", "digest", "labels", "published", "real_percent", "passed"}.
            "classes" is the number of classes that have images, "digest" is from
            `digest_of`, "labels" is the SHA-256 of the ReaL labels. "labels",
            "published" and "real_percent" are None if they are not known.
        seconds: Duration of download and checks.
        date: Such as "2026-01-31".
        kerasvit: Version of the package.
        backend: Keras backend.
    """

    name: str
    server: str
    entry: dict = field(default_factory=dict)
    failure: dict | None = None
    pins: dict | None = None
    licence: dict = field(default_factory=dict)
    loaded: bool = False
    comparisons: list = field(default_factory=list)
    photographs: dict = field(default_factory=dict)
    top1: dict | None = None
    seconds: float = 0.0
    date: str = field(default_factory=lambda: str(datetime.date.today()))
    kerasvit: str = __version__
    backend: str = ""

    @property
    def differing(self) -> list[dict]:
        """The comparisons with an error above the limit; NaN and infinity are above."""
        return differing(self.comparisons)

    @property
    def passed(self) -> bool:
        """Whether the name was loaded and no comparison differs."""
        top1_passed = self.top1 is None or self.top1["passed"]
        complete = self.failure is None and self.loaded
        return complete and not self.differing and top1_passed


def differing(comparisons: list[dict]) -> list[dict]:
    """Returns the comparisons with an error above the limit, or that is not finite."""
    return [
        each for each in comparisons if each["note"] is None and not is_within(each)
    ]


def is_within(comparison: dict) -> bool:
    """Returns whether the error of a comparison is within its limit."""
    error = comparison["error"]
    return error is not None and error <= comparison["allowed"]


def path_of(folder: Path, name: str) -> Path:
    """Returns the path of the file for a name "MODEL/TAG"."""
    return Path(folder) / FOLDER / f"{name.replace('/', '-')}.json"


def write(folder: Path, result: Result) -> Path:
    """Writes the file of a result atomically, and returns its path.

    Args:
        folder: The command's `--out`; `FOLDER` in it is created.
        result: Result to write. Errors that are not finite are written as null, which
            is read as "above the limit".
    """
    content = dataclasses.asdict(result)
    for each in content["comparisons"]:
        if each["error"] is not None and not math.isfinite(each["error"]):
            each["error"] = None
    content = {"format_version": FORMAT_VERSION, "passed": result.passed, **content}
    path = path_of(folder, result.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    replace_file(path, f"{text}\n".encode())
    return path


def read(folder: Path, name: str) -> Result | None:
    """Returns the result for a name "MODEL/TAG"; None if there is none.

    Raises:
        ValueError: The file is damaged or of a newer format; the message names it.
    """
    path = path_of(folder, name)
    return _read(path) if path.exists() else None


def read_all(folder: Path) -> dict[str, Result]:
    """Returns {"MODEL/TAG": result} of all files in the folder, sorted by name.

    Raises:
        ValueError: A file is damaged or of a newer format; the message names it.
    """
    found = [_read(path) for path in sorted((Path(folder) / FOLDER).glob("*.json"))]
    return {result.name: result for result in sorted(found, key=lambda r: r.name)}


def _read(path: Path) -> Result:
    damaged = CheckpointError(
        f"{path} is damaged, or was not written by weights.first_contact. Remove it, "
        "and run the command again."
    )
    try:
        content = read_json(path)
    except CheckpointError as error:
        raise damaged from error
    version = content.pop("format_version", None)
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format_version {version}, and this kerasvit reads up to "
            f"{FORMAT_VERSION}: update kerasvit."
        )
    passed = content.pop("passed", None)
    try:
        result = Result(**content)
        correct = _is_correct(result) and result.passed == passed
    except (LookupError, TypeError) as error:
        raise damaged from error
    if not correct or version != FORMAT_VERSION or path.name != _file_name(result):
        raise damaged
    return result


def _file_name(result: Result) -> str:
    return path_of(Path(), result.name).name


def _is_correct(result: Result) -> bool:
    """Returns whether the fields have their types and keys.

    Raises:
        LookupError, TypeError: A part of a field is missing or of another type.
    """
    kinds: dict[type | tuple, list[Any]] = {
        str: [result.name, result.server, result.date, result.kerasvit, result.backend],
        bool: [result.loaded],
        (int, float): [result.seconds],
        dict: [result.entry, result.licence, result.photographs],
        list: [result.comparisons, *result.photographs.values()],
        (dict, type(None)): [result.failure, result.pins, result.top1],
    }
    typed = all(
        isinstance(value, kind) for kind, values in kinds.items() for value in values
    )
    keys = [
        (result.failure, {"kind", "message"}),
        (result.pins, {"revision", "size", "sha256"}),
        (result.licence or None, {"catalogue", "server"}),
        (result.top1, TOP1),
        *(
            (each, {"reference", "error", "allowed", "note"})
            for each in result.comparisons
        ),
    ]
    named = all(part is None or part.keys() == expected for part, expected in keys)
    pairs = [pair for classes in result.photographs.values() for pair in classes]
    shown = all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
    kind = result.failure["kind"] if result.failure else None
    return typed and named and shown and kind in (None, *KINDS)
