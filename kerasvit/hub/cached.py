"""Which weights of the catalogue lie on this machine."""

import os
from collections.abc import Iterator
from pathlib import Path

from .manifest import Entry, entries
from .servers import key_of


def cached_weights() -> dict[str, Path]:
    """Returns {"MODEL/TAG": file} of the weights that need no download.

    The files are found where `kerasvit.hub.download.fetch` searches, and not read.
    """
    found = {}
    for entry in entries():
        if path := next(filter(os.path.isfile, _places(entry)), None):
            found[f"{entry.model}/{entry.tag}"] = path
    return found


def _places(entry: Entry) -> Iterator[Path]:
    from huggingface_hub import constants

    if folder := os.environ.get("KERASVIT_WEIGHTS_DIR"):
        yield Path(folder).expanduser() / entry.model / entry.tag / entry.filename
    if entry.on_hub:
        snapshots = f"models--{entry.source.replace('/', '--')}/snapshots"
        hub = Path(constants.HF_HUB_CACHE, snapshots)
        yield from hub.glob(f"{entry.revision or '*'}/{entry.filename}")
    else:
        own = Path(constants.HF_ASSETS_CACHE, "kerasvit", "weights")
        yield own / key_of(entry.source) / entry.filename
