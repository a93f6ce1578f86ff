"""Writes the lists of tensors in this folder, from the code that made the files.

    python -m venv /tmp/lists && . /tmp/lists/bin/activate
    pip install keras torch timm==1.0.31 transformers==5.23.0 flax==0.12.8 \
        ml_collections einops tensorflow
    mkdir /tmp/originals && cd /tmp/originals
    for name in vision_transformer big_vision big_transfer; do
        git clone https://github.com/google-research/$name
    done
    git -C vision_transformer checkout c6de1e5378c9
    git -C big_vision checkout 0127fb6b337e
    git -C big_transfer checkout 140de6e704fd
    cd REPOSITORY && python -m tests.weights.published.write /tmp/originals

`entries.json` has the list of each entry of weights/sources.toml; `configs.json` the
config.json of its repository. No weights are made: torch builds on the device "meta",
and JAX computes shapes. What is known of the published files, and differs from the
code, is written here beside the entry, with its evidence.
"""

import argparse
import json
import tomllib
from pathlib import Path

from . import originals, timm_files
from .lists import fold, unfold

FOLDER = Path(__file__).parent
SOURCES = FOLDER.parents[2] / "weights" / "sources.toml"


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.weights.published.write")
    parser.add_argument("originals", help="folder with the three repositories")
    originals.add_to_path(parser.parse_args().originals)
    tables = tomllib.loads(SOURCES.read_text(encoding="utf-8"))["weights"]
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    names, entries, configs = {}, {}, {}
    for table in tables:
        name = f"{table['model']}/{table['tag']}"
        files, config = _files(table)
        entries[name] = []
        for file in files:
            lines = fold(file.tensors, file.classes, file.rows)
            text = "\n".join([*(f"# {line}" for line in file.origin), *lines]) + "\n"
            layout = names.setdefault("\n".join(lines), file.name)
            path = FOLDER / f"{layout}.txt"
            if not path.exists():
                path.write_text(text)
            written = path.read_text().splitlines()
            assert unfold(written, file.classes, file.rows) == file.tensors, layout
            entries[name].append(
                {"list": layout, "classes": file.classes, "rows": file.rows}
            )
        if config:
            configs[name] = config
        print(name, [file["list"] for file in entries[name]])
    _write("entries.json", entries)
    _write("configs.json", configs)


def _files(table):
    """Returns ([`File`], config.json or None); the first `File` is the likely one."""
    if table["format"] == "timm":
        return timm_files.timm_files(table["source"])
    if table["format"] == "transformers":
        return timm_files.transformers_file(table["source"])
    return originals.files(table["source"]), None


def _write(name, content):
    """Writes JSON with one line for each key."""
    lines = [
        f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()
    ]
    (FOLDER / name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
