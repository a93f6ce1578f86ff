"""`python -m kerasvit`: what a report of a fault should state, as lines of Markdown.

The package has written the versions before its imports, which may fail: then the rest
of the report is the traceback. Nothing is downloaded.
"""

import sys
from collections import Counter
from pathlib import Path

import keras

from .backend.devices import device_names
from .hub.cached import cached_weights


def main() -> None:
    """Writes the devices, the settings of Keras and the weights of the catalogue."""
    devices = [f"{n} {name}" for name, n in Counter(device_names()).items()]
    policy, layout = keras.config.dtype_policy().name, keras.config.image_data_format()
    lines = [f"devices: {', '.join(devices)}", f"Keras: {policy}, {layout}"]
    weights = cached_weights()
    lines.append(f"weights without download: {len(weights) or 'none'}")
    for name, path in weights.items():
        where = str(path).replace(str(Path.home()), "~")
        lines.append(f"{name}: {path.stat().st_size / 1e6:.1f} MB, {where}")
    sys.stdout.write("".join(f"- {line}\n" for line in lines))


if __name__ == "__main__":
    main()
