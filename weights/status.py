"""Writes STATUS.md: what is proven for each name of the catalogue, and how.

    python -m weights.status                        after an edit of sources.toml
    python -m weights.status --contact contact      adds the results of first_contact

`weights.first_contact` does the second itself after a run on the real servers. The
facts are kept in status.json. New results replace older ones of the same file; the
facts of a name are dropped if its source or its pinned hash changes.
"""

import argparse
import os
import sys
from pathlib import Path

from kerasvit.checkpoints import replace_file
from kerasvit.hub.manifest import MANIFEST, Entry

from .names import read_entries
from .status_facts import FACTS, merge_all, read_facts, valid_facts, write_facts
from .status_page import counts, page

PAGE = Path(__file__).with_name("STATUS.md")


def update(contact: Path | None) -> list[str]:
    """Writes the page and the facts; prints the number of names with each proof.

    Args:
        contact: `--out` of `weights.first_contact` with new results, or None.

    Returns:
        Sentences about results that were not used.

    Raises:
        ValueError: A file is damaged or newer than this package, or the folder has no
            results.
        OSError: A file cannot be written.
    """
    entries = [Entry(**table) for table in read_entries(MANIFEST)]
    facts = read_facts(FACTS)
    unused: list[str] = []
    if contact:
        facts, unused = merge_all(facts, contact, entries)
    facts = valid_facts(facts, entries)
    write_facts(facts, FACTS)
    replace_file(PAGE, page(entries, facts).encode())
    for proof, number in counts(entries, facts).items():
        print(f"{number:4} of {len(entries)}: {proof}")
    return unused


def main(arguments: list[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m weights.status",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--contact", help="--out of weights.first_contact")
    options = parser.parse_args(arguments)
    contact = Path(os.path.expanduser(options.contact)) if options.contact else None
    try:
        unused = update(contact)
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    for sentence in unused:
        print(f"Not used: {sentence}.")


if __name__ == "__main__":
    main(sys.argv[1:])
