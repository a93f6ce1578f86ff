"""What the measures are, and how to read them: the text of the page, sections.toml.

This module imports neither Keras nor kerasvit: the options name the measures.
"""

import tomllib
from pathlib import Path
from typing import NamedTuple


class Section(NamedTuple):
    """Text about a measure.

    Attributes:
        title: Heading.
        source: Paper, with the table, figure or equation.
        definition: What is computed.
        reading: How to read the numbers and pictures.
        optional: Whether it is measured only if it is named.
    """

    title: str
    source: str
    definition: str
    reading: str
    optional: bool = False


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
READINGS: dict[str, str] = _TABLES.pop("pictures")  # {beginning of the caption: text}
SECTIONS = {name: Section(**table) for name, table in _TABLES.items()}
NAMES = tuple(SECTIONS)


def reading_of(caption: str) -> str:
    """Returns the sentence on how to read a picture.

    Raises:
        KeyError: There is none.
    """
    for start, sentence in READINGS.items():
        if caption.startswith(start):
            return sentence
    raise KeyError(caption)
