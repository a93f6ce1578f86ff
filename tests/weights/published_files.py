"""Files with the names, shapes and dtypes of the published ones, and random values.

The lists of tensors are in the folder `published`.
"""

import functools
import hashlib
import io
import json
import math
import re
import zipfile
from pathlib import Path

import numpy as np

import kerasvit
from tests.weights.published.lists import unfold
from weights.names import name_of

FOLDER = Path(__file__).with_name("published")
LABELS = Path(__file__).parents[2] / "kerasvit" / "imagenet1k.txt"
BLOCK = 1_000_003  # random numbers that are repeated; odd, so that rows differ
LARGE = 1_000_000_000  # bytes; of larger files, a narrow copy is served
DTYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8"}
ZEROS = bytes(1 << 20)
# transformers' ViTImageProcessor, as in google/vit-large-patch16-224.
PROCESSOR = {"do_normalize": True, "do_resize": True, "resample": 2}
PROCESSOR |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


@functools.cache
def _json(name):
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def layouts(entry):
    """The possible layouts of an entry's file, the likely one first.

    Returns:
        List of (name of the list, {"classes", "rows"}).
    """
    return [
        (each["list"], {"classes": each["classes"], "rows": each["rows"]})
        for each in _json("entries.json")[name_of(entry)]
    ]


def tensors_of(entry, layout=0, narrow=False):
    """Returns {tensor name: (shape, dtype)} of an entry's file.

    Args:
        entry: `kerasvit.hub.manifest.Entry`.
        layout: Number of the layout.
        narrow: Whether to divide the widths, see `narrow_lines`.
    """
    name, sizes = layouts(entry)[layout]
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    if narrow:
        lines = narrow_lines(lines)
    return unfold(lines, **sizes)


def size_of(tensors):
    """Number of bytes of the tensors."""
    return sum(
        math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
        for shape, dtype in tensors.values()
    )


def is_large(entry):
    """Whether the file has more than 1 GB."""
    return size_of(tensors_of(entry)) > LARGE


