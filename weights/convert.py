"""A public checkpoint becomes a repository folder: config, tensors and a card.

    python -m weights.convert ViTB16/sam --out vit
    python -m weights.convert ViTL16/sam --from ViT-L_16.npz --out vit      no network
    python -m weights.convert ViTB16/sam MixerB16/sam --out zoo     zoo/ViTB16-sam, …

The names are those of sources.toml. What was pinned is checked, also in a local file. A
head that its authors zeroed is left off. Next: python -m weights.verify vit
"""

import argparse
import datetime
import difflib
import os
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path

import kerasvit
from kerasvit.checkpoints import finish, read_json, replace_files
from kerasvit.hub import manifest
from kerasvit.hub.hashes import wrong_content
from kerasvit.hub.manifest import Entry, explain_tag, published

from .sections import set_section

FILES = ("config.json", "model.safetensors", "README.md")
SOMEBODY = "USER"  # stands in the card for who will publish it


def entry_named(name: str) -> Entry:
    """The entry of the manifest that "ViTB16/sam" names.

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
    return published(model)[tag]


def original(entry: Entry):
    """The model of an entry with the weights of its source, which are checked."""
    classes = 0 if entry.head == "zeroed" else None
    return getattr(kerasvit, entry.model)(entry, num_classes=classes)


@contextmanager
def offered(path, entry: Entry):
    """Lets a local file stand for the download of an entry, here and in subprocesses.

    Args:
        path: Of the file, with its config.json beside it if it has one; or a folder.
        entry: Whose file it is.

    Raises:
        ValueError: It is not there, or not what was pinned.
    """
    path = Path(path).expanduser().absolute()  # a link may have another name
    path = path / entry.filename if path.is_dir() else path
    if not path.is_file() or path.suffix != Path(entry.filename).suffix:
        raise ValueError(f"A {entry.filename} is expected. Received: {path}.")
    if wrong := wrong_content(path, entry.size, entry.sha256):
        raise ValueError(f"{path} is not what was pinned of {entry.source}: {wrong}.")
    before = os.environ.get("KERASVIT_WEIGHTS_DIR")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, entry.model, entry.tag)
        folder.mkdir(parents=True)
        (folder / entry.filename).symlink_to(path)
        for name in ("config.json", "preprocessor_config.json") * entry.on_hub:
            if (beside := path.with_name(name)).exists():
                (folder / name).symlink_to(beside)
        os.environ["KERASVIT_WEIGHTS_DIR"] = place
        try:
            yield folder
        except ValueError as error:
            own = str(error).replace(str(folder / entry.filename), str(path))
            raise ValueError(own) from error
        finally:
            del os.environ["KERASVIT_WEIGHTS_DIR"]
            if before is not None:
                os.environ["KERASVIT_WEIGHTS_DIR"] = before


def convert(entry: Entry, out, source=None) -> Path:
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
    with offered(source, entry) if source else nullcontext():
        model = original(entry)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as place:
        new = Path(place, "new")
        name = f"hf://{SOMEBODY}/{entry.model}-{entry.tag}"
        kerasvit.save_pretrained(model, new, name=name)
        set_section(new / "README.md", "Origin", _origin(entry))
        if out.exists():
            replace_files(out, {path.name: path.read_bytes() for path in new.iterdir()})
        else:
            new.rename(out)
    return out


def record_of(folder) -> dict:
    """What a converted folder says of its model.

    Raises:
        ValueError: It is no folder that `convert` wrote.
    """
    folder = Path(folder).expanduser()
    finish(folder)
    config = read_json(folder / "config.json")
    record = config.get("kerasvit")
    whole = all((folder / name).is_file() for name in FILES)
    if not (whole and isinstance(record, dict) and record.get("base")):
        raise ValueError(
            f"A folder that weights.convert wrote is expected. Received: {folder}."
        )
    # A list of names stands where timm looks for it.
    return {**record, "label_names": record["label_names"] or config["label_names"]}


def _check_free(out):
    found = finish(out) if out.is_dir() else {out.name}
    if not out.exists() or not found:
        return
    if not out.is_dir() or found - {*FILES}:
        raise ValueError(
            f"`--out` must be a new folder, or one that weights.convert wrote: {out} "
            "holds other files. Nothing was written."
        )
    record_of(out)


def _origin(entry):
    """Facts of the card that only the manifest knows."""
    pins = {"revision": entry.revision, "SHA-256": entry.sha256}
    pinned = "".join(f", {name} {pin}" for name, pin in pins.items() if pin)
    said = [
        f"The public weights {entry.tag!r} of {entry.model}, which "
        f'`kerasvit.{entry.model}("{entry.tag}")` loads, from {entry.source}{pinned}. '
        f"Converted by kerasvit {version('kerasvit')} on {datetime.date.today()}."
    ]
    if entry.top1:
        said.append(
            f"Top-1 on ImageNet, of the original: {entry.top1['percent']:.2f} %, "
            f"{entry.top1['source']}."
        )
    if entry.head == "zeroed":
        said.append(
            f"Without a head: that for {entry.classes} classes was zeroed before the "
            "weights were published, so that the model answers features."
        )
    if entry.experimental:
        said.append(
            "**Experimental:** others measured far less than the paper says "
            "(huggingface/pytorch-image-models#1302)."
        )
    return "\n\n".join(said)


def main(arguments):
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
    except ValueError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
