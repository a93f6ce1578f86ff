"""Writes sections of a model card (README.md)."""

import re
from pathlib import Path

from kerasvit.checkpoints import replace_file


def set_section(card: Path, heading: str, text: str) -> None:
    """Appends a section to a card and removes the section with the same heading.

    Args:
        card: Path of the README.md.
        heading: Text of a second-level heading, without `##`.
        text: Content of the section, without first- or second-level headings.
    """
    content = card.read_text(encoding="utf-8")
    rest = re.sub(_pattern(heading), "", content).rstrip()
    write_text(card, f"{rest}\n\n## {heading}\n\n{text.strip()}\n")


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically."""
    replace_file(path, text.encode())


def _pattern(heading: str) -> str:
    # The section ends at the next heading of its level or at the end of the file.
    return rf"(?ms)^## {re.escape(heading)}$\n(.*?)(?=^## |\Z)"
