"""Signature and docstring of a variant, from those of its call and of its builder."""

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .variant import Variant

WIDTH = 88


class OfInstances:
    """An attribute that each instance computes when it is asked for.

    Args:
        of_class: Value of the class itself.
        compute: Function of an instance.
    """

    def __init__(self, of_class: Any, compute: Callable[[Any], Any]) -> None:
        self.of_class = of_class
        self.compute = compute

    def __get__(self, instance: Any, owner: type) -> Any:
        return self.of_class if instance is None else self.compute(instance)


def signature_of(variant: "Variant") -> inspect.Signature:
    """Returns the arguments of a variant's call, then those of its builder.

    Those of the builder have the defaults of the variant.
    """
    call = inspect.signature(type(variant).__call__)
    known = {k: p for k, p in call.parameters.items() if k not in ("self", "changes")}
    defaults = {**variant.defaults, **variant.numbers}
    for name, parameter in inspect.signature(variant.builder).parameters.items():
        default = defaults.get(name, parameter.default)
        known.setdefault(name, parameter.replace(default=default))
    return call.replace(parameters=[*known.values()])


def documentation_of(variant: "Variant", tags: Iterable[str]) -> str:
    """Returns the docstring of a variant.

    Args:
        variant: Variant.
        tags: Names of its public weights.
    """
    call, builder = (_sections(f) for f in (type(variant).__call__, variant.builder))
    first, _, more = builder["text"].partition("\n")
    about = re.sub(r"^Builds an? (.*?): .*", r"\1", first) or variant.builder.__name__
    weights = ", ".join(f'"{tag}"' for tag in tags)
    what = "A call builds the model. Settings that weights state replace the defaults."
    counts, speed = _counts(variant)
    paragraphs = [
        f"{variant.label}: {about}{counts}.",
        speed,
        variant.paper.partition("\n")[2].strip(),
        more.strip(),
        textwrap.fill(f"Public weights: {weights}.", WIDTH) if weights else "",
        what,
        f"Args:\n{_arguments(variant, call['Args'], builder['Args'])}",
        f"Returns:\n{call['Returns']}",
        f"Raises:\n{call['Raises']}",
    ]
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _counts(variant: "Variant") -> tuple[str, str]:
    """Returns (end of the first line, sentence) on the size; "" if it is not known."""
    if variant.parameters is None:
        return "", ""
    height, width = variant.size
    return (
        f", {variant.parameters:,} parameters, {height} × {width} pixels",
        f"{variant.multiply_adds:g} G multiply-adds for one image of this size.",
    )


def _sections(function: Callable[..., Any]) -> dict[str, str]:
    """Returns {"text" or heading of a section: its text} of a docstring."""
    sections = dict.fromkeys(("Args", "Returns", "Raises"), "")
    document = inspect.getdoc(function) or ""  # none under `python -OO`
    parts = re.split(rf"^({'|'.join(sections)}):\n", document, flags=re.MULTILINE)
    found = zip(parts[1::2], parts[2::2], strict=True)
    return {**sections, "text": parts[0], **{k: v.rstrip() for k, v in found}}


def _arguments(variant: "Variant", call: str, builder: str) -> str:
    """Returns the section of arguments, in the order of the signature."""
    entries = {**_entries(builder), **_entries(call)}
    common = inspect.signature(type(variant).__call__).parameters
    lines = []
    for name, parameter in inspect.signature(variant).parameters.items():
        entry = entries.get(name, f"    {name}:")
        if name not in common and parameter.default is not parameter.empty:
            entry = _with_sentence(entry, f"Default: {parameter.default!r}.")
        elif name in variant.defaults:  # stated by weights
            fresh = variant.defaults[name]
            entry = _with_sentence(entry, f"Fresh weights: {fresh!r}.")
        lines.append(entry)
    return "\n".join(lines)


def _entries(section: str) -> dict[str, str]:
    """Returns {argument: its entry} of a section of arguments."""
    found = re.split(r"^(?=    \S)", section, flags=re.MULTILINE)
    entries = [entry.rstrip() for entry in found if entry.strip()]
    return {entry.partition(":")[0].strip(): entry for entry in entries}


def _with_sentence(entry: str, sentence: str) -> str:
    """Returns the entry of an argument with one more sentence."""
    last = entry.rpartition("\n")[2]
    fits = len(last) + len(sentence) < WIDTH
    return entry + (f" {sentence}" if fits else f"\n        {sentence}")
