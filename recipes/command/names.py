"""Names of models and datasets, and whether a dataset's server answers."""

import ast
import difflib
import importlib.util
import os
import socket
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

# Names of `kerasvit.data.built_in`, whose import takes seconds.
BUILT_IN = ("digits", "mnist_subset", "debian_fashion_mnist")
# tensorflow-datasets tries this server first.
PREPARED = ("storage.googleapis.com", 443)
PORTS = {"https": 443, "http": 80, "ftp": 21}
TIMEOUT = 5.0  # seconds


def check_model(name: str, small=()) -> None:
    """Raises a `ValueError` for a model that does not exist.

    Args:
        name: Name of a model.
        small: Names of the models that the recipe defines.
    """
    check_name("model", name, [*small, *models()])


def check_model_or_path(name: str, setting: str) -> None:
    """Raises a `ValueError` for what is no path and no name of a model."""
    path = Path(os.path.expanduser(name))
    if "://" in name or path.exists():
        return
    variant, _, tag = name.partition("/")
    of_kerasvit = tag and variant in models()
    of_keras = name.isidentifier() and name[0].isupper()  # such as ResNet50
    if not of_kerasvit and not of_keras:
        raise ValueError(
            f"`{setting}`: there is no file or folder {name} (working directory: "
            f"{Path.cwd()}). Public weights are named as ViTB16/sam."
        )


def models() -> list[str]:
    """Returns `kerasvit.list_models()`, read from the families' source.

    A line of each defines a variant: `ViTB16 = _vit("ViTB16", …)`.
    """
    package = importlib.util.find_spec("kerasvit")  # imports nothing
    names = []
    for source in sorted((Path(package.origin).parent / "models").glob("*.py")):
        for statement in ast.parse(source.read_text(encoding="utf-8")).body:
            match statement:
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(args=[ast.Constant(value=given), _, *_]),
                ) if name == given:
                    names.append(name)
    return names


def check_dataset(name: str, setting: str = "dataset", others=()) -> None:
    """Raises a `ValueError` for a dataset that does not exist.

    Args:
        name: Name of a dataset of `BUILT_IN`, of tensorflow-datasets, or prepared in
            its folder; with or without `/config` and `:version`.
    """
    if name in BUILT_IN:
        return
    import tensorflow_datasets  # takes a second; imports TensorFlow later

    known = tensorflow_datasets.list_builders(with_community_datasets=False)
    root = Path(os.path.expanduser(data_location()))
    infos = [*root.glob("*/*/dataset_info.json"), *root.glob("*/*/*/dataset_info.json")]
    prepared = sorted({info.relative_to(root).parts[0] for info in infos})
    stem = name.split("/")[0].split(":")[0]
    check_name(setting, stem, [*others, *BUILT_IN, *prepared, *known])


def data_location() -> str:
    """Returns the folder or URL of the prepared datasets of tensorflow-datasets."""
    return os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"


def located(text: str) -> str:
    """Returns a text with this folder in place of the default one."""
    return text.replace("~/tensorflow_datasets", data_location())


def check_name(argument: str, name: str, known) -> None:
    """Raises a `ValueError` with close matches if `name` is not in `known`."""
    if name not in known:
        # Matches without case, so that vitb16 is close to ViTB16.
        lower = {other.lower(): other for other in known}
        near = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)
        near = [lower[match] for match in near] or list(known)[:20]
        near = ", ".join(near)
        raise ValueError(f"`{argument}`: there is no {name!r}. Close: {near}.")


def check_reachable(
    dataset: str, setting: str = "dataset", images: str = "--data"
) -> None:
    """Raises a `ValueError` of `missing_hosts`.

    Args:
        dataset: Name of the dataset.
        setting: Name of the setting that has its name.
        images: Option for images of the user.
    """
    location = data_location()
    if hosts := missing_hosts(dataset):
        raise ValueError(
            f"`{setting}`: {dataset} is not in {location}, and no server that has it "
            f"can be reached: {', '.join(hosts)}. Prepare it with internet access:\n"
            f'    python -c "import tensorflow_datasets as t; t.load({dataset!r})"\n'
            f"and copy its folder into {location}; or give images with {images}."
        )


def missing_hosts(dataset: str) -> list[str]:
    """Returns the servers of a dataset that is not available, if none answers; else [].

    They are not asked behind a proxy, for datasets whose URLs tensorflow-datasets does
    not list, and if a download has begun.
    """
    name = dataset.split("/")[0].split(":")[0]
    if dataset in BUILT_IN or urllib.request.getproxies():
        return []
    location = data_location()
    root = Path(os.path.expanduser(location))
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
