"""Writes STATUS.md: what is proven for each name of the catalogue, and how.

    python -m weights.status                        after an edit of sources.toml
    python -m weights.status --contact contact      adds the results of first_contact

The facts are kept in status.json. New results replace older ones of the same file; the
facts of a name are dropped if its source or its pinned hash changes.
"""

import argparse
import sys
from pathlib import Path

from kerasvit.checkpoints import replace_file
from kerasvit.hub import manifest

from .names import read_entries
from .status_facts import FACTS, merge_all, read_facts, valid_facts, write_facts
from .status_page import counts, page

PAGE = Path(__file__).with_name("STATUS.md")


def main(arguments: list[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m weights.status",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--contact", help="--out of weights.first_contact")
    options = parser.parse_args(arguments)
    try:
        read_entries(manifest.MANIFEST)  # it must be of this version of kerasvit
        entries = manifest.entries()
        facts = read_facts(FACTS)
        unused: list[str] = []
        if options.contact:
            contact = Path(options.contact).expanduser()
            facts, unused = merge_all(facts, contact, entries)
        facts = valid_facts(facts, entries)
        write_facts(facts, FACTS)
        replace_file(PAGE, page(entries, facts).encode())
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    for sentence in unused:
        print(f"Not used: {sentence}.")
    for proof, number in counts(entries, facts).items():
        print(f"{number:4} of {len(entries)}: {proof}")


if __name__ == "__main__":
    main(sys.argv[1:])
