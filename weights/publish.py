"""Uploads a converted folder to the Hub and prints its table for sources.toml.

    python -m weights.publish vit user/vit-b16-sam
    python -m weights.publish vit user/vit-b16-sam --private --revision trial

The folder must have passed `python -m weights.verify vit`. The upload uses the login of
`hf auth login`, or the token in HF_TOKEN.
"""

import argparse
import dataclasses
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kerasvit.hub.hashes import file_hash
from kerasvit.hub.manifest import Entry
from kerasvit.hub.upload import prepare, upload

from .card_sections import write_text
from .certificate import CERTIFICATE, COVERED, Certificate, check_certificate
from .convert import read_record
from .verify import entry_of

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo

ORDER = (
    "model", "tag", "source", "format", "classes", "megabytes", "top1", "license",
    "arguments", "experimental", "preprocessing", "revision", "size", "sha256",
    "made_from",
)  # fmt: skip
# Fields of the original file that the fields of the converted file replace.
FILE_FIELDS: tuple[str, ...] = ("source", "format", "classes", "head", "arguments")
FILE_FIELDS += ("revision", "size", "sha256")


def publish(
    folder: str | Path,
    repository: str,
    *,
    private: bool | None = None,
    endpoint: str | None = None,
    revision: str | None = None,
) -> tuple["CommitInfo", Entry]:
    """Uploads a converted folder to a repository of the Hub, in one commit.

    The uploaded card states the name of the repository and of the branch, if given.
    After the upload, the card of the folder is replaced by it.

    Args:
        folder: Folder that `weights.convert` wrote and `weights.verify` passed.
        repository: "user/name", created if it does not exist.
        private: Whether a new repository is private; None for the user's setting.
        endpoint: URL of another Hub, or None.
        revision: Branch, created if it does not exist; None for main.

    Returns:
        (`huggingface_hub.CommitInfo`, `Entry` of the published weights, pinned).

    Raises:
        ValueError: The folder has no certificate with the verdict PASSED, its original
            was not pinned, or the upload failed.
    """
    folder = Path(os.path.expanduser(folder))
    record = read_record(folder)
    certificate = check_certificate(folder)
    original = entry_of(record, folder)
    check_pin(folder, original, certificate)
    tensors = folder / "model.safetensors"
    size, sha256 = tensors.stat().st_size, file_hash(tensors)
    entry = published_entry(original, record, repository, size, sha256)
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8")
    if title := re.search(r"(?m)^# (\S+/\S+)$", text):
        branch = f"@{revision}" if revision else ""
        text = text.replace(title[1], repository + branch)
    client, _ = prepare(
        repository, private=private, endpoint=endpoint, revision=revision
    )
    with tempfile.TemporaryDirectory() as temporary:
        staged = Path(temporary)
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
    write_text(card, text)
    return info, dataclasses.replace(entry, revision=info.oid)


def check_pin(folder: Path, entry: Entry, certificate: Certificate) -> None:
    """Checks that a folder was converted from, and compared with, the pinned file.

    Args:
        folder: Path of the folder, for the message.
        entry: Entry of the original.
        certificate: Certificate of the folder.

    Raises:
        ValueError: The file was another one or is not pinned.
    """
    if is_of_pin(entry, certificate):
        return
    name = f"{entry.model}/{entry.tag}"
    pin = "" if entry.sha256 else f"python -m weights.lock --pin {name}, then "
    raise ValueError(
        f"{folder} was not converted from a file known to be {entry.source}, or was "
        f"not compared with one. Run {pin}python -m weights.convert {name} and "
        "python -m weights.verify again."
    )


def is_of_pin(entry: Entry, certificate: Certificate) -> bool:
    """Returns whether a certificate is of the file that an entry pins."""
    files = (certificate.converted_from, certificate.compared_with)
    return all(file and file.pinned and file.sha256 == entry.sha256 for file in files)


def published_entry(
    entry: Entry, record: dict, repository: str, size: int, sha256: str
) -> Entry:
    """Returns the manifest's entry of converted weights in their new repository.

    Args:
        entry: Entry of the original.
        record: Record in the config.json of the converted folder.
        repository: "user/name".
        size: Size of model.safetensors in bytes.
        sha256: SHA-256 of model.safetensors.
    """
    height, width = record["preprocessing"]["size"]
    side = height if height == width else [height, width]
    facts = {key: getattr(entry, key) for key in FILE_FIELDS}
    return dataclasses.replace(
        entry,
        source=repository,
        format=record["weights_format"],
        classes=record["kwargs"]["num_classes"],
        megabytes=max(1, round(size / 1e6)),
        preprocessing={**record["preprocessing"], "size": side},
        head=None,  # a zeroed head was omitted
        arguments=None,  # its config.json states all
        revision=None,  # set after the upload
        size=size,
        sha256=sha256,
        made_from={k: fact for k, fact in facts.items() if fact is not None},
    )


def as_toml(entry: Entry) -> str:
    """Returns the table of an entry for sources.toml."""
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
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m weights.publish",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder")
    parser.add_argument("repository", metavar="user/name")
    parser.add_argument("--private", action="store_true", default=None)
    parser.add_argument("--endpoint", help="URL of another Hub")
    parser.add_argument("--revision", help="branch, created if it does not exist")
    options = vars(parser.parse_args(arguments))
    try:
        info, entry = publish(**options)
    except (ValueError, OSError) as error:
        sys.exit(f"Error: {error}")
    print(
        f"{info.commit_url}\n\nTable of {entry.model}/{entry.tag} for sources.toml:\n\n"
        f"{as_toml(entry)}\n\nThen: python -m weights.lock"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
