"""The checked command line of `weights.first_contact`, and what it has to do."""

import dataclasses
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kerasvit.checkpoints import names_in
from kerasvit.hub.hashes import file_hash
from kerasvit.hub.manifest import MANIFEST, Entry
from kerasvit.version import __version__

from .. import downloads
from ..disputed import MEASURED, is_measured, read_measured
from ..lock import PINS
from ..names import chosen, in_order, parse_budget, read_entries, within
from ..servers import check_servers, server_of
from ..status_facts import read_facts
from ..timm_reference import timm_can_be_imported
from . import checks, pictures, results, table
from .accuracy import check_images
from .checks import NO_PICTURE, NO_TIMM, UNUSABLE_TIMM, is_of_imagenet
from .published_logits import COCO
from .results import Result

LOGS = "logs"
CONTENT = {
    downloads.NAME,
    MEASURED,
    pictures.FOLDER,
    results.FOLDER,
    table.NAME,
    LOGS,
}


@dataclasses.dataclass
class Run:
    """A checked command line.

    Attributes:
        reached: Entries to check, in order.
        beyond: Entries that the budget does not reach.
        out: Folder of the results.
        images: Folder of ImageNet's validation images, or None.
        digest: `digest_of` the images, or None.
        labels: SHA-256 of the ReaL labels, or None.
        real: Path of the ReaL labels, or None.
        manifest: Path of the manifest, which is written after each name.
        downloads: Files that can be deleted.
        pictures: {name: path} of the photographs.
    """

    reached: list[Entry]
    beyond: list[Entry]
    out: Path
    images: str | None
    digest: str | None
    labels: str | None
    real: str | None
    manifest: Path
    downloads: downloads.Downloads
    pictures: dict[str, str] = dataclasses.field(default_factory=dict)


def prepare(
    only: Sequence[str] = (),
    out: str | Path = "contact",
    budget: str | None = None,
    images: str | None = None,
    real: str | None = None,
    manifest: Path = MANIFEST,
) -> Run:
    """Checks all arguments before anything is downloaded.

    Args:
        only: Patterns of names; empty for all names.
        out: Folder of the results: new, empty, or of an earlier run.
        budget: Limit of the downloads, such as "200GB", or None.
        images: Folder of ImageNet's validation images, one folder per class, or None.
        real: Path of real.json, or None.
        manifest: Path of the manifest.

    Raises:
        ValueError: An argument is wrong, or a file of an earlier run is damaged.
        OSError: The folder cannot be written.
    """
    manifest = Path(os.path.expanduser(manifest)).resolve()
    entries = [Entry(**table) for table in read_entries(manifest)]
    entries = in_order(chosen(entries, only))
    reached, beyond = within(entries, parse_budget(budget) if budget else None)
    if not reached:
        raise ValueError(
            f"`--budget` {budget} reaches no name: the smallest file has "
            f"{entries[0].megabytes} MB."
        )
    check_servers(reached, manifest)
    if manifest == MANIFEST:
        read_facts()  # they are written at the end
    digest = check_images(images, real)
    out = Path(os.path.expanduser(out)).resolve()
    if out.is_dir() and (other := names_in(out) - CONTENT):
        raise ValueError(
            f"`--out` must be a new folder, or one of this command: {out} holds "
            f"{', '.join(sorted(other)[:3])}."
        )
    try:
        (out / LOGS).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out / LOGS):
            pass
    except OSError as error:
        raise ValueError(f"`--out`: {out} cannot be written: {error}.") from error
    results.read_all(out)
    read_measured(out)
    return Run(
        reached,
        beyond,
        out,
        images=_absolute(images),
        digest=digest,
        labels=file_hash(Path(os.path.expanduser(real))) if real else None,
        real=_absolute(real),
        manifest=manifest,
        downloads=downloads.Downloads(out),
    )


def is_current(result: Result, entry: Entry, run: Run) -> bool:
    """Returns whether a name need not be repeated.

    It passed with the same entry, pins, version and server, and no comparison is
    missing that is possible now.
    """
    pins = {key: getattr(entry, key) for key in PINS}
    known = (result.entry, result.pins, result.kerasvit, result.server)
    now = (fields_of(entry), pins, __version__, server_of(entry))
    if not result.passed or known != now:
        return False
    notes = {each["note"] for each in result.comparisons}
    if NO_TIMM in notes and checks.timm_is_installed():
        return False
    if UNUSABLE_TIMM in notes and timm_can_be_imported():
        return False
    if NO_PICTURE in notes and COCO in run.pictures:
        return False
    if not (run.images and is_of_imagenet(entry)):
        return True
    top1 = result.top1
    if top1 is None or top1["digest"] != run.digest:
        return False
    if run.labels not in (None, top1["labels"]):
        return False
    return is_measured(result.name, pins["sha256"], run.out, run.digest)


def fields_of(entry: Entry) -> dict:
    """Returns the fields of an entry without its pins."""
    fields = dataclasses.asdict(entry)
    return {key: value for key, value in fields.items() if key not in PINS}


def _absolute(path: str | None) -> str | None:
    return str(Path(os.path.expanduser(path)).resolve()) if path else None