def narrow_lines(lines):
    """Returns a list of tensors for a narrower model of the same depth and names.

    A Vision Transformer gets a quarter of the heads, a ResNet the width factor 1.
    """
    text = "\n".join(lines)
    if "embed" not in text:
        root = r"(?:root_block/standardized_conv2d/kernel|stem\.conv\.weight) F32 (.*)"
        sizes = [int(size) for size in re.search(root, text)[1].split()]
        factor, skipped = max(sizes[0], sizes[-1]) // 64, ()
    else:
        # 1,024 positions or classes of as many entries have {rows} or {classes} twice.
        text = re.sub(r"(pos_embed F32 1 \{rows\}) \{rows\}", r"\1 1024", text)
        text = re.sub(r"(head.weight F32 \{classes\}) \{classes\}", r"\1 1024", text)
        lines = text.splitlines()
        factor = 4
        skipped = ("patch_embed.backbone", "block", "conv_root", "gn_root")

    def divided(line):
        name, dtype, *sizes = line.split()
        if name.startswith(skipped) and not name.startswith("blocks."):
            return line
        axes = range(len(sizes))
        if name in ("patch_embed.proj.weight", "embedding/kernel"):  # only the output
            axes = [0] if name.endswith("weight") else [3]
        if name == "rope.freqs":  # (2, blocks, heads, d/2)
            axes, sizes[2] = [], str(int(sizes[2]) // factor)
        for axis in axes:
            size = sizes[axis]
            if size.isdigit() and (int(size) >= 64 or "MultiHead" in name):
                heads = "MultiHead" in name and int(size) in (64, 80)
                kept = size == "1000" or int(size) % factor or heads
                sizes[axis] = size if kept else str(int(size) // factor)
        return " ".join((name, dtype, *sizes))

    return [line if line.startswith("#") else divided(line) for line in lines]


def json_files(entry, narrow=False):
    """Returns {name: bytes} of the configuration files of an entry's repository.

    Args:
        entry: `kerasvit.hub.manifest.Entry`.
        narrow: Whether the tensors are those of the narrow copy.
    """
    if not entry.on_hub:
        return {}
    config = dict(_json("configs.json")[name_of(entry)])
    if narrow and entry.format == "transformers":
        for key in ("num_attention_heads", "hidden_size", "intermediate_size"):
            config[key] //= 4
    elif narrow and config["architecture"].startswith("resnetv2"):
        name = config["architecture"]
        config["architecture"] = re.sub(r"x\d_bit", "x1_bit", name)
    elif narrow:
        width = config["num_features"]
        heads = getattr(kerasvit, entry.model).numbers["num_heads"]
        config["num_features"] = width // 4
        config["model_args"] = {"embed_dim": width // 4, "num_heads": heads // 4}
    files = {"config.json": config}
    if entry.format == "transformers":
        names = LABELS.read_text(encoding="utf-8").splitlines()
        names = [name for name in names if not name.startswith("#")]
        config["id2label"] = {str(i): name for i, name in enumerate(names)}
        config["label2id"] = {name: i for i, name in enumerate(names)}
        files["preprocessor_config.json"] = {**PROCESSOR, "size": config["image_size"]}
    return {
        name: json.dumps(content, indent=2).encode() for name, content in files.items()
    }


def write(path, entry, *, layout=0, narrow=False, random=True):
    """Writes the file of an entry, piece by piece.

    Args:
        path: Path, which ends in .safetensors or .npz.
        entry: `kerasvit.hub.manifest.Entry`; a head that is "zeroed" is zeros.
        layout: Number of the layout.
        narrow: Whether to write a narrow copy.
        random: False writes zeros, which take no space on the disk.
    """
    tensors = tensors_of(entry, layout, narrow)
    with _SparseFile(path, "w") as file:
        writer = _write_npz if Path(path).suffix == ".npz" else _write_safetensors
        zeroed = entry.head == "zeroed"
        writer(
            file, tensors, lambda name: _pieces(name, *tensors[name], random, zeroed)
        )
        file.truncate(file.tell())


def write_zeros(path, tensors):
    """Writes a .safetensors file of zeros, which take no space on the disk.

    Args:
        path: Path of the file.
        tensors: {name: (shape, dtype)}.
    """
    with _SparseFile(path, "w") as file:
        _write_safetensors(
            file, tensors, lambda name: _pieces(name, *tensors[name], False, False)
        )
        file.truncate(file.tell())


class _SparseFile(io.FileIO):
    """A file in which blocks of zeros take no space."""

    def write(self, data):
        if data is ZEROS:
            self.seek(len(ZEROS), io.SEEK_CUR)
            return len(ZEROS)
        return super().write(data)


def _write_safetensors(file, tensors, pieces):
    # Tensors of larger items first, so that all are aligned.
    order = sorted(tensors, key=lambda name: (-_items(tensors[name])[1], name))
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name in order:
        shape, dtype = tensors[name]
        start, end = end, end + math.prod(_items(tensors[name]))
        offsets = [start, end]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        for piece in pieces(name):
            file.write(piece)


def _write_npz(file, tensors, pieces):
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, (shape, dtype) in tensors.items():
            header = {"descr": DTYPES[dtype], "fortran_order": False, "shape": shape}
            info = zipfile.ZipInfo(f"{name}.npy")  # without the time, which changes
            with archive.open(info, "w", force_zip64=True) as member:
                start = io.BytesIO()
                np.lib.format.write_array_header_1_0(start, header)
                member.write(start.getvalue())
                for piece in pieces(name):
                    member.write(piece)


def _items(tensor):
    """(number of items, bytes of an item)."""
    shape, dtype = tensor
    return math.prod(shape), np.dtype(DTYPES[dtype]).itemsize


def _pieces(name, shape, dtype, random, zeroed):
    """Yields the bytes of a tensor."""
    head = re.match(r"(params/|opt/target/)?(head|classifier|resnet/head)", name)
    if not random or (zeroed and head) or dtype != "F32" or name.endswith("attn_mask"):
        size = math.prod(_items((shape, dtype)))
        yield from [ZEROS] * (size // len(ZEROS))
        yield ZEROS[: size % len(ZEROS)]
        return
    block = _block()
    first = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little") % BLOCK
    block = np.concatenate([block[first:], block[:first]])
    if re.search(r"(norm\w*|gn\w*|LayerNorm_\d)[./](weight|scale|gamma)|\.gamma", name):
        block = 1 + 0.1 * block
    elif len([size for size in shape if size > 1]) < 2 or "pos_embed" in name:
        block = 0.1 * block
    else:
        transposed = not name.endswith("kernel")
        inputs = math.prod(shape[1:] if transposed else shape[:-1])
        block = block / math.sqrt(inputs)
    count, block = math.prod(shape), block.astype("<f4")
    for _ in range(count // BLOCK):
        yield block.tobytes()
    yield block[: count % BLOCK].tobytes()


@functools.cache
def _block():
    return np.random.default_rng(0).normal(size=BLOCK)
