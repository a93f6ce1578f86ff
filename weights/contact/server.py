"""Questions of `weights.first_contact` to the server of a file, without the file."""

import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING

from kerasvit.hub.errors import is_busy, retried
from kerasvit.hub.manifest import Entry
from kerasvit.hub.servers import PATIENCE

from ..lock import PINS, pin, repository_info
from .failures import ABSENT, ContactError

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo


@dataclass(frozen=True)
class Listing:
    """What a server states about a file.

    Attributes:
        size: Bytes, or None.
        licence: SPDX identifier on the model card, or None.
        info: Answer of the Hub for the repository, or None for other servers.
    """

    size: int | None
    licence: str | None = None
    info: "ModelInfo | None" = None


def look_up(entry: Entry) -> Listing:
    """Asks the server for a file.

    Raises:
        ContactError: The server does not have the file, or not for everyone.
        OSError, httpx2.HTTPError: The Hub does not answer or refuses.
    """
    if not entry.on_hub:
        return Listing(_length_of(entry.source))
    info = repository_info(entry.source, entry.revision)
    if info.gated:
        raise ContactError(
            "name", f"{entry.source} is gated: only users who consented may read it."
        )
    files = {file.rfilename: file.size for file in info.siblings or ()}
    if entry.filename not in files:
        has = ", ".join(sorted(files)[:10]) or "no files"
        raise ContactError(
            "name", f"{entry.source} has no {entry.filename}. It has: {has}."
        )
    return Listing(files[entry.filename], _licence_on(info), info)


def check_licence(entry: Entry, listing: Listing) -> None:
    """Compares the licence on the card with the catalogue's; addresses have no card.

    Raises:
        ContactError: The card states another licence, or none.
    """
    stated = listing.licence
    if entry.on_hub and (stated or "").lower() != entry.license.lower():
        raise ContactError(
            "licence",
            f"The model card of {entry.source} states "
            f"{f'the licence {stated!r}' if stated else 'no licence'}; the catalogue "
            f"states {entry.license!r}.",
        )


def find_pins(entry: Entry, listing: Listing) -> dict:
    """Returns the pins of an entry: its own, or those of the file at the server.

    A file at an address is downloaded.

    Raises:
        ContactError: The server has another file than the pinned one.
        OSError: The download fails or does not match the hash that the server states.
    """
    pinned = {key: getattr(entry, key) for key in PINS}
    if entry.size and listing.size and entry.size != listing.size:
        raise _replaced(entry, f"{entry.size} bytes", f"{listing.size} bytes")
    found = dict.fromkeys(PINS) | pin(entry, info=listing.info)
    if not entry.sha256:
        return found
    if found["sha256"] != entry.sha256:
        raise _replaced(entry, f"SHA-256 {entry.sha256}", found["sha256"])
    return pinned | {"size": found["size"]}


def _replaced(entry: Entry, pinned: str, found: str) -> ContactError:
    return ContactError(
        "name",
        f"{entry.source} was replaced: {pinned} are pinned, and its server has {found}."
        " The pins are kept.",
        f"To accept the new file, remove {', '.join(PINS)} of this name from the "
        "manifest, and run the command again.",
    )


def _licence_on(info: "ModelInfo") -> str | None:
    """Returns the identifier in a card's metadata, or None."""
    stated = getattr(info.card_data, "license", None)
    if stated == "other":  # the card names it in another field
        stated = getattr(info.card_data, "license_name", None) or stated
    return stated if isinstance(stated, str) else None


def _length_of(address: str) -> int | None:
    """Returns the size of the file at an address, in bytes, or None if not stated."""
    request = urllib.request.Request(
        address, method="HEAD", headers={"User-Agent": "kerasvit"}
    )

    def ask() -> int | None:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            length = answer.headers.get("Content-Length", "")
            return int(length) if length.isdecimal() else None

    try:
        return retried(ask, _may_pass)
    except urllib.error.HTTPError as error:
        kind = "name" if error.code in ABSENT else "server"
        message = f"{address} is not available: the server answers {error.code}."
        raise ContactError(kind, message) from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error  # of a URLError
        message = f"{address} is not available: {type(error).__name__}: {reason}."
        raise ContactError("server", message) from error


def _may_pass(error: Exception) -> bool:
    code = getattr(error, "code", None)  # of an HTTPError
    return code is None or is_busy(code)
