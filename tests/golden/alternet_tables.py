"""AlterNet's layers and parameters, as the original code builds them."""

import json
import math
import re

from tests.models.counting import outlined

from .result import Result


def check(root, name, case):
    """Yields each size's name and its `Result`: every layer and every count."""
    counts = json.loads((root / case["files"]["param_counts"]).read_text())
    for size, expected in counts.items():
        model = outlined(f"AlterNet{size.removeprefix('alternet_')}")
        title, *table = (root / case["files"][size]).read_text().splitlines()
        errors = compared(model, table)
        assert f"{size}, image {model.input_shape[1]}, 1000 classes" in title
        for key, count in expected.items():
            errors[key] = abs(count - _parameters(model, key))
        yield f"{name}/{size}", Result(errors, tolerance=0)


def compared(model, table):
    """{layer: 0 if its description equals the table's, else 1}."""
    lines = described(model)
    names = [line.split(":")[0] for line in table]
    different = [a != b for a, b in zip(lines, table)]
    return {**dict(zip(names, different)), "layers": abs(len(lines) - len(table))}


def described(model):
    """A line for each layer, in the format of the tables."""
    kwargs = model.record["kwargs"]
    lines = [_stem(model)]
    for i, depth in enumerate(kwargs["depths"]):
        for j in range(depth):
            layer = model.get_layer(f"stage_{i}_unit_{j}")
            kind = type(layer).__name__
            describe = {"PreactUnit": _conv_unit, "AttentionUnit": _attention_unit}
            maps = f"{_map(layer.input)}->{_map(layer.output)}"
            block, details = describe[kind](layer, kwargs["bottleneck"])
            lines.append(f"layer{i + 1}.{j}: {block} {maps} {details}")
    head = tuple(model.get_layer("head").kernel.shape)[::-1]
    linear = f"BatchNorm2d, ReLU, global average pool, Linear {head}"
    return [*lines, f"classifier: {linear}"]


def _map(tensor):
    _, height, width, channels = tensor.shape
    return f"({channels}, {height}, {width})"


def _stem(model):
    conv = model.get_layer("stem")
    edge, strides = conv.kernel_size, conv.strides
    border = edge // 2
    line = (
        f"layer0 (StemB): Conv2d(3, {conv.filters}, kernel_size=({edge}, {edge}), "
        f"stride=({strides}, {strides}), padding=({border}, {border}), bias=False)"
    )
    last = conv
    if model.record["kwargs"]["stem"] == "imagenet":
        last = model.get_layer("stem_pool")
        line += (
            f"; MaxPool2d(kernel_size={last.pool_size}, stride=2, padding=1, "
            "dilation=1, ceil_mode=False)"
        )
    return f"{line}  {_map(model.input)} -> {_map(last.output)}"


def _conv(conv):
    edge, _, channels, filters = conv.kernel.shape
    return f"{edge}x{edge}/s{conv.strides} {channels}->{filters}"


def _conv_unit(unit, bottleneck):
    projection = unit.projection
    shortcut = f"conv1x1/s{projection.strides}" if projection else "identity"
    convs = ",".join(_conv(conv) for conv in unit.convs)
    details = f"shortcut={shortcut} norm=BatchNorm2d act=ReLU convs={convs}"
    return "Bottleneck" if bottleneck else "BasicBlock", details


def _attention_unit(unit, bottleneck):
    attention = unit.attention
    _, _, channels, filters = unit.conv.kernel.shape
    inner, out = attention.output_dense.kernel.shape
    details = (
        f"shortcut=identity norm1=BatchNorm2d({unit.conv_norm.gamma.shape[0]}) "
        f"act=GELU(approximate='none') conv1x1({channels}->{filters},no bias) "
        "norm2=BatchNorm2d (no activation after it) "
        f"window={attention.window_size} heads={attention.num_heads} "
        f"dim_head={attention.head_width} inner={inner} to_out={inner}->{out}(bias) "
        f"pos_embedding={tuple(attention.position_bias.shape)}"
    )
    return "AttentionBlockB" if bottleneck else "AttentionBasicBlockB", details


def _parameters(model, key):
    """Number of parameters with another head or stem: "classes10_stempool"."""
    classes, stem = re.fullmatch(r"classes(\d+)_stem(pool|conv3x3)", key).groups()
    count = sum(math.prod(w.shape) for w in model.trainable_weights)
    features, width = model.get_layer("head").kernel.shape
    count += (int(classes) - width) * (features + 1)
    edge, _, channels, filters = model.get_layer("stem").kernel.shape
    if stem == "conv3x3":
        count -= (edge**2 - 3**2) * channels * filters
    return count
