"""Mutates files of `torch.save` from a seed, and reads them under observation.

`python -m tests.checkpoints.mutated_pickles FIRST COUNT` reads those of COUNT seeds and
ends with one line of JSON: how many were read, how many refused, and what failed.
"""

import argparse
import io
import json
import pathlib
import pickletools
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

from kerasvit.checkpoints import Checkpoint, CheckpointError
from kerasvit.checkpoints.reader import Reader
from tests.checkpoints import mutated_bytes, torch_files

SECONDS = 2  # of CPU time
# What no reader does; https://docs.python.org/3/library/audit_events.html
FORBIDDEN = ("import", "exec", "compile", "os.", "subprocess.", "socket.", "ctypes.")
FORBIDDEN += ("pickle.", "marshal.", "code.", "shutil.", "tempfile.", "pty.", "urllib.")
NAMES = ("os\nsystem", "posix\nsystem", "builtins\nexec", "builtins\neval")
NAMES += ("subprocess\nPopen", "torch\nload", "operator\ncall", "torch\nQInt8Storage")
NAMES += ("torch\nDoubleStorage", "torch._utils\n_rebuild_tensor", "builtins\ngetattr")
NAMES += ("torch._utils\n_rebuild_parameter", "collections\nOrderedDict", "no\nwhere")
# Runs a command where a machine runs what is named.
SHELL = b"cos\nsystem\n(X\x10\x00\x00\x00touch was_executedtR0"
ALONE = b"()].}02NRaeudsbtlQ\x8f\x85\x94\x93"  # instructions without an argument
INTEGERS = (-1, 0, 1, 2, 5, 63, 2**31, 2**62, 2**63, 2**64, 10**30)


class Watch:
    """Events of Python's audit that no reader causes, while it is on."""

    def __init__(self):
        self.on, self.events = False, []
        sys.addaudithook(self._note)

    def _note(self, event, arguments):
        if not self.on:
            return
        if event == "open":
            _, mode, flags = arguments
            if set(mode or "") & set("wax+") or flags & 0o3:
                self.events.append(f"{event} {arguments}")
        elif event.startswith(FORBIDDEN):
            self.events.append(f"{event} {arguments}"[:500])

    def __enter__(self):
        self.on, self.events = True, []

    def __exit__(self, *_):
        self.on = False


def mutated(dice):
    """Returns the content of a mutated file."""
    form = dice.choice(list(torch_files.FORMS))
    content = (torch_files.FILES / f"{form}.pth").read_bytes()
    if dice.random() < 0.3:
        return mutated_bytes.raw(dice, content)
    if form == "older":
        file = io.BytesIO(content)
        for _ in torch_files.START:
            list(pickletools.genops(file))
        start = file.tell()
        body = _program(dice, file)
        return content[:start] + body + file.read()
    members = torch_files.contents(torch_files.FILES / "zip.pth")
    name = dice.choice(["data.pkl"] * 8 + list(members))
    if name == "data.pkl":
        members[name] = _program(dice, io.BytesIO(members[name]))
    elif dice.random() < 0.5:
        members[name] = mutated_bytes.raw(dice, members[name])
    else:
        members[dice.choice(list(members))] = members.pop(name)
    buffer = io.BytesIO()
    pickle = members.pop("data.pkl", b"")
    torch_files.archive(buffer, pickle, members)
    return buffer.getvalue()


def _program(dice, file):
    """Returns the pickle at the position of a file with other instructions."""
    content = file.getvalue()
    places = [place for _, _, place in pickletools.genops(file)]
    ends = [*places[1:], file.tell()]
    parts = [content[a:b] for a, b in zip(places, ends, strict=True)]
    for _ in range(dice.choice([1, 1, 2, 8])):
        _change(dice, parts)
    return b"".join(parts)


