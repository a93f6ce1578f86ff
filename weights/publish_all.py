"""Converts, verifies and publishes all weights of the catalogue to an organisation.

    python -m weights.publish_all ORGANISATION
    python -m weights.publish_all ORGANISATION --only 'ViT*/sam' MixerB16 --private

Each name MODEL/TAG becomes the repository ORGANISATION/model-tag, in lower case. A name
is skipped if its repository already has the files of a certificate.json that passed for
the pinned original: the SHA-256 that the Hub states are compared. The command stops at
the first failure; run it again to continue. It removes uploaded folders from OUT, and
originals that it downloaded from the caches. OUT/sources.toml.additions contains the
tables for sources.toml. Before anything is converted, the names, their pins, the token
and the room on the disk are checked.
"""

import argparse
import dataclasses
import os
import shutil
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import keras

from kerasvit.checkpoints import replace_file
from kerasvit.hub import manifest
from kerasvit.hub.manifest import Entry
from kerasvit.hub.upload import check_target

from .certificate import FAILED, INCOMPLETE, check_certificate, read_certificate
from .convert import FILES, convert
from .downloads import Downloads
from .hub_state import check_rights, find_published
from .names import chosen, name_of, read_entries
from .originals import first
from .publish import as_toml, is_of_pin, publish
from .verify import verify

if TYPE_CHECKING:
    from huggingface_hub import HfApi

COLUMNS = ("name", "repository", "commit", "state", "seconds")
LONGEST = 600  # characters of a reason
# The tables of published weights that are to be copied into sources.toml.
ADDITIONS = "sources.toml.additions"
HEAD = (
    "# Tables of published weights. Replace the tables of the same names in\n"
    "# weights/sources.toml by these, then run: python -m weights.lock\n"
)
Key = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Done:
    """A name whose weights are on the Hub.

    Attributes:
        entry: Entry of the published weights, pinned.
        state: "published" by this run, or "skipped".
        seconds: Duration.
    """

    entry: Entry
    state: str
    seconds: float


def key_of(entry: Entry) -> Key:
    """Returns the name and the repository, of which the Hub ignores the case."""
    return name_of(entry), entry.source.lower()


def read_additions(path: Path) -> dict[Key, Entry]:
    """Returns {key: entry} of the tables that earlier runs wrote.

    Raises:
        ValueError: The file is damaged.
    """
    if not path.exists():
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))["weights"]
        entries = [Entry(**table) for table in tables]
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged: {error}. Remove it; the tables of published names are "
            "written again."
        ) from error
    return {key_of(entry): entry for entry in entries}


def write_additions(path: Path, entries: dict[Key, Entry]) -> None:
    """Writes the tables of entries, in the order of the manifest, atomically."""
    order = [name_of(entry) for entry in manifest.entries()]
    known = [key for key in sorted(entries) if key[0] in order]
    known.sort(key=lambda key: order.index(key[0]))
    tables = [as_toml(entries[key]) for key in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, "\n".join([HEAD, *(f"{t}\n" for t in tables)]).encode())


def repository_of(organisation: str, entry: Entry) -> str:
    """Returns the repository of a name; the Hub does not distinguish the case."""
    return f"{organisation}/{f'{entry.model}-{entry.tag}'.lower()}"


def folder_of(entry: Entry, out: Path) -> Path:
    """Returns the folder of a name before it is uploaded."""
    return out / f"{entry.model}-{entry.tag}"


def check_pins(entries: Sequence[Entry]) -> None:
    """Raises a ValueError that lists the entries without a pinned hash."""
    names = [name_of(entry) for entry in entries if not entry.sha256]
    if names:
        which = "" if len(names) == len(manifest.entries()) else " " + " ".join(names)
        raise ValueError(
            f"{len(names)} of {len(entries)} names are not pinned: {', '.join(names)}. "
            "Nothing was uploaded. Run python -m weights.first_contact, which also "
            f"tests the files, or: python -m weights.lock --pin{which}"
        )


def check_space(entries: Sequence[Entry], out: Path) -> None:
    """Checks that the largest file fits into the cache and, converted, into `out`.

    Raises:
        ValueError: There is not enough room; the message names the folder.
    """
    from huggingface_hub import constants

    if not entries:
        return
    largest = max(entries, key=_size)
    needed: dict[int, tuple[Path, int]] = {}  # by device
    for folder in (out, Path(constants.HF_HUB_CACHE)):
        there = next(p for p in (folder, *folder.parents) if p.exists())
        device = os.stat(there).st_dev
        _, size = needed.get(device, (there, 0))
        needed[device] = there, size + _size(largest)
    for folder, size in needed.values():
        free = shutil.disk_usage(folder).free
        if free < size:
            raise ValueError(
                f"{name_of(largest)}, the largest file, needs {size / 1e9:.2f} GB at "
                f"{folder}, for the download and the converted folder; "
                f"{free / 1e9:.2f} GB are free. Make room, or set --out and HF_HOME."
            )


