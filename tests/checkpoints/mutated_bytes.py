"""Mutates a tensor file: its bytes, its header, its arrays."""

import io
import json
import struct
import warnings
import zipfile

import numpy as np

from tests.checkpoints import mutated_json


def mutate(dice, folder, relative):
    """Changes the file of tensors in a folder; returns the allowed change."""
    path = folder / relative
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file() or path.stat().st_size > 2**24:
        return "same"
    content = path.read_bytes()
    if not content or dice.random() < 0.4:
        changed = raw(dice, content)
    elif path.suffix == ".npz":
        changed = _archive(dice, content)
    else:
        changed = _header(dice, content)
    path.write_bytes(changed)
    return "same" if changed == content else "bytes"


def raw(dice, content):
    """Returns the content with changed, moved, lost or more bytes."""
    data, way = bytearray(content), dice.randrange(7)
    size = len(data)
    near = min(size, dice.choice([64, 2000, size]))  # headers are at the beginning
    if not size or way == 0:
        return bytes(data[: dice.randrange(size + 1)])
    if way == 1:
        return content + dice.randbytes(dice.choice([1, 8, 5000]))
    start = dice.randrange(near)
    if way == 2:
        data[start : start + dice.choice([1, 8, 512])] = b""
    elif way == 3:
        block = data[start : start + dice.choice([8, 64, 512])]
        data[dice.randrange(size) :][: len(block)] = block
        data[start:start] = block
    elif way == 4:
        data[start : start + 64] = dice.choice([b"\0", b"\xff", b"9"]) * 64
    elif way == 5 and size > 8:
        length = dice.choice([0, 1, 2**31, 2**63, 2**64 - 1, size, size - 8])
        data[:8] = struct.pack("<Q", length)
    else:
        for _ in range(dice.choice([1, 1, 4, 64])):
            data[dice.randrange(near)] ^= 1 << dice.randrange(8)
    return bytes(data)


def _header(dice, content):
    """A `.safetensors` file with another header."""
    try:
        length = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8 : 8 + length])
        name = dice.choice([key for key in header if key != "__metadata__"])
        entry = dict(header[name])
    except Exception:  # it was mutated before
        return raw(dice, content)
    data, way = content[8 + length :], dice.randrange(9)
    if way == 0:
        header[_renamed(dice, name)] = header.pop(name)
    elif way == 1:
        header[_renamed(dice, name)] = entry
    elif way == 2:
        header.pop(name)
    elif way == 3:
        entry["shape"] = _shape(dice, entry.get("shape"))
    elif way == 4:
        entry["dtype"] = dice.choice(["F16", "BF16", "I32", "F64", "BOOL", "X", 3])
    elif way == 5:
        entry["data_offsets"] = [dice.choice([0, 4, -1, 2**63, len(data)])] * 2
    elif way == 6:
        header["__metadata__"] = mutated_json.value(dice)
    elif way == 7:  # the offsets of another tensor
        other = dice.choice(list(header))
        header[name], header[other] = header[other], entry
    else:
        mutated_json.change(dice, header)
    if way in (3, 4, 5):
        header[name] = entry
    text = mutated_json.text(dice, header)
    if way == 1:  # a copied tensor and a correct header
        text, data = _with_copy(content, name, _renamed(dice, name))
    return struct.pack("<Q", len(text)) + text + data


def _with_copy(content, name, other):
    from safetensors.numpy import load, save

    try:
        tensors = load(content)
        tensors[other] = tensors[name] + 1
        content = save(tensors)
    except Exception:  # it was mutated before
        pass
    length = struct.unpack("<Q", content[:8])[0]
    return content[8 : 8 + length], content[8 + length :]


def _renamed(dice, name):
    before = ("module.", "model.", "vit.", "params/", "opt/target/", "state_dict.", "")
    behind = ("", "", "", "_1", "\n", "\x1b[31m", "\0", "0", "é", "." * 300)
    return dice.choice(before) + name + dice.choice(behind)


def _shape(dice, shape):
    sides = list(shape) if isinstance(shape, (list, tuple)) else []
    if sides:
        odd = (0, 1, -1, True, 2**31, 2**63, 10**30, 1.0, "4", None)
        sides[dice.randrange(len(sides))] = dice.choice(odd)
    return dice.choice([sides, sides, sides[::-1], [*sides, 1], sides[:-1], [], None])


def _archive(dice, content):
    """An `.npz` file with other members."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {n: archive.read(n) for n in archive.namelist()}
        name = dice.choice(list(members))
    except Exception:  # it was mutated before
        return raw(dice, content)
    way, others = dice.randrange(7), []
    if way == 0:
        members[f"{_renamed(dice, name[:-4])}.npy"] = members.pop(name)
    elif way == 1:
        others = [(f"{_renamed(dice, name[:-4])}.npy", members[name])]
    elif way == 2:
        members.pop(name)
    elif way == 3:
        members[name] = _npy(dice, members[name])
    elif way == 4:
        members[name] = raw(dice, members[name])
    elif way == 5:
        others = [(dice.choice(["a.txt", "../../x.npy", "a/", "a"]), dice.randbytes(9))]
    else:
        other = dice.choice(list(members))
        members[name], members[other] = members[other], members[name]
    method = dice.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
        warnings.simplefilter("ignore")  # of names that are there twice
        for key, value in [*members.items(), *others]:
            archive.writestr(key, value)
    return buffer.getvalue()


def _npy(dice, member):
    """An array with another header for the same bytes."""
    try:
        array = np.load(io.BytesIO(member))
    except ValueError:
        return member
    shape, descr = array.shape, array.dtype.str
    if dice.random() < 0.6:
        shape = _shape(dice, shape)
        shape = tuple(shape) if isinstance(shape, list) else shape
    else:
        kinds = ("|O", "<i4", ">f4", "<f2", "|V4", "<U1", "<c8", ("<f4", (1,)), "x\n")
        descr = dice.choice(kinds)
    header = {"descr": descr, "fortran_order": dice.choice([False, True, 1])}
    start = repr({**header, "shape": shape}).encode() + b" " * dice.choice(
        [1, 99, 9**5]
    )
    version, form = (1, "<H") if len(start) < 65_000 else (2, "<I")
    head = b"\x93NUMPY" + bytes([version, 0]) + struct.pack(form, len(start) + 1)
    return head + start + b"\n" + array.tobytes()
