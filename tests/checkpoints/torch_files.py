"""Makes files with the real `torch.save`, and others that no library would write.

`python -m tests.checkpoints.torch_files` writes the files in `files/`, by which
the reader is tested without PyTorch.
"""

import argparse
import io
import pathlib
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

FILES = Path(__file__).parent / "files"
GOLDEN = Path(__file__).parents[1] / "golden" / "models"
FORMS = {"zip": True, "older": False}
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16")
DTYPES += ("int8", "uint8", "bool")
ARRAY = np.arange(24, dtype="float32").reshape(4, 6)
# {name: what NumPy makes of ARRAY}, of tensors that share one storage.
VIEWS = {
    "whole": lambda a: a,
    "tied": lambda a: a,
    "transposed": lambda a: a.T,
    "strided": lambda a: a[1:, ::2],
    "row": lambda a: a[2],
    "element": lambda a: a[3, 5],
    "empty": lambda a: a[:0],
}


def golden():
    """{name: array} of a ViT with timm's names."""
    return load_file(GOLDEN / "timm_vit" / "model.safetensors")


def tensors(arrays):
    """{name: tensor}, also of bfloat16, which NumPy does not share with PyTorch."""
    import torch

    return OrderedDict(
        (name, torch.from_numpy(np.array(array))) for name, array in arrays.items()
    )


def kinds():
    """Tensors of all dtypes, views of one storage, and a parameter with attributes."""
    import torch

    values = {name: torch.tensor([0, 1, 2]).to(getattr(torch, name)) for name in DTYPES}
    shared = torch.from_numpy(ARRAY.copy())
    values |= {name: view(shared) for name, view in VIEWS.items()}
    values["parameter"] = torch.nn.Parameter(shared)
    values["parameter"].note = "an attribute"
    return values


def training(model, **more):
    """What a training script saves: the model among other objects."""
    import torch

    some = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(some.parameters())
    some(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return {
        "model": model,
        "optimizer": optimizer.state_dict(),
        "args": argparse.Namespace(out=pathlib.PosixPath("runs"), lr=1e-3),
        "best": np.float64(0.5),
        "history": np.arange(3.0),
        "names": {"a", "b"},
        "size": torch.Size([2, 3]),
        "dtype": torch.float32,
        "device": torch.device("cpu"),
        "random": torch.get_rng_state(),
        "more": [None, True, 2**70, b"bytes", (1, "ä"), {1: 2}, frozenset("c"), 1j],
        **more,
    }


def write(path, value, form="zip", **options):
    import torch

    torch.save(value, path, _use_new_zipfile_serialization=FORMS[form], **options)
    return path


def archive(path, pickle, members=(), method=zipfile.ZIP_STORED, order=b"little"):
    """An archive as `torch.save` writes it, of any pickle and storages."""
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("archive/data.pkl", pickle)
        members = {"byteorder": order, **dict(members)}
        for name, content in members.items():
            file.writestr(f"archive/{name}", content)
    return path


def contents(path):
    """{member: content} of an archive, without the name of its folder."""
    with zipfile.ZipFile(path) as file:
        return {name.split("/", 1)[1]: file.read(name) for name in file.namelist()}


START = (  # of a file of the older form
    b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.",
    b"\x80\x02M\xe9\x03.",
    b"\x80\x02}q\x00X\r\x00\x00\x00little_endianq\x01\x88s.",
)


def older(path, pickle, storages=()):
    """A file of the older form, of any pickle and {key: (elements, bytes)}."""
    keys = b"\x80\x02]" + b"".join(text(key) + b"a" for key, _ in storages) + b"."
    parts = [struct.pack("<q", count) + content for _, (count, content) in storages]
    path.write_bytes(b"".join([*START, pickle, keys, *parts]))
    return path


def text(value):
    """The instruction that pushes text."""
    value = value.encode()
    return b"X" + struct.pack("<I", len(value)) + value


def integer(value):
    """The instruction that pushes an integer."""
    return b"I%d\n" % value


def many(values):
    """The instructions that push a tuple."""
    return b"(" + b"".join(values) + b"t"


def storage(key="0", size=6, kind="torch\nFloatStorage"):
    """The instructions that push a storage."""
    named = b"c" + kind.encode() + b"\n"
    parts = [text("storage"), named, text(key), text("cpu"), integer(size)]
    return many(parts) + b"Q"


def tensor(shape=(2, 3), strides=(3, 1), offset=0, source=None):
    """The instructions that push a tensor."""
    sizes = [many(map(integer, sides)) for sides in (shape, strides)]
    arguments = [source or storage(), integer(offset), *sizes, b"\x89", b"N"]
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + many(arguments) + b"R"


def pickled(items):
    """A pickle of a dict; the values are instructions."""
    body = b"".join(text(key) + value + b"s" for key, value in items.items())
    return b"\x80\x02}" + body + b"."


def bytes_of(value):
    """What `torch.save` writes for a value, in the present form."""
    buffer = io.BytesIO()
    write(buffer, value)
    return buffer.getvalue()


if __name__ == "__main__":
    FILES.mkdir(exist_ok=True)
    for form in FORMS:
        model = tensors(golden())
        saved = training(model, kinds=kinds())
        write(FILES / f"{form}.pth", saved, form)
