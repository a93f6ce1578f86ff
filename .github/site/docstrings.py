"""Docstrings, which are plain text with the marks of Markdown, as reStructuredText."""

import re

SECTIONS = {"Args": "Parameters", "Attributes": "Attributes", "Raises": "Raises"}
SECTIONS |= {"Returns": "Returns", "Yields": "Yields"}
HEADER = re.compile(rf"({'|'.join(SECTIONS)}):$")
CODE = re.compile(r"`([^`]+)`")
# What reStructuredText reads as marks, and a docstring means as it stands.
MARKS = re.compile(r"[\\*|]|(?<=\w)_(?!\w)")
ARXIV = re.compile(r"\b(arXiv:?\s+)?(\d{4}\.\d{5})\b")
ITEM = re.compile(r"([-*]|\d+\.) ")


def as_rst(lines: list[str]) -> list[str]:
    """Returns the lines of a docstring as reStructuredText.

    An indented block after a blank line is code; `this` is code as well; papers of
    arXiv are links; the sections of Google's style are fields.
    """
    found: list[str] = []
    prose: list[str] = []
    while lines:
        if _begins_code(lines[0], prose):
            code, lines = _indented(lines)
            found += [*_fields(_marked(prose)), "::", "", *code, ""]
            prose = []
        else:
            prose.append(lines[0])
            lines = lines[1:]
    return found + _fields(_marked(prose))


def _begins_code(line: str, before: list[str]) -> bool:
    """Whether a line is the first of an indented block outside sections and lists."""
    if not line.startswith("    ") or (before and before[-1].strip()):
        return False
    above = [each for each in before if each and not each.startswith(" ")]
    return not above or not (HEADER.match(above[-1]) or ITEM.match(above[-1]))


def _indented(lines: list[str]) -> tuple[list[str], list[str]]:
    """Divides lines after the last of their first that are indented or empty."""
    inside = [not line or line.startswith("    ") for line in lines]
    end = inside.index(False) if False in inside else len(lines)
    return lines[:end], lines[end:]


def _marked(lines: list[str]) -> list[str]:
    """Returns lines of prose with their code and links marked, and no other marks."""
    parts = CODE.split("\n".join(lines))
    for i, part in enumerate(parts):
        if i % 2:
            parts[i] = f"``{part}``"
        else:
            part = ARXIV.sub(r"`\1\2 <https://arxiv.org/abs/\2>`__", _escaped(part))
            # Code that a letter follows.
            parts[i] = f"\\ {part}" if i and part[:1].isalnum() else part
    return "".join(parts).split("\n")


def _escaped(text: str) -> str:
    lines = (
        (line[: len(line) - len(line.lstrip("-* "))], line.lstrip("-* "))
        if ITEM.match(line.strip())
        else ("", line)
        for line in text.split("\n")
    )
    return "\n".join(start + MARKS.sub(r"\\\g<0>", rest) for start, rest in lines)


def _fields(lines: list[str]) -> list[str]:
    """Returns lines with the sections of Google's style as fields."""
    found: list[str] = []
    while lines:
        header = HEADER.match(lines[0])
        if not header:
            found.append(lines[0])
            lines = lines[1:]
            continue
        body, lines = _indented(lines[1:])
        found += ["", f":{SECTIONS[header[1]]}:"]
        listed = header[1] not in ("Returns", "Yields")
        found += [*(_items(body) if listed else body), ""]
    return found


def _items(body: list[str]) -> list[str]:
    """Returns the items "name: text" of a section as a list."""
    text = "\n".join(line[4:] for line in body)
    # An item begins where a line is not indented.
    items = re.split(r"\n(?=\S)", text.strip("\n"))
    found = []
    for item in items:
        name, colon, rest = item.partition(":")
        name = " ".join(name.split())
        rest = re.sub(r"\n(?=.)", "\n  ", re.sub(r"\n    ", "\n", rest))
        first = f"**{name}**:{rest}" if colon else f"{item}"
        found += f"- {first}".split("\n")
    return [f"    {line}" if line else "" for line in found]
