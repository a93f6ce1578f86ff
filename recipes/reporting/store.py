"""Numbers of measures in a folder, so that a stopped report goes on."""

import hashlib
import json
import math
import re
from pathlib import Path

from training.run_folder import write_json

from .subjects import Subject

PROTOCOL = 2  # changed with the meaning of the numbers: others are measured again
DIGITS = 6  # of stored numbers, significant ones


class Store:
    """Results of measures, a file for each.

    Args:
        folder: Path of the folder.

    Raises:
        ValueError: The folder cannot be written.
    """

    def __init__(self, folder: str):
        self.folder = Path(folder).expanduser()
        try:
            (self.folder / "measured").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"`out`: {folder} cannot be used: {error}.") from error

    def find(self, measure: str, subjects: list[Subject], key: str) -> dict | None:
        """Returns what was stored of a measure with the same key."""
        path = self._path(measure, subjects)
        if not path.is_file():
            return None
        stored = json.loads(path.read_text(encoding="utf-8"))
        return stored if stored.pop("key") == key else None

    def add(self, measure: str, subjects: list[Subject], key: str, **content) -> dict:
        """Stores the numbers of a measure, and returns them as they are stored."""
        content = _plain(content)
        write_json(self._path(measure, subjects), {"key": key, **content})
        return content

    def unfinished(self, measure: str, subjects: list[Subject], key: str) -> Path:
        """Returns the path of a file for what is done of a measure."""
        sizes = [each.batch_size for each in subjects]
        digest = hashlib.sha256(f"{key} {sizes}".encode()).hexdigest()
        return self._path(measure, subjects).with_suffix(f".{digest[:16]}.npz")

    def _path(self, measure, subjects):
        name = " ".join([measure, *(each.name for each in subjects)])
        return self.folder / "measured" / (re.sub(r"[^\w.-]+", "_", name) + ".json")


def key_of(measure: str, subjects: list[Subject], others: dict) -> str:
    """Returns a digest of what the numbers of a measure depend on.

    Args:
        measure: Name of the measure.
        subjects: The models, with the images and the seed.
        others: What else they depend on.
    """
    parts = [measure, PROTOCOL]
    parts += [(each.weights, each.images, each.seed) for each in subjects]
    parts += [others] if others else []
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _plain(content):
    """Returns the same with floats of `DIGITS` digits; JSON has no infinity."""
    if isinstance(content, dict):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_plain(value) for value in content]
    if isinstance(content, float):
        return float(f"{content:.{DIGITS}g}") if math.isfinite(content) else None
    return content
