"""Converts a public checkpoint into a repository folder: config, tensors and a card.

    python -m weights.convert ViTB16/sam --out vit
    python -m weights.convert ViTL16/sam --from ViT-L_16.npz --out vit      no network
    python -m weights.convert ViTB16/sam MixerB16/sam --out zoo     zoo/ViTB16-sam, …

The names are those of sources.toml. What was pinned is checked, also in a local file. A
head that its authors zeroed is left off. Next: python -m weights.verify vit
"""

import argparse
import datetime
import difflib
import sys
import tempfile
from pathlib import Path

import kerasvit
from kerasvit.checkpoints import names_in, put_files, read_json
from kerasvit.hub import manifest
from kerasvit.hub.manifest import Entry, explain_tag, published

from .certificate import CERTIFICATE, Certificate, write_certificate
from .originals import SourceFile, first, original, original_file
from .sections import set_section

ORIGIN = "Origin"  # heading of the card
MODEL_FILES = ("config.json", "model.safetensors", "README.md")
FILES = (CERTIFICATE, *MODEL_FILES)
SOMEBODY = "USER"  # stands in the card for who will publish it


def entry_named(name: str) -> Entry:
    """The entry of the manifest that "ViTB16/sam" names.

    Of weights of ours it is the one of the file that they were made from.

    Raises:
        ValueError: There is none; the message has those there are.
    """
    model, _, tag = name.partition("/")
    models = {entry.model: None for entry in manifest.entries()}
    if model not in models:
        near = difflib.get_close_matches(model, models) or models
        raise ValueError(
            'A name must be MODEL/TAG of sources.toml, as in "ViTB16/sam". There are '
            f"public weights of {', '.join(near)}. Received: {name!r}."
        )
    if tag not in published(model):
        raise ValueError(explain_tag(model, tag))
    return first(published(model)[tag])


def convert(entry: Entry, out: str | Path, source: str | Path | None = None) -> Path:
    """Writes the repository folder of an entry, whole or not at all.

    Args:
        entry: Of the manifest.
        out: The folder; a new or an empty one, or one that this wrote, which is
            replaced.
        source: Local file in place of the download, or None.

    Raises:
        ValueError: The source cannot be had or is not what it should be, or the
            folder is in use.
    """
    out = Path(out).expanduser().resolve()
    _check_free(out)
    path, file = original_file(entry, source)
    model = original(entry, path, file.sha256)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as place:
        new = Path(place, "new")
        name = f"hf://{SOMEBODY}/{entry.model}-{entry.tag}"
        kerasvit.save_pretrained(model, new, name=name)
        set_section(new / "README.md", ORIGIN, _origin(entry, file))
        write_certificate(new, Certificate(file))
        if out.exists():
            put_files({name: new / name for name in FILES}, out)
        else:
            new.rename(out)
    return out


def record_of(folder: str | Path) -> dict:
    """What a converted folder says of its model.

    Raises:
        ValueError: It is no folder that `convert` wrote.
    """
    folder = Path(folder).expanduser()
    config = read_json(folder / "config.json")
    record = config.get("kerasvit")
    whole = all((folder / name).is_file() for name in MODEL_FILES)
    if not (whole and isinstance(record, dict) and record.get("base")):
        raise ValueError(
            f"A folder that weights.convert wrote is expected. Received: {folder}."
        )
    # A list of names stands where timm looks for it.
    return {**record, "label_names": record["label_names"] or config["label_names"]}


def _check_free(out: Path) -> None:
    found = names_in(out) if out.is_dir() else {out.name}
    if not out.exists() or not found:
        return
    if not out.is_dir() or found - {*FILES}:
        raise ValueError(
            f"`--out` must be a new folder, or one that weights.convert wrote: {out} "
            "holds other files. Nothing was written."
        )
    record_of(out)


def _origin(entry: Entry, file: SourceFile) -> str:
    """Facts of the card that only the manifest knows, and which file it was."""
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
            "weights were published, so that the model answers features."
        )
    if entry.experimental:
        sentences.append(f"**Experimental:** {entry.experimental}.")
    return "\n\n".join(sentences)


def main(arguments: list[str]) -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m weights.convert",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", metavar="MODEL/TAG")
    parser.add_argument("--out", required=True, help="folder, or folder of folders")
    parser.add_argument("--from", dest="source", help="local file, not downloaded")
    options = parser.parse_args(arguments)
    if options.source and len(options.names) > 1:
        parser.error("--from is the file of one name")
    try:
        # All names before the first of what may take long.
        wanted = [entry_named(name) for name in options.names]
        for entry in wanted:
            own = f"{entry.model}-{entry.tag}" if len(wanted) > 1 else ""
            print(convert(entry, Path(options.out) / own, options.source))
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
