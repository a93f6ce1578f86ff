"""Jobs of the forked processes in a run of faults."""

import ctypes
import hashlib
import importlib.util
import io
import logging
import os
import signal
import sys
from pathlib import Path

for backend in ("torch", "jax", "tensorflow"):  # the quickest to start comes first
    if importlib.util.find_spec(backend):
        os.environ.setdefault("KERAS_BACKEND", backend)
        break

import numpy as np  # noqa: E402  (the backend is chosen above)

import kerasvit  # noqa: E402
from kerasvit.hub import errors, manifest  # noqa: E402
from tests.tiny_vit import TinyViT, random_model  # noqa: E402

from .accidents import NO_TIME  # noqa: E402

CAPABILITIES_VERSION = 0x20080522  # of Linux, 3


def perform(connection, job, arguments, conditions):
    """Runs one of `JOBS` and sends (its result or error, its log)."""
    logged = io.StringIO()
    logging.basicConfig(stream=logged, level=logging.DEBUG)
    sys.stderr = logged
    os.environ.update(conditions.pop("environment"))
    if job in ("by_name", "push"):
        _import_client()
    errors.PAUSES = (0, 0)
    _under(**conditions)
    try:
        result = JOBS[job](*arguments)
    except (ValueError, OSError) as error:
        result = f"{type(error).__name__}: {error}"
    connection.send((result, logged.getvalue()))


def _import_client():
    for name in [name for name in sys.modules if name.startswith("huggingface_hub")]:
        del sys.modules[name]  # it reads the environment when it is imported
    from huggingface_hub import errors, file_download, hf_api  # noqa: F401
    from huggingface_hub.utils import _http

    file_download.time = _http.time = NO_TIME


def _under(obedient=False, largest_file=None):
    if largest_file:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    if obedient and os.getuid() == 0:  # so that permissions apply to root
        header = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
        ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)())


def by_name(source):
    """Builds a model by name from this source; returns the hash of its weights."""
    entry = manifest.Entry(
        "TinyViT", "sam", source, "timm", 3, 1, "mit", {"size": 8, "crop": 0.5}
    )
    manifest.entries = lambda: (entry,)
    return weights_of(TinyViT("sam"))


def load(*folders):
    """ "hash/first class" of the models in folders."""
    models = [kerasvit.from_pretrained(folder) for folder in folders]
    return " ".join(f"{weights_of(m)}/{m.record['label_names'][0]}" for m in models)


def save(folder, seed, stop=0):
    """Saves a model of random weights; is killed at file operation number `stop`."""
    model = random_model(seed)
    left = [stop]

    def count(event, arguments):
        if event in ("open", "os.mkdir", "os.rename", "os.rmdir", "os.remove"):
            if str(folder) in str(arguments):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    kerasvit.save_pretrained(model, folder)
    return "saved"


def save_npz(folder, path):
    """Writes the tensors of a folder into a `.npz` file."""
    from safetensors.numpy import load_file

    np.savez(path, **load_file(Path(folder) / "model.safetensors"))
    return "saved"


def push(repository, seed):
    """Puts a model of random weights on the Hub."""
    kerasvit.push_to_hub(random_model(seed), repository)
    return "pushed"


def weights_of(model):
    """A short hash of all of a model's weights."""
    digest = hashlib.sha256()
    for value in model.get_weights():
        digest.update(value.tobytes())
    return digest.hexdigest()[:12]


JOBS = {job.__name__: job for job in (by_name, load, save, save_npz, push)}
