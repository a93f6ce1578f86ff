"""Downloads of single files from the authors' servers into a cache."""

import base64
import hashlib
import json
import logging
import os
import urllib.error
import urllib.request
from contextlib import suppress
from http.client import HTTPException, HTTPMessage
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from kerasvit.checkpoints import replace_file

from .errors import is_busy, retried
from .hashes import crc32c, file_hash, wrong_content

log = logging.getLogger("kerasvit")

PIECE = 1 << 20  # bytes
PATIENCE = 30  # timeout of a server in seconds
_BROKEN = (urllib.error.URLError, ConnectionError, TimeoutError, HTTPException)


def name_behind(address: str) -> str:
    """Returns the file name under which a browser saves an address."""
    return PurePosixPath(unquote(urlsplit(address).path)).name


def fetch_address(
    address: str,
    size: int | None = None,
    sha256: str | None = None,
    *,
    again: bool = False,
) -> Path:
    """Downloads a file from an address once, and returns its path.

    The file gets its final name only if it is complete and its hash is correct. The
    hash is compared with the pin, or else with the hash that Google's storage sends.

    Args:
        address: Address of the file, https.
        size: Expected size in bytes, or None.
        sha256: Expected SHA-256 in hex, or None.
        again: Whether to download a cached file again. The cached file is kept until
            a correct one has arrived.

    Returns:
        Path, as `path_in_cache` returns it.

    Raises:
        OSError: The file is not available, or its size or hash is wrong; the message
            explains it.
    """
    from filelock import FileLock
    from huggingface_hub import is_offline_mode

    path = path_in_cache(address)
    wrong = "must be downloaded again" if again else _wrong(path, address, sha256)
    if not wrong:
        return path
    if is_offline_mode():
        raise OSError(f"{address} {wrong}, and HF_HUB_OFFLINE is set.")
    with FileLock(path.with_name("lock")):
        # Another process may have downloaded the file meanwhile.
        wrong = None if again else _wrong(path, address, sha256)
        if wrong and path.exists():
            log.warning("%s %s. It is downloaded again.", address, wrong)
        if wrong or again:
            _download(address, path, size, sha256)
    return path


def path_in_cache(address: str) -> Path:
    """Returns the path in the assets cache of the Hub's client; creates its folder.

    It depends on the address, because different weights have the same file name.
    """
    from huggingface_hub import cached_assets_path

    folder = cached_assets_path(
        "kerasvit", namespace="weights", subfolder=key_of(address)
    )
    return folder / name_behind(address)


def key_of(address: str) -> str:
    """Returns the name of the folder of an address in the cache."""
    return hashlib.sha256(address.encode()).hexdigest()[:16]


def _wrong(path: Path, address: str, sha256: str | None) -> str | None:
    """Returns what is wrong with a cached file, or None."""
    if not path.exists():
        return "is not in the cache"
    noted = None
    with suppress(FileNotFoundError, ValueError, LookupError, TypeError):
        noted = str(json.loads(_note_of(path).read_text("utf-8"))["sha256"])
    known = sha256 or noted
    if not known:
        return f"is damaged in the cache, {path}: the note with its hash is missing"
    if wrong := wrong_content(path, digest=known):
        return f"is damaged in the cache, {path}: {wrong}"
    if known != noted:
        with suppress(OSError):  # a read-only cache
            _note(path, address, {"size": path.stat().st_size, "sha256": known})
    return None


def _note_of(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _note(path: Path, address: str, found: dict) -> None:
    replace_file(_note_of(path), json.dumps({"address": address, **found}).encode())


class _Passing(OSError):
    """A failure that a second attempt may fix."""


def _download(address: str, path: Path, size: int | None, sha256: str | None) -> None:
    unfinished = path.with_name(f".{path.name}")
    unfinished.unlink(missing_ok=True)  # left by a killed process

    def attempt() -> dict[str, Any]:
        promised = _google_hashes(_stream(address, unfinished))
        return _checked(unfinished, size, sha256, promised)

    try:
        found = retried(attempt, lambda error: isinstance(error, _Passing))
        _note_of(path).unlink(missing_ok=True)
        os.replace(unfinished, path)
        _note(path, address, found)
    except _Passing as error:
        raise OSError(f"{address} cannot be downloaded: {error}.") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _stream(address: str, unfinished: Path) -> HTTPMessage:
    """Downloads into a file, resumes a partial one, and returns the headers."""
    from huggingface_hub.utils import tqdm

    done = unfinished.stat().st_size if unfinished.exists() else 0
    request = urllib.request.Request(address, headers={"User-Agent": "kerasvit"})
    if done:
        request.add_header("Range", f"bytes={done}-")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            done = done if answer.status == 206 else 0
            rest = int(answer.headers.get("Content-Length", 0))
            counted = {"total": done + rest or None, "initial": done}
            bar = tqdm(**counted, unit="B", unit_scale=True, desc=unfinished.name)
            with unfinished.open("ab" if done else "wb") as file, bar:
                while piece := answer.read(PIECE):
                    file.write(piece)
                    bar.update(len(piece))
    except urllib.error.HTTPError as error:
        if is_busy(error.code):
            raise _Passing(f"the server answers {error.code}") from error
        message = f"{address} cannot be downloaded: the server answers {error.code}."
        raise OSError(message) from error
    except _BROKEN as error:
        raise _Passing(f"{type(error).__name__}: {error}") from error
    length = unfinished.stat().st_size
    if rest and length != done + rest:
        raise _Passing(f"{length} bytes came in place of {done + rest}")
    return answer.headers


def _google_hashes(headers: HTTPMessage) -> dict[str, str]:
    """Returns {kind: base64} of the hashes in the headers of Google's storage."""
    hashes = ",".join(headers.get_all("x-goog-hash", [])).split(",")
    return dict(value.strip().split("=", 1) for value in hashes if "=" in value)


def _checked(
    file: Path, size: int | None, sha256: str | None, promised: dict[str, str]
) -> dict[str, Any]:
    """Returns the size and SHA-256 of a correct file; removes a wrong file."""
    md5, crc = promised.get("md5"), promised.get("crc32c")  # in base64
    found: dict[str, Any] = {"size": file.stat().st_size, "sha256": file_hash(file)}
    pairs = [(size, found["size"]), (sha256, found["sha256"])]
    if md5:
        pairs.append((md5, _in_base64(file_hash(file, "md5"))))
    elif crc and not sha256:  # files uploaded in parts have no MD5
        pairs.append((crc, _in_base64(f"{crc32c(file):08x}")))
    wrong = [f"{has} in place of {due}" for due, has in pairs if due not in (None, has)]
    if not wrong and (sha256 or md5 or crc):
        return found
    file.unlink()
    if wrong:
        raise _Passing(
            f"it is not the file that was published, {wrong[0]}: a proxy changes it, "
            "or it was replaced"
        )
    raise _Passing(
        "the answer is not from the storage that has the file, which sends its hash: a "
        "proxy or a page to log in at comes between"
    )


def _in_base64(digits: str) -> str:
    return base64.b64encode(bytes.fromhex(digits)).decode()
