"""What an export says of itself, for the programs that show its classes."""

import json
from pathlib import Path

from exporting.formats import FORMATS

PARTS = {  # {part of export.json: what the programs read of it}
    "input": {"shape", "values"},
    "output": {"name", "label_names"},
    "preprocessing": {"size", "crop", "mode", "antialias", "kernel", "mean", "std"},
    "compared": {"runtime"},
}
AGAIN = "Write the export again: python recipes/export.py MODEL"


def described(folder: Path, setting: str) -> dict:
    """Returns the export.json of a model with classes.

    Args:
        folder: Folder of the export.
        setting: Name of the setting in messages.

    Raises:
        ValueError: It is damaged, the model's file is missing, or it has no classes.
    """
    file = folder / "export.json"
    try:
        about = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"`{setting}`: {file} is damaged: {error}. {AGAIN}") from error
    if not _is_complete(about):
        raise ValueError(
            f"`{setting}`: {file} must have the parts that export.py writes: format, "
            f"{', '.join(PARTS)}. It is another file, or damaged. {AGAIN}"
        )
    name = FORMATS[about["format"]].file
    if not (folder / name).is_file():
        raise ValueError(f"`{setting}`: {folder} has no {name}. {AGAIN}")
    found = about["output"]["name"]
    if found not in ("probabilities", "logits"):
        raise ValueError(
            f"`{setting}`: the model of {folder} returns {found}, and this program "
            "shows classes. Export a model with a head, such as a fine-tuned one."
        )
    return about


def _is_complete(about) -> bool:
    return (
        isinstance(about, dict)
        and about.get("format") in list(FORMATS)
        and all(
            isinstance(about.get(part), dict) and about[part].keys() >= names
            for part, names in PARTS.items()
        )
    )
