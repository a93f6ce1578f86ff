"""A local server with a file for every name of the catalogue.

    python -m tests.weights.serve_published
    python -m tests.weights.serve_published --only 'ViT*/sam' 'Mixer*'
    python -m tests.weights.serve_published --full       also files above 1 GB

The files have the names, shapes and dtypes of the published ones and random values, see
`tests.weights.published_files`. A file is made at the first request for it, which takes
seconds, and the oldest ones are deleted beyond --disk; all are deleted at the end.
Repeated requests get the same bytes.

Of files above 1 GB a narrow copy of the same depth is served, unless --full is given.
Its variant rejects it, as it should: load it with `kerasvit.from_pretrained`, or use
--full, with which `weights.first_contact --manifest` passes for all names.

The command prints environment variables, with which the Hub's client asks this server
and uses an empty cache. An address such as https://storage.googleapis.com/vit_models/
cannot be redirected by a variable: the command writes a manifest in which it is
http://127.0.0.1:PORT/files/storage.googleapis.com/vit_models/. In Python:

    with serve(["ViT*/sam"]) as served:
        entry = served.entries[0]

`served.manifest` is the path of that manifest, `served.environment` the variables.
"""

import argparse
import contextlib
import dataclasses
import fnmatch
import functools
import json
import tempfile
import threading
from pathlib import Path
from urllib.parse import unquote

from kerasvit.hub.manifest import MANIFEST, Entry
from tests.hub.disk_body import DiskBody
from tests.hub.local_hub import LocalHub
from tests.weights import published_files

CARD = "---\nlicense: {}\nlibrary_name: {}\n---\n\nRandom values, for tests.\n"


@dataclasses.dataclass
class Served:
    """The result of `serve`.

    Attributes:
        hub: `LocalHub`.
        entries: List of `Entry`, with addresses of this server.
        narrow: Names "MODEL/TAG" of the entries whose file is a narrow copy.
        manifest: Path of a manifest of these entries.
        environment: {variable: value} for processes that use the server.
    """

    hub: LocalHub
    entries: list
    narrow: set
    manifest: Path
    environment: dict


class _Disk:
    """Deletes the oldest files beyond a number of bytes."""

    def __init__(self, most):
        self.most, self.bodies, self.lock = most, [], threading.Lock()

    def add(self, body):
        size = body.path.stat().st_size
        with self.lock:
            self.bodies.append((body, size))
            while sum(each[1] for each in self.bodies) > self.most:
                if len(self.bodies) == 1:  # the new one
                    break
                self.bodies.pop(0)[0].delete()


@contextlib.contextmanager
def serve(only=(), *, full=False, disk=10_000_000_000):
    """Context manager that starts the server and deletes its files.

    Args:
        only: Patterns of names "MODEL/TAG"; empty for all.
        full: Whether to serve files above 1 GB in their size.
        disk: Number of bytes that the files may take.
    """
    hub = LocalHub()
    content = json.loads(MANIFEST.read_text(encoding="utf-8"))
    tables = [
        table
        for table in content["weights"]
        if not only or any(_matches(table, pattern) for pattern in only)
    ]
    narrow, limit = set(), _Disk(disk)
    with tempfile.TemporaryDirectory(prefix="kerasvit-published-") as folder:
        folder = Path(folder)
        for table in tables:
            entry = Entry(**table)
            small = not full and published_files.is_large(entry)
            if small:
                narrow.add(published_files.name_of(entry))
            table["source"] = _add(hub, entry, folder, small, limit)
            for pin in ("revision", "size", "sha256"):
                table.pop(pin, None)
        manifest = folder / "manifest.json"
        manifest.write_text(json.dumps({**content, "weights": tables}))
        environment = {
            "HF_ENDPOINT": hub.endpoint,
            "HF_HOME": str(folder / "cache"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_TOKEN": "",
        }
        entries = [Entry(**table) for table in tables]
        try:
            yield Served(hub, entries, narrow, manifest, environment)
        finally:
            hub.close()


def _matches(table, pattern):
    return fnmatch.fnmatchcase(f"{table['model']}/{table['tag']}", pattern) or (
        fnmatch.fnmatchcase(table["model"], pattern)
    )


def _add(hub, entry, folder, narrow, limit):
    """Adds the files of an entry to the Hub; returns its source there."""
    path = folder / entry.model / entry.tag / entry.filename
    make = functools.partial(_make, entry=entry, narrow=narrow)
    body = DiskBody(path, make, limit.add)
    if entry.on_hub:
        files = published_files.json_files(entry, narrow)
        card = CARD.format(entry.license, entry.format).encode()
        hub.add(entry.source, {**files, "README.md": card, entry.filename: body})
        return entry.source
    name = entry.source.removeprefix("https://")
    hub.files[unquote(name)] = body
    return hub.address(name)


def _make(path, entry, narrow):
    published_files.write(path, entry, narrow=narrow)


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.weights.serve_published",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="PATTERN")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--disk", type=float, default=10, help="limit in GB")
    options = parser.parse_args()
    served = serve(options.only, full=options.full, disk=options.disk * 1e9)
    with served as served:
        print(f"# {len(served.entries)} names; manifest: {served.manifest}")
        for name, value in served.environment.items():
            print(f"export {name}={value}")
        print("# Ctrl+C ends the server and deletes its files", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
