"""Converts a public checkpoint into a model folder with tensors, config and card.

    python -m weights.convert ViTB16/sam --out vit
    python -m weights.convert ViTL16/sam --from ViT-L_16.npz --out vit      no network
    python -m weights.convert ViTB16/sam MixerB16/sam --out zoo     zoo/ViTB16-sam, …

The names are those of sources.toml. Pinned hashes are checked for local files, too. A
head that its authors zeroed is omitted. Next: python -m weights.verify vit
"""

import argparse
import datetime
import difflib
import os
import sys
import tempfile
from pathlib import Path

import kerasvit
from kerasvit.checkpoints import names_in, put_files, read_json
from kerasvit.hub import manifest
from kerasvit.hub.manifest import Entry, explain_tag, published

from .card_sections import set_section
from .certificate import CERTIFICATE, Certificate, write_certificate
from .originals import SourceFile, first, original, original_file

ORIGIN = "Origin"  # heading in the card
MODEL_FILES = ("config.json", "model.safetensors", "README.md")
FILES = (CERTIFICATE, *MODEL_FILES)
PLACEHOLDER = "USER"  # user name in the card until the folder is published


def find_entry(name: str) -> Entry:
    """Returns the manifest's entry for a name such as "ViTB16/sam".

    For weights that were converted before, it is the entry of the original file.

    Raises:
        ValueError: The manifest has no such entry; the message lists similar ones.
    """
    model, _, tag = name.partition("/")
    models = {entry.model: None for entry in manifest.entries()}
    if model not in models:
        near = difflib.get_close_matches(model, models) or models
        raise ValueError(
            'A name must be MODEL/TAG of sources.toml, such as "ViTB16/sam". There are '
            f"public weights of {', '.join(near)}. Received: {name!r}."
        )
    if tag not in published(model):
        raise ValueError(explain_tag(model, tag))
    return first(published(model)[tag])


def convert(entry: Entry, out: str | Path, source: str | Path | None = None) -> Path:
    """Writes the model folder of an entry atomically.

    Args:
        entry: Entry of the manifest.
        out: Folder to write: a new or empty one, or one that `convert` wrote before,
            which is replaced.
        source: Local file to read instead of a download, or None.

    Returns:
        The absolute path of the folder.

    Raises:
        ValueError: The source is not available or differs from its pinned hash, or the
            folder contains other files.
    """
    out = Path(os.path.expanduser(out)).resolve()
    _check_output(out)
    path, file = original_file(entry, source)
    model = original(entry, path, file.sha256)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{out.name}.", dir=out.parent
    ) as temporary:
        new = Path(temporary, "new")
        name = f"hf://{PLACEHOLDER}/{entry.model}-{entry.tag}"
        kerasvit.save_pretrained(model, new, name=name)
        set_section(new / "README.md", ORIGIN, _origin_section(entry, file))
        write_certificate(new, Certificate(file))
        if out.exists():
            put_files({name: new / name for name in FILES}, out)
        else:
            new.rename(out)
    return out


def read_record(folder: str | Path) -> dict:
    """Returns the model's record from the config.json of a converted folder.

    Raises:
        ValueError: `convert` did not write the folder.
    """
    folder = Path(os.path.expanduser(folder))
    config = read_json(folder / "config.json")
    record = config.get("kerasvit")
    complete = all((folder / name).is_file() for name in MODEL_FILES)
    if not (complete and isinstance(record, dict) and record.get("base")):
        raise ValueError(
            f"A folder that weights.convert wrote is expected. Received: {folder}."
        )
    # A list of label names is in the field that timm reads.
    return {**record, "label_names": record["label_names"] or config["label_names"]}


def _check_output(out: Path) -> None:
    found = names_in(out) if out.is_dir() else {out.name}
    if not out.exists() or not found:
        return
    if not out.is_dir() or found - {*FILES}:
        raise ValueError(
            f"`--out` must be a new folder, or one that weights.convert wrote: {out} "
            "holds other files. Nothing was written."
        )
    read_record(out)


def _origin_section(entry: Entry, file: SourceFile) -> str:
    """Returns the card's section about the source file, with the manifest's facts."""
    sentences = [
        f'`kerasvit.{entry.model}("{entry.tag}")`, from {file}. Converted by kerasvit '
        f"{kerasvit.__version__} on {datetime.date.today()}."
    ]
    if top1 := entry.top1:
        sentences.append(
            f"Top-1 on ImageNet, of the published weights: {top1['percent']:.2f} %, "
            f"{top1['source']}."
        )
    if entry.head == "zeroed":
        sentences.append(
            f"Without a head: that for {entry.classes} classes was zeroed before the "
            "weights were published. The model returns features."
        )
    if entry.experimental:
        sentences.append(f"**Experimental:** {entry.experimental}.")
    return "\n\n".join(sentences)


def main(arguments: list[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m weights.convert",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", metavar="MODEL/TAG")
    parser.add_argument("--out", required=True, help="folder, or folder of folders")
    parser.add_argument(
        "--from", dest="source", help="local file to read instead of a download"
    )
    options = parser.parse_args(arguments)
    if options.source and len(options.names) > 1:
        parser.error("--from is for one name only")
    try:
        # Check all names before the first conversion, which may take long.
        entries = [find_entry(name) for name in options.names]
        for entry in entries:
            name = f"{entry.model}-{entry.tag}" if len(entries) > 1 else ""
            print(convert(entry, Path(options.out) / name, options.source))
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
