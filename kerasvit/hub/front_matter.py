"""Reader of the YAML block at the start of a README.md, with size limits.

A few bytes of YAML can expand to gigabytes, because aliases repeat the value of an
anchor. The limits are checked before any value is built.
"""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

MAX_PAGE = 16_000_000  # bytes of a README.md
MAX_BLOCK = 128_000  # characters of its metadata
DEEPEST = 32  # levels of nested lists and mappings

# The pattern that the Hugging Face Hub uses.
_BLOCK = re.compile(
    r"^\s*---(?:\r\n|\r|\n)([\S\s]*?)(?:\r\n|\r|\n)---[ \t]*(?:\r\n|\n|$)"
)


def read_page(path: Path) -> bytes:
    """Returns the content of a README.md.

    Raises:
        ValueError: The file is longer than `MAX_PAGE`.
    """
    size = path.stat().st_size
    if size > MAX_PAGE:
        raise ValueError(f"{path} {too_long(size)}")
    return path.read_bytes()


def too_long(size: int) -> str:
    """Returns the explanation why a page of `size` bytes is not read."""
    return (
        f"has {size:,} bytes; a README.md may have {MAX_PAGE:,}. Shorten or remove it."
    )


def split_page(text: str) -> tuple[dict[str, Any], str]:
    """Returns (metadata, body) of a page; metadata is {} without a YAML block.

    Args:
        text: Text of a README.md.

    Raises:
        ValueError: The block is not a YAML mapping of JSON values, or exceeds a limit;
            the message names it.
    """
    match = _BLOCK.match(text)
    if not match:
        return {}, text
    return _metadata(match[1]), text[match.end() :]


def readable(text: str) -> dict[str, Any]:
    """Returns the metadata of a page whose block is invalid, as far as it can be read.

    Each name at the beginning of a line is read with its value by itself.
    """
    match = _BLOCK.match(text)
    block = match[1] if match and len(match[1]) <= MAX_BLOCK else ""
    found: dict[str, Any] = {}
    for entry in re.split(r"\n(?=[^\s#-])", block):
        with suppress(ValueError):
            found |= _metadata(entry)
    return found


def without_block(text: str) -> str:
    """Returns a page without its block of metadata, which may be invalid."""
    match = _BLOCK.match(text)
    return text[match.end() :] if match else text


def _metadata(block: str) -> dict[str, Any]:
    import yaml

    if len(block) > MAX_BLOCK:
        raise ValueError(f"it has {len(block):,} characters, more than {MAX_BLOCK}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_events(yaml.parse(block, loader))
        metadata = yaml.load(block, loader)
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML: {' '.join(str(error).split())}") from error
    except OverflowError as error:  # a number with too many digits
        raise ValueError(str(error)) from error
    if metadata is None:
        return {}
    if not isinstance(metadata, dict) or not all(isinstance(k, str) for k in metadata):
        raise ValueError("it must have a name and a value a line")
    try:
        json.dumps(metadata, default=str)
    except TypeError as error:  # for example a date as a key
        raise ValueError(str(error)) from error
    return {key: value for key, value in metadata.items() if value is not None}


def _check_events(events: Iterable[Any]) -> None:
    """Raises a `ValueError` for aliases, tags and depth beyond `DEEPEST`."""
    import yaml

    depth = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"it has the alias *{event.anchor:.50}; write the value")
        if getattr(event, "tag", None) is not None:
            raise ValueError(f"it has the tag {event.tag:.50}; remove it")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"its values are nested deeper than {DEEPEST}")
