"""The catalogue of named weights, read from manifest.json."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

from kerasvit.patterns import chosen, near

from .http import name_behind

MANIFEST = Path(__file__).with_name("manifest.json")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A set of weights in the catalogue.

    Attributes:
        model: The variant they are of.
        tag: Their name, such as "sam".
        source: "user/repository" of the Hugging Face Hub, or the address of a file.
        format: Whose names the tensors have, an origin of `kerasvit.checkpoints`.
        classes: Size of the head; 0 where there is none.
        megabytes: Of the file, in 10⁶ bytes, rounded.
        license: As the source says, an SPDX identifier.
        preprocessing: Fields of `kerasvit.Preprocessing`.
        top1: {"percent", "source"}: ImageNet accuracy and who published it, or None.
        head: "zeroed" where the head in the file is known to be no classifier.
        experimental: Why they are to be measured before they are relied on, or None.
        revision: Commit of the repository that is downloaded, or None: the newest.
        size: Of the file in bytes, or None.
        sha256: Of the file, or None: the server's own is checked.
        made_from: Fields of the original's entry that differ, where the file is one
            that was converted and published by `weights/`, or None.
    """

    model: str
    tag: str
    source: str
    format: str
    classes: int
    megabytes: int
    license: str
    preprocessing: dict
    top1: dict | None = None
    head: str | None = None
    experimental: str | None = None
    revision: str | None = None
    size: int | None = None
    sha256: str | None = None
    made_from: dict | None = None

    @property
    def on_hub(self) -> bool:
        """Whether the source is a repository of the Hugging Face Hub."""
        return "://" not in self.source

    @property
    def filename(self) -> str:
        """Name of the file with the tensors."""
        return "model.safetensors" if self.on_hub else name_behind(self.source)


class Weights(list[Entry]):
    """A list of `Entry`, shown as a table."""

    empty = "No published weights."

    def __getitem__(self, key: Any) -> Any:
        entry = super().__getitem__(key)
        return Weights(entry) if isinstance(key, slice) else entry

    def __repr__(self) -> str:
        if not self:
            return self.empty
        head = ("model", "tag", "MB", "pixels", "classes", "top-1 %", "licence", "from")
        rows = [head, *map(_row, self)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        measured = [entry.top1 for entry in self if entry.top1]
        if measured:
            lines.append("Top-1 on ImageNet, measured by timm unless said here.")
        notes = {
            f"{top1['percent']:.2f}: {top1['source']}"
            for top1 in measured
            if not top1["source"].startswith("measured by timm")
        }
        return "\n".join([*lines, *sorted(notes)])


def _row(entry: Entry) -> tuple[str, ...]:
    return (
        entry.model,
        entry.tag + (" (experimental)" if entry.experimental else ""),
        str(entry.megabytes),
        str(entry.preprocessing["size"]),
        f"{entry.classes or 'none'}{' zeroed' if entry.head else ''}",
        f"{entry.top1['percent']:.2f}" if entry.top1 else "",
        entry.license,
        entry.source,
    )


@functools.cache
def _manifest() -> dict:
    return json.loads(MANIFEST.read_text(encoding="utf-8"))


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Returns all entries of the catalogue."""
    return tuple(Entry(**entry) for entry in _manifest()["weights"])


def published(model: str | None) -> dict[str, Entry]:
    """Returns the weights of a variant by tag."""
    return {entry.tag: entry for entry in entries() if entry.model == model}


def list_weights(pattern: str = "*") -> Weights:
    """Lists public weights by name; the list prints as a table.

    Args:
        pattern: Name of a variant; or a part of names, "mixer", or a shell pattern of
            whole ones, "vit?16*"; whatever the case.

    Returns:
        List of `Entry`; empty, and saying so, where nothing is published.

    Raises:
        ValueError: The pattern is no text.
    """
    models = sorted({entry.model for entry in entries()})
    wanted = chosen(models, pattern)
    # The name of a variant is not also a part of others: R50ViTB16 is no ViTB16.
    wanted = [name for name in wanted if name.lower() == pattern.lower()] or wanted
    weights = Weights(entry for entry in entries() if entry.model in wanted)
    if not weights:
        close = " or ".join(near(models, pattern))
        hint = f"Did you mean {close}? " if close else ""
        weights.empty = (
            f"There are no public weights of {pattern}. {hint}There are of "
            f"{', '.join(models)}. The others of kerasvit.list_models() can be "
            "trained: python recipes/pretrain.py --help."
        )
    return weights


def recipe(model: str) -> str:
    """Returns the command that trains a variant from scratch."""
    recipes = _manifest()["recipes"]  # by a part of the variant's name
    options = next(recipes[part] for part in recipes if part in model)
    return f"python recipes/pretrain.py {options.format(model)}"


def call_of(repository: str) -> str | None:
    """Returns the call for weights with this name on the Hub, or None."""
    for entry in entries():
        if entry.on_hub and entry.source.split("/")[-1] == repository:
            return f'kerasvit.{entry.model}("{entry.tag}")'
    return None


def explain_tag(model: str, tag: str) -> str:
    """Explains that a variant has no weights of that name."""
    tags = published(model)
    if not tags:
        return (
            f"{model} has no public weights. Train it: {recipe(model)}. Or give the "
            "path of a .safetensors or .npz file, or of a folder."
        )
    close = near(tags, tag)
    meant = call_of(tag) or (repr(close[0]) if close else "")
    meant = f" Did you mean {meant}?" if meant else ""
    names = ", ".join(f'"{name}"' for name in tags)
    return (
        f"{model} has no weights {tag!r}.{meant} Published: {names}. A path to a "
        ".safetensors or .npz file, or to a folder, works too."
    )
