"""Checks that a dataset of tensorflow-datasets is available or can be downloaded.

Without a network, tensorflow-datasets retries for minutes, and its import takes
seconds. This module connects to the servers once and does not import it.
"""

import importlib.util
import socket
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from command.names import BUILT_IN, data_location

# tensorflow-datasets tries this server first.
PREPARED = ("storage.googleapis.com", 443)
PORTS = {"https": 443, "http": 80, "ftp": 21}
TIMEOUT = 5.0  # seconds


def check(dataset: str, setting: str = "dataset", images: str = "--data") -> None:
    """Raises a `ValueError` if a dataset is `missing`.

    Args:
        dataset: Name of the dataset.
        setting: Name of the setting that has its name.
        images: Option for images of the user.
    """
    location = data_location()
    if hosts := missing(dataset):
        raise ValueError(
            f"`{setting}`: {dataset} is not in {location}, and no server that has it "
            f"can be reached: {', '.join(hosts)}. Prepare it with internet access:\n"
            f'    python -c "import tensorflow_datasets as t; t.load({dataset!r})"\n'
            f"and copy its folder into {location}; or give images with {images}."
        )


def missing(dataset: str) -> list[str]:
    """Returns the servers of a dataset that is not available, if none answers; else [].

    They are not asked behind a proxy, for datasets whose URLs tensorflow-datasets does
    not list, and if a download has begun.
    """
    name = dataset.split("/")[0].split(":")[0]
    if dataset in BUILT_IN or urllib.request.getproxies():
        return []
    location = data_location()
    root = Path(location).expanduser()
    local = [*root.glob(f"{name}/**/dataset_info.json"), *root.glob("downloads/*.INFO")]
    local += root.glob("downloads/*/*.INFO")
    addresses = [] if "://" in location or local else servers(name)
    if not addresses or any_answers([*addresses, PREPARED]):
        return []
    return [host for host, _ in addresses]


def servers(name: str) -> list[tuple[str, int]]:
    """Returns (host, port) of the files that tensorflow-datasets lists."""
    found = importlib.util.find_spec("tensorflow_datasets")  # imports nothing
    known = set()
    for root in found.submodule_search_locations if found else ():
        for file in (f"datasets/{name}/checksums.tsv", f"url_checksums/{name}.txt"):
            if (path := Path(root) / file).is_file():
                lines = path.read_text(encoding="utf-8").splitlines()
                urls = [urlsplit(line.split()[0]) for line in lines if line.strip()]
                known |= {
                    (url.hostname, url.port or PORTS[url.scheme])
                    for url in urls
                    if url.scheme in PORTS  # not comments and manual downloads
                }
    return sorted(known)


def any_answers(servers: list[tuple[str, int]]) -> bool:
    """Returns whether a server accepts a connection; tries all at the same time."""
    answered, done = threading.Event(), threading.Semaphore(0)

    def ask(address):
        try:
            socket.create_connection(address, TIMEOUT).close()
            answered.set()
        except OSError:
            pass
        done.release()

    for address in servers:  # in threads, because name resolution has no timeout
        threading.Thread(target=ask, args=(address,), daemon=True).start()
    deadline = time.monotonic() + TIMEOUT
    for _ in servers:
        in_time = done.acquire(timeout=max(0.0, deadline - time.monotonic()))
        if answered.is_set() or not in_time:
            break
    return answered.is_set()
