"""Servers of the files of the catalogue."""

import ipaddress
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from kerasvit.hub.access import endpoint_of
from kerasvit.hub.manifest import MANIFEST, Entry


def server_of(entry: Entry) -> str:
    """Returns the address of the Hub, or of the server of a file.

    Raises:
        ValueError: HF_ENDPOINT is not an address.
    """
    if entry.on_hub:
        return endpoint_of()
    parts = urlsplit(entry.source)
    return f"{parts.scheme}://{parts.netloc}"


def is_local(server: str) -> bool:
    """Returns whether a server, with a file of random values, is this machine."""
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_servers(entries: Iterable[Entry], manifest: Path) -> None:
    """Checks that files of a local server are not pinned in the package's manifest.

    Raises:
        ValueError: They would be, or HF_ENDPOINT is not an address.
    """
    local = sorted({server for server in map(server_of, entries) if is_local(server)})
    if local and manifest.resolve() == MANIFEST.resolve():
        raise ValueError(
            f"The files of {', '.join(local)} would be pinned in the package's "
            "manifest. Use a copy of it: python -m weights.first_contact --manifest."
        )