def _change(dice, parts):
    way, at = dice.randrange(9), dice.randrange(1, len(parts))
    if way == 0:
        del parts[at : at + dice.choice([1, 1, 3, 40])]
    elif way == 1:
        parts.insert(at, dice.choice(parts))
    elif way == 2:
        other = dice.randrange(len(parts))
        parts[at], parts[other] = parts[other], parts[at]
    elif way == 3:
        parts.insert(at, SHELL)
    elif way == 4:
        parts.insert(at, bytes([dice.choice(ALONE)]))
    else:
        kinds = {5: b"c", 6: b"KMJI\x8a", 7: b"X\x8c", 8: b"hqrj"}[way]
        fitting = [i for i, part in enumerate(parts) if part[:1] and part[0] in kinds]
        if fitting:
            parts[dice.choice(fitting)] = _other(dice, way)


def _other(dice, way):
    if way == 5:
        return b"c" + dice.choice(NAMES).encode() + b"\n"
    if way == 6:
        return torch_files.integer(dice.choice(INTEGERS))
    if way == 7:
        return torch_files.text(dice.choice(["", "0", "storage", "é\0", "../x", "a.b"]))
    return dice.choice([b"h\x00", b"q\x00", b"r\xff\xff\xff\xff", b"j\xff\xff\xff\x7f"])


def _read(path):
    """Returns {name: values} of all tensors of a file, after opening it as a model."""
    reader = Reader(path)
    arrays = {name: reader._get(name) for name in reader.shapes}
    try:
        found = Checkpoint(path)
        for name in found.shapes:
            found[name]
    except CheckpointError:
        pass
    return arrays


def differences(arrays, path):
    """How the values differ from those that PyTorch reads, or None."""
    try:
        import torch
    except ImportError:
        return None
    try:
        with torch.serialization.safe_globals(_harmless()):
            root = torch.load(path, weights_only=True)
    except Exception:  # it reads less
        return None
    for name, array in arrays.items():
        tensor = root
        for key in name.split("."):
            tensor = tensor.get(key) if isinstance(tensor, dict) else None
        # A name with dots is one key of the last dict.
        if tensor is None:
            state, _, key = name.partition(".")
            tensor = root.get(state, {}).get(key) if isinstance(root, dict) else None
        if isinstance(tensor, torch.Tensor):
            theirs = tensor.detach().to(torch.float64).numpy()
            if not np.array_equal(theirs, array.astype(float), equal_nan=True):
                return f"{name} has other values than in PyTorch"
    return None


def _harmless():
    """The classes in the files of `torch_files`, which PyTorch does not make itself."""
    multiarray = np._core.multiarray
    kinds = [argparse.Namespace, pathlib.PosixPath, frozenset, complex]
    kinds += [np.ndarray, np.dtype, type(np.dtype(float))]
    return [*kinds, multiarray.scalar, multiarray._reconstruct]


def attempt(watch, seed, folder):
    """Returns ("read" or "refused", None) or ("failed", reason) for one seed."""
    path = Path(folder) / "x.pth"
    path.write_bytes(mutated(random.Random(seed)))
    before = sorted(Path(folder).iterdir()), path.read_bytes()
    start = time.process_time()
    arrays = None
    try:
        with watch:
            arrays = _read(path)
    except CheckpointError as error:
        if not str(error).replace("\n", "").isprintable():
            return "failed", f"a message that does not print: {str(error)!r:.300}"
    except BaseException:
        return "failed", traceback.format_exc()[-1500:]
    seconds = time.process_time() - start
    if watch.events:
        return "failed", f"{watch.events[:5]}"
    if seconds > SECONDS:
        return "failed", f"{seconds:.1f} seconds"
    if before != (sorted(Path(folder).iterdir()), path.read_bytes()):
        return "failed", "a file was touched"
    if arrays is None:
        return "refused", None
    wrong = differences(arrays, path)
    return ("failed", wrong) if wrong else ("read", None)


def run(first, count):
    """{"read", "refused": numbers, "failed": {seed: why}} of so many seeds."""
    outcomes = {"read": 0, "refused": 0, "failed": {}}
    for form in torch_files.FORMS:  # so that all modules are imported
        _read(torch_files.FILES / f"{form}.pth")
    _read(torch_files.GOLDEN / "timm_vit" / "model.safetensors")
    "".encode("cp437")  # of names in archives
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            outcome, why = attempt(watch, seed, folder)
            if why:
                outcomes["failed"][seed] = why
            else:
                outcomes[outcome] += 1
    return outcomes


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))
