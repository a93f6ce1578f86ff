"""Reads and writes lists of tensors: a name, a dtype and a shape in each line.

    blocks.{0..11}.norm1.weight F32 768
    head.weight F32 {classes} 768

`{0..11}` stands for each of the numbers. `{classes}` and `{rows}` are sizes that differ
between files of one layout: the number of classes, and of rows of a position table. A
file with 0 classes has no tensor with `{classes}`. A line with `#` is a comment.
"""

import itertools
import re

# Numbers of blocks, stages and units, but not of the parts of a block.
_NUMBER = re.compile(r"(?<=[._])\d+(?=[./])|(?<=unit)\d+(?=/)|(?<=block)\d+(?=/)")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


def fold(tensors, classes, rows):
    """Returns the lines of {name: (shape, dtype)}.

    Args:
        tensors: All tensors of a file.
        classes: Number of classes, of tensors whose name contains "head" or
            "classifier".
        rows: Number of rows of the position table, or None.
    """
    lines = {}
    for name, (shape, dtype) in tensors.items():
        head = re.search(r"\bhead|classifier", name) and classes
        table = re.search(r"pos_embed|position_embeddings", name) and rows
        sizes = [
            "{classes}" if head and size == classes else
            "{rows}" if table and size == rows else str(size)
            for size in shape
        ]  # fmt: skip
        lines[name] = " ".join((dtype, *sizes))
    for slot in reversed(range(4)):
        lines = _folded(lines, slot)
    return [f"{name} {rest}" for name, rest in lines.items()]


def _folded(lines, slot):
    """Merges names that differ only in their number at a position."""
    groups = {}
    for name, rest in lines.items():
        numbers = list(_NUMBER.finditer(name))
        if slot < len(numbers):
            first, last = numbers[slot].span()
            key, number = (name[:first], name[last:], rest), name[first:last]
        else:
            key, number = (name, None, rest), None
        groups.setdefault(key, []).append(number)
    folded = {}
    for (before, after, rest), numbers in groups.items():
        if after is None:
            folded[before] = rest
            continue
        numbers.sort(key=int)
        while numbers:
            count = 1
            while (
                count < len(numbers) and int(numbers[count]) == int(numbers[0]) + count
            ):
                count += 1
            run, numbers = numbers[:count], numbers[count:]
            mark = run[0] if count == 1 else f"{{{run[0]}..{run[-1]}}}"
            folded[f"{before}{mark}{after}"] = rest
    return folded


def unfold(lines, classes, rows):
    """Returns {name: (shape, dtype)} of the lines of a list."""
    tensors = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        pattern, dtype, *sizes = line.split()
        if "{classes}" in sizes and not classes:
            continue
        known = {"{classes}": classes, "{rows}": rows}
        shape = tuple(known[size] if size in known else int(size) for size in sizes)
        for name in _names(pattern):
            if name in tensors:
                raise ValueError(f"The list has two lines for {name}.")
            tensors[name] = shape, dtype
    return tensors


def _names(pattern):
    ranges = [
        [f"{i:0{len(first)}d}" for i in range(int(first), int(last) + 1)]
        for first, last in _RANGE.findall(pattern)
    ]
    template = _RANGE.sub("{}", pattern)
    return [template.format(*numbers) for numbers in itertools.product(*ranges)]