def publish_each(
    entries: Sequence[Entry],
    organisation: str,
    out: Path,
    report: Callable[[Done], None],
    *,
    private: bool | None = None,
    endpoint: str | None = None,
) -> None:
    """Publishes weights that are not yet published, in order.

    Args:
        entries: Entries of the originals, pinned.
        organisation: Organisation or user of the Hub.
        out: Folder for the folders of models.
        report: Called with each finished name.
        private, endpoint: Arguments of `publish`.

    Raises:
        ValueError: A check before the first conversion, or a step of a name, failed.
    """
    from huggingface_hub import HfApi

    targets = [repository_of(organisation, entry) for entry in entries]
    for target in targets:
        check_target(target, private=private, endpoint=endpoint)
    check_pins(entries)
    client = HfApi(endpoint=endpoint, library_name="kerasvit")
    check_rights(client, organisation)
    there = _find_all(client, targets, entries)
    downloads = Downloads(out)
    check_space([e for e, old in zip(entries, there, strict=True) if not old], out)
    for entry, target, old in zip(entries, targets, there, strict=True):
        start = time.monotonic()
        if old:
            if _is_verified(folder_of(entry, out), entry):
                _remove(folder_of(entry, out))  # of a run that was killed
            report(Done(old, "skipped", 0.0))
            continue
        with _step(entry, "download"):
            downloads.prepare(entry, entry.revision, entry.size)
        new = _publish(entry, out, target, private=private, endpoint=endpoint)
        downloads.delete(entry.source)
        report(Done(new, "published", time.monotonic() - start))


def _find_all(
    client: "HfApi", targets: Sequence[str], entries: Sequence[Entry]
) -> list[Entry | None]:
    found = []
    for target, entry in zip(targets, entries, strict=True):
        with _step(entry, "repository"):
            found.append(find_published(client, target, entry))
    return found


def _publish(
    entry: Entry,
    out: Path,
    repository: str,
    *,
    private: bool | None,
    endpoint: str | None,
) -> Entry:
    """Converts, verifies and uploads weights, and removes their folder."""
    folder = folder_of(entry, out)
    if not _is_verified(folder, entry):
        with _step(entry, "convert"):
            convert(entry, folder)
        with _step(entry, "verify"):
            _verify(folder)
        keras.utils.clear_session()  # frees the memory of the model
    with _step(entry, "publish"):
        _, published = publish(folder, repository, private=private, endpoint=endpoint)
    _remove(folder)
    return published


def _remove(folder: Path) -> None:
    for name in FILES:
        (folder / name).unlink()
    with suppress(OSError):  # the user has added files
        folder.rmdir()


def _is_verified(folder: Path, entry: Entry) -> bool:
    """Returns whether a stopped run left a folder that passed."""
    try:
        return is_of_pin(entry, check_certificate(folder))
    except (ValueError, OSError):
        return False


def _verify(folder: Path) -> None:
    verdict = verify(folder)
    if verdict == FAILED:
        raise ValueError(f"FAILED: the table in {folder / 'README.md'} says where.")
    if verdict == INCOMPLETE:
        missing = " ".join(read_certificate(folder).missing)
        raise ValueError(f"INCOMPLETE: not all could be compared: {missing}")


@contextmanager
def _step(entry: Entry, step: str) -> Iterator[None]:
    """Context manager that adds name and step to the error of a command, in a line."""
    try:
        yield
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split()).rstrip(".") + "."
        if len(reason) > LONGEST:  # the end of a traceback has its reason
            reason = f"{reason[:100]} … {reason[100 - LONGEST :]}"
        raise ValueError(
            f"{name_of(entry)}, step {step}: {reason} Then run the same command again: "
            "it skips the names that are published."
        ) from error


def _size(entry: Entry) -> int:
    return entry.size or entry.megabytes * 10**6


def table(done: Sequence[Done]) -> str:
    """Returns the table of finished names for the terminal."""
    rows = [COLUMNS]
    for each in done:
        entry = each.entry
        commit = (entry.revision or "")[:12]
        seconds = f"{each.seconds:.0f}"
        rows.append((name_of(entry), entry.source, commit, each.state, seconds))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def main(arguments: list[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m weights.publish_all",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("organisation", metavar="ORGANISATION")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="PATTERN", help="such as 'ViT*/sam'"
    )
    parser.add_argument("--out", default="zoo", help="folder of folders (zoo)")
    parser.add_argument("--private", action="store_true", default=None)
    parser.add_argument("--endpoint", help="URL of another Hub")
    options = parser.parse_args(arguments)
    out, done = Path(os.path.expanduser(options.out)), []
    additions = out / ADDITIONS

    def report(each: Done) -> None:
        done.append(each)
        tables[key_of(each.entry)] = each.entry
        write_additions(additions, tables)
        print(f"{name_of(each.entry)}: {each.state}", flush=True)

    try:
        read_entries(manifest.MANIFEST)  # it must be of this version of kerasvit
        tables = read_additions(additions)
        originals = [first(entry) for entry in manifest.entries()]
        publish_each(
            chosen(originals, options.only),
            options.organisation,
            out,
            report,
            private=options.private,
            endpoint=options.endpoint,
        )
    except (ValueError, OSError) as error:
        if done:
            print(table(done))
        sys.exit(f"Error: {error}")
    print(f"{table(done)}\n\nTables for sources.toml: {additions}")


if __name__ == "__main__":
    main(sys.argv[1:])
