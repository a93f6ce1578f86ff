"""Writes sections of a card, a README.md."""

import re
from pathlib import Path

from kerasvit.checkpoints import replace_file


def set_section(card: Path, heading: str, text: str) -> None:
    """Puts a section at the end of a card, in place of the one of that heading.

    Args:
        card: Path of the README.md.
        heading: Of the second level, without marks.
        text: Without a heading of the first or second level.
    """
    before = card.read_text(encoding="utf-8")
    rest = re.sub(_pattern(heading), "", before).rstrip()
    write(card, f"{rest}\n\n## {heading}\n\n{text.strip()}\n")


def write(path: Path, text: str) -> None:
    """Writes a text file, whole or not at all."""
    replace_file(path, text.encode())


def _pattern(heading: str) -> str:
    # Up to the next heading of its level, or the end.
    return rf"(?ms)^## {re.escape(heading)}$\n(.*?)(?=^## |\Z)"
