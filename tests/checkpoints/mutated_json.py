"""Mutates config.json: its values, its names, its text."""

import json
import os

WORDS = (
    "", "gelu", "gelu_tanh", "tokens", "patches", "vit", "\x1b[2J", "a\nb", "a\ud800",
    "../../x", "9" * 300, "NaN", "x" * 5000, "VisionTransformer", "MLPMixer", "timm",
    "vit_base_patch16_clip_224", "resnet50", "\0", "None", "{0}", "%s",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 3, 4, 7, 1000, 65_536, 10**6, 2**31, 2**63, 10**30, 10**400, 0.5, -0.0,
    1e-12, 1e300, float("nan"), float("inf"), True, False, None,
)  # fmt: skip


def value(dice, depth=2):
    """Any JSON value."""
    way = dice.randrange(6 if depth else 4)
    if way < 2:
        return dice.choice(NUMBERS)
    if way < 4:
        return dice.choice(WORDS)
    many = dice.choice([0, 1, 2, 3, 3, 4, 1000 if depth == 2 else 5])
    if way == 4:
        return [value(dice, depth - 1) for _ in range(many)]
    return {f"{dice.choice(WORDS)}{i}": value(dice, depth - 1) for i in range(many)}


def mutate(dice, folder, relative):
    """Changes a configuration in a folder; returns the allowed change."""
    names = ["config.json"] * 6 + ["preprocessor_config.json"]
    path = folder / dice.choice(names)
    if path.exists() and not path.is_file():
        return "same"
    if os.path.lexists(path):  # an earlier mutation may have made it
        if not path.exists() or path.stat().st_size > 2**20:  # a link, a hole
            return "same"
    try:
        config = json.loads(path.read_text())
    except (ValueError, OSError, RecursionError):
        config = {"size": {"height": 16, "width": 16}} if dice.random() < 0.5 else {}
    if not isinstance(config, dict) or dice.random() < 0.1:
        config = value(dice)
    else:
        for _ in range(dice.choice([1, 1, 2, 5])):
            change(dice, config)
    path.write_bytes(text(dice, config))
    return "config"


def change(dice, tree):
    """Changes one value, or name, of a tree of dictionaries and lists."""
    places = list(_places(tree))
    if not places:
        return
    inside, key = dice.choice(places)
    way = dice.randrange(6)
    if way == 0 and isinstance(inside, dict):
        inside[dice.choice(WORDS) + str(key)] = inside.pop(key)
    elif way == 1:
        del inside[key]
    elif way == 2 and isinstance(inside, dict):
        inside[
            dice.choice(["global_pool", "kerasvit", "model_args", "architecture"])
        ] = value(dice)
    elif way == 3 and isinstance(inside[key], int):
        inside[key] += dice.choice([-1, 1, inside[key]])
    elif way == 4:
        other, same = dice.choice(places)
        inside[key] = json.loads(json.dumps(other[same]))
    else:
        inside[key] = value(dice)


def _places(tree):
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, content in items:
        yield tree, key
        if isinstance(content, (dict, list)):
            yield from _places(content)


def text(dice, tree):
    """The tree as JSON or, rarely, as invalid text similar to JSON."""
    written = json.dumps(tree).encode()
    if dice.random() < 0.8:
        return written
    way = dice.randrange(8)
    deep = dice.choice([50, 1000, 100_000])
    if way == 0:
        return written[: dice.randrange(len(written) + 1)]
    if way == 1:
        return b"\xef\xbb\xbf" + written
    if way == 2:
        return written.replace(b":", b":" + b"[" * deep, 1)
    if way == 3:
        return b'{"a":' * deep + written + b"}" * deep
    if way == 4:
        return written[:-1] + b', "x": ' + b"9" * 5000 + b"}"
    if way == 5:
        return written[:-1] + b', "x": [' + b"[]," * (10 * deep) + b"[]]}"
    if way == 6:
        return written.decode().encode(dice.choice(["utf-16", "utf-32"]))
    data = bytearray(written)
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return bytes(data)
