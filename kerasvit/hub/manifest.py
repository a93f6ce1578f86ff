"""The catalogue of named weights, read from manifest.json."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any, SupportsIndex, overload

from kerasvit.patterns import chosen, near

from .servers import name_behind

MANIFEST = Path(__file__).with_name("manifest.json")
FORMAT_VERSION = 1
# Names of methods with models of their own: the beginnings of those models' names.
CLASSES = ("DINOv3", "EVA02", "EVA", "PE", "RoPE", "BEiT", "Swin", "PiT", "Mixer")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A set of weights in the catalogue.

    Attributes:
        model: Name of the variant.
        tag: Name of the weights, such as "sam".
        source: "user/repository" of the Hugging Face Hub, or the address of a file.
        format: Code base of the tensor names, one of `kerasvit.checkpoints.CODE_BASES`.
        classes: Number of classes; 0 without a head.
        megabytes: Size of the file in 10⁶ bytes, rounded.
        license: Identifier that the source states, of SPDX or of the Hub.
        preprocessing: Fields of `kerasvit.Preprocessing`.
        top1: {"percent", "source"}: ImageNet accuracy and its publisher, or None.
        head: "zeroed" if the head in the file contains zeros only, or None.
        arguments: Arguments of the builder that differ from what the files state, or
            None.
        experimental: Reason to measure the weights before use, or None.
        revision: Commit of the repository to download; None for the newest.
        size: Size of the file in bytes, or None.
        sha256: SHA-256 of the file; None to check the hash that the server states.
        made_from: Differing fields of the original's entry if `weights/` converted and
            published the file, or None.
    """

    model: str
    tag: str
    source: str
    format: str
    classes: int
    megabytes: int
    license: str
    preprocessing: dict[str, Any]
    top1: dict[str, Any] | None = None
    head: str | None = None
    arguments: dict[str, Any] | None = None
    experimental: str | None = None
    revision: str | None = None
    size: int | None = None
    sha256: str | None = None
    made_from: dict[str, Any] | None = None

    @property
    def on_hub(self) -> bool:
        """Whether the source is a repository of the Hugging Face Hub."""
        return "://" not in self.source

    @property
    def filename(self) -> str:
        """Name of the tensor file."""
        return "model.safetensors" if self.on_hub else name_behind(self.source)


class Weights(list[Entry]):
    """A list of `Entry` that prints as a table."""

    empty = "No published weights."

    @overload
    def __getitem__(self, key: SupportsIndex) -> Entry: ...
    @overload
    def __getitem__(self, key: slice) -> "Weights": ...
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
            lines.append("Top-1 on ImageNet, measured by timm unless noted below.")
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


def read_manifest(path: Path) -> dict[str, Any]:
    """Returns the content of a manifest, {"recipes", "weights"} and the version.

    Raises:
        ValueError: The file is damaged, or newer than this package.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content["format_version"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged: {error!r:.200}. Restore it: git checkout {path.name}, "
            "or install kerasvit again."
        ) from error
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path} has format_version {version!r:.50}; this kerasvit reads "
            f"{FORMAT_VERSION}: update kerasvit."
        )
    return content


@functools.cache
def _manifest() -> dict[str, Any]:
    return read_manifest(MANIFEST)


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Returns all entries of the catalogue."""
    return tuple(Entry(**entry) for entry in _manifest()["weights"])


def published(model: str | None) -> dict[str, Entry]:
    """Returns {tag: entry} of the weights of a variant."""
    return {entry.tag: entry for entry in entries() if entry.model == model}


def list_weights(pattern: str = "*") -> Weights:
    """Lists public weights by name; the list prints as a table.

    Args:
        pattern: Name of a variant, part of a name such as "mixer", or a shell pattern
            of a complete name such as "vit?16*". Case is ignored.

    Returns:
        List of `Entry`. An empty list prints as an explanation.

    Raises:
        ValueError: The pattern is not a string.
    """
    models = sorted({entry.model for entry in entries()})
    matches = chosen(models, pattern)
    # The name of a variant matches only itself: "ViTB16" does not match R50ViTB16.
    matches = [name for name in matches if name.lower() == pattern.lower()] or matches
    weights = Weights(entry for entry in entries() if entry.model in matches)
    if not weights:
        close = " or ".join(near(models, pattern))
        hint = f"Did you mean {close}? " if close else ""
        weights.empty = (
            f"There are no public weights of {pattern}. {hint}There are weights of "
            f"{', '.join(models)}. The other models of kerasvit.list_models() can be "
            "trained: python recipes/pretrain.py --help."
        )
    return weights


def recipe(model: str) -> str:
    """Returns the command that trains a variant from scratch."""
    recipes = _manifest()["recipes"]  # {part of the variant's name: options}
    options = next(recipes[part] for part in recipes if part in model)
    return f"python recipes/pretrain.py {options.format(model)}"


def call_of(repository: str) -> str | None:
    """Returns the call that loads the weights of a Hub repository, or None."""
    for entry in entries():
        if entry.on_hub and entry.source.split("/")[-1] == repository:
            return f'kerasvit.{entry.model}("{entry.tag}")'
    return None


def _of_another_class(model: str, tag: str) -> str | None:
    """Returns the explanation that a tag names classes of models, or None."""
    word = tag.lower().replace("-", "_").split("_")[0]
    start = next((name for name in CLASSES if name.lower() == word), None)
    models = dict.fromkeys(entry.model for entry in entries())
    named = [name for name in models if start and name.startswith(start)]
    if not named or model.startswith(str(start)):
        return None
    size = model.removeprefix("ViT").removeprefix("DeiT")
    fitting = [name for name in named if name.endswith(size)] or named
    calls = [f'kerasvit.{each}("{next(iter(published(each)))}")' for each in fitting]
    return (
        f"{model} has no weights {tag!r}: {start} is another architecture. Build "
        f"{' or '.join(calls)}."
    )


def explain_tag(model: str, tag: str) -> str:
    """Returns the explanation that a variant has no weights with a tag."""
    if other := _of_another_class(model, tag):
        return other
    tags = published(model)
    if not tags:
        return (
            f"{model} has no public weights. Train it: {recipe(model)}. Or give the "
            "path of a .safetensors or .npz file, or of a folder."
        )
    close = near(tags, tag)
    suggestion = call_of(tag) or (repr(close[0]) if close else "")
    hint = f" Did you mean {suggestion}?" if suggestion else ""
    names = ", ".join(f'"{name}"' for name in tags)
    return (
        f"{model} has no weights {tag!r}.{hint} Published: {names}. A path to a "
        ".safetensors or .npz file, or to a folder, works too."
    )
