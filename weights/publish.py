"""Uploads a converted folder, and says what sources.toml is to say then.

    python -m weights.publish vit user/vit-b16-sam
    python -m weights.publish vit user/vit-b16-sam --private --revision trial

The folder must have passed: python -m weights.verify vit. Who uploads is who has logged
in with `hf auth login`, or the token in HF_TOKEN.
"""

import argparse
import dataclasses
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kerasvit.hub.hashes import file_hash
from kerasvit.hub.manifest import Entry
from kerasvit.hub.upload import prepare, upload

from .certificate import CERTIFICATE, COVERED, Certificate, check_certificate
from .convert import record_of
from .sections import write
from .verify import entry_of

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo

ORDER = (
    "model", "tag", "source", "format", "classes", "megabytes", "top1", "license",
    "experimental", "preprocessing", "revision", "size", "sha256", "made_from",
)  # fmt: skip
# Fields of the original file, which those of the converted one replace.
OF_FILE = ("source", "format", "classes", "head", "revision", "size", "sha256")


def publish(
    folder: str | Path,
    repository: str,
    *,
    private: bool | None = None,
    endpoint: str | None = None,
    revision: str | None = None,
) -> tuple["CommitInfo", Entry]:
    """Puts a converted folder into a repository of the Hub, in one commit.

    The card goes along and takes the repository's name, and that of the branch if one
    is given; the folder's own does so once the upload is done.

    Args:
        folder: That `weights.convert` wrote and `weights.verify` passed.
        repository: "user/name", made where it does not exist.
        private: Whether a new repository is private; None: as the user's settings say.
        endpoint: Address of another Hub.
        revision: Branch, made where it does not exist; None: main.

    Returns:
        (`huggingface_hub.CommitInfo`, `Entry` of the published weights, pinned).

    Raises:
        ValueError: The folder has no certificate that it passed, its original was not
            pinned, or it could not be uploaded.
    """
    folder = Path(folder).expanduser()
    record = record_of(folder)
    certificate = check_certificate(folder)
    original = entry_of(record, folder)
    check_pin(folder, original, certificate)
    entry = published_entry(original, folder, repository)
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8")
    if title := re.search(r"(?m)^# (\S+/\S+)$", text):
        branch = f"@{revision}" if revision else ""
        text = text.replace(title[1], repository + branch)
    client, _ = prepare(
        repository, private=private, endpoint=endpoint, revision=revision
    )
    with tempfile.TemporaryDirectory() as place:
        staged = Path(place)
        for name in (*COVERED, CERTIFICATE):
            (staged / name).symlink_to((folder / name).resolve())
        (staged / card.name).write_text(text, encoding="utf-8")
        info = upload(
            client,
            staged,
            repository,
            revision=revision,
            create_pr=False,
            message=f"{entry.model} {entry.tag}, converted by kerasvit",
        )
    write(card, text)
    return info, dataclasses.replace(entry, revision=info.oid)


def check_pin(folder: Path, entry: Entry, certificate: Certificate) -> None:
    """Raises a `ValueError` unless a folder was made from the file that is pinned.

    Args:
        folder: For the message.
        entry: Of the original.
        certificate: Of the folder.
    """
    files = (certificate.converted_from, certificate.compared_with)
    if all(file and file.pinned and file.sha256 == entry.sha256 for file in files):
        return
    name = f"{entry.model}/{entry.tag}"
    pin = "" if entry.sha256 else f"python -m weights.lock --pin {name}, then "
    raise ValueError(
        f"{folder} was not made from a file that was known to be {entry.source}, or "
        f"not compared with one. Run {pin}python -m weights.convert {name} and "
        "python -m weights.verify anew."
    )


def published_entry(entry: Entry, folder: Path, repository: str) -> Entry:
    """What the manifest is to say of weights once they are in a repository of ours."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    record = config["kerasvit"]
    size = (folder / "model.safetensors").stat().st_size
    height, width = record["preprocessing"]["size"]
    side = height if height == width else [height, width]
    facts = {key: getattr(entry, key) for key in OF_FILE}
    return dataclasses.replace(
        entry,
        source=repository,
        format=record["weights_format"],
        classes=record["kwargs"]["num_classes"],
        megabytes=max(1, round(size / 1e6)),
        preprocessing={**record["preprocessing"], "size": side},
        head=None,  # one that was zeroed has been left off
        revision=None,  # known after the upload
        size=size,
        sha256=file_hash(folder / "model.safetensors"),
        made_from={k: fact for k, fact in facts.items() if fact is not None},
    )


def as_toml(entry: Entry) -> str:
    """An entry as sources.toml has it."""
    fields = dataclasses.asdict(entry)
    present = [key for key in ORDER if fields[key] is not None]
    lines = [f"{key} = {_value(fields[key])}" for key in present]
    return "\n".join(["[[weights]]", *lines])


def _value(value: object) -> str:
    if isinstance(value, dict):
        items = (f"{key} = {_value(inner)}" for key, inner in value.items())
        return f"{{ {', '.join(items)} }}"
    return json.dumps(value, ensure_ascii=False)


def main(arguments: list[str]) -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m weights.publish",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder")
    parser.add_argument("repository", metavar="user/name")
    parser.add_argument("--private", action="store_true", default=None)
    parser.add_argument("--endpoint", help="address of another Hub")
    parser.add_argument("--revision", help="branch, made where there is none")
    options = vars(parser.parse_args(arguments))
    try:
        info, entry = publish(**options)
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    print(
        f"{info.commit_url}\n\nLet sources.toml say of {entry.model}/{entry.tag}:\n\n"
        f"{as_toml(entry)}\n\nThen: python -m weights.lock"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
