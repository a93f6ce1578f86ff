"""Whether a data set of tensorflow-datasets is here, or can be downloaded.

tensorflow-datasets tries ten times for minutes where there is no network, and its
import takes seconds. This asks the servers once, with neither.
"""

import importlib.util
import socket
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from built_in import SOURCES
from names import data_place

PREPARED = ("storage.googleapis.com", 443)  # tensorflow-datasets looks there first
PORTS = {"https": 443, "http": 80, "ftp": 21}
SECONDS = 5.0  # to wait for an answer


def check(dataset: str) -> None:
    """Raises a `ValueError` where a data set is not here and no server answers.

    Passes where it cannot know: behind a proxy, for a data set whose addresses
    tensorflow-datasets does not list, and once something of it was downloaded.
    """
    name = dataset.split("/")[0].split(":")[0]
    if dataset in SOURCES or urllib.request.getproxies():
        return
    place = data_place()
    root = Path(place).expanduser()
    here = [*root.glob(f"{name}/**/dataset_info.json"), *root.glob("downloads/*.INFO")]
    here += root.glob("downloads/*/*.INFO")
    having = [] if "://" in place or here else servers(name)
    if having and not any_answers([*having, PREPARED]):
        names = ", ".join(host for host, _ in having)
        raise ValueError(
            f"`dataset`: {dataset} is not in {place}, and no server that has it can be "
            f"reached: {names}. Prepare it where there is internet, with\n"
            f'    python -c "import tensorflow_datasets as t; t.load({dataset!r})"\n'
            f"and copy its folder into {place}; or give images with --data."
        )


def servers(name: str) -> list[tuple[str, int]]:
    """(host, port) of the files of a data set, as tensorflow-datasets lists them."""
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
                    if url.scheme in PORTS  # others: comments, and files got by hand
                }
    return sorted(known)


def any_answers(servers: list[tuple[str, int]]) -> bool:
    """Whether one of them takes a connection; all are asked at once."""
    answered, done = threading.Event(), threading.Semaphore(0)

    def ask(address):
        try:
            socket.create_connection(address, SECONDS).close()
            answered.set()
        except OSError:
            pass
        done.release()

    for address in servers:  # threads: the look-up of a name has no time limit
        threading.Thread(target=ask, args=(address,), daemon=True).start()
    deadline = time.monotonic() + SECONDS
    for _ in servers:
        in_time = done.acquire(timeout=max(0.0, deadline - time.monotonic()))
        if answered.is_set() or not in_time:
            break
    return answered.is_set()
