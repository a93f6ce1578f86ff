"""`python -m kerasvit`: what a report of a fault should state, as lines of Markdown.

The package has written the versions before its imports, which may fail: then the rest
of the report is the traceback. Nothing is downloaded.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import keras

from .backend.processes import device_names
from .hub.manifest import Entry, entries
from .hub.servers import key_of
from .installed import from_home, write_versions


def main() -> None:
    """Writes the devices, the settings of Keras and the weights of the catalogue."""
    devices = [f"{n} {name}" for name, n in Counter(device_names()).items()]
    policy, layout = keras.config.dtype_policy().name, keras.config.image_data_format()
    lines = [f"devices: {', '.join(devices)}", f"Keras: {policy}, {layout}"]
    weights = cached_weights()
    lines.append(f"weights without download: {len(weights) or 'none'}")
    for name, path in weights.items():
        size = path.stat().st_size / 1e6
        lines.append(f"{name}: {size:.1f} MB, {from_home(path)}")
    sys.stdout.write("".join(f"- {line}\n" for line in lines))


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
        yield Path(os.path.expanduser(folder), entry.model, entry.tag, entry.filename)
    if entry.on_hub:
        snapshots = f"models--{entry.source.replace('/', '--')}/snapshots"
        hub = Path(constants.HF_HUB_CACHE, snapshots)
        yield from hub.glob(f"{entry.revision or '*'}/{entry.filename}")
    else:
        own = Path(constants.HF_ASSETS_CACHE, "kerasvit", "weights")
        yield own / key_of(entry.source) / entry.filename


if __name__ == "__main__":
    text = (__doc__ or "").partition(": ")[2].partition("\n")[0]
    argparse.ArgumentParser("python -m kerasvit", description=text).parse_args()
    write_versions()  # unless they are written, as of `-mkerasvit`
    main()
