"""The files of a folder of LoRA's adapters that PEFT loads; see `peft_folder.py`."""

import io
import json
from collections import Counter
from collections.abc import Collection
from typing import Any

import keras
import numpy as np

from .adapter_file import finite_arrays
from .folder import write_tensors
from .key_map import KeyMap, Transform
from .peft_folder import (
    FACTORS,
    LIBRARIES,
    PEFT_CONFIG,
    PEFT_TENSORS,
    PREFIX,
    A,
    B,
    paths_of,
    whole_layers,
)
from .sources import SOURCES


def peft_files(
    record: dict[str, Any],
    variables: dict[str, tuple[int, ...]],
    weights: list[keras.Variable],
    scales: dict[str, float],
) -> dict[str, bytes]:
    """Returns {name: content} of the files of a folder that PEFT loads.

    The names are those of the code base of the weights; for weights of others those of
    transformers, else of timm. They are those in memory, which transformers 5 has
    changed; PEFT does not translate them. Adapters of layers that are one module there,
    such as timm's `qkv`, become one adapter whose rank is their sum: its factor B is
    zero where a layer meets the factor A of another.

    Args:
        record: Record of the model.
        variables: {path: shape} of the model's variables without adapters.
        weights: Trained variables.
        scales: {path of a layer with an adapter: alpha / rank}.

    Raises:
        ValueError: A weight is not finite, neither transformers nor timm has the model,
            or PEFT cannot express what is trained.
    """
    key_map = _written_map(record, variables)
    arrays = finite_arrays(weights)
    tensors: dict[str, np.ndarray] = {}
    ranks = {}
    for name in dict.fromkeys(key_map.name(f"{layer}/kernel") for layer in scales):
        paths, transform = _found(key_map, name)
        a, b, alpha = _joined(arrays, variables, scales, paths, transform)
        module = str(name).removesuffix(".weight")
        ranks[module] = len(a), int(alpha) if alpha == int(alpha) else alpha
        tensors |= {PREFIX + module + A: a, PREFIX + module + B: b}
    trained = {path: array for path, array in arrays.items() if path in variables}
    _check_whole(key_map, trained, variables)
    whole = key_map.write(trained)
    tensors |= {PREFIX + name: array for name, array in whole.items()}
    settings = {
        "peft_type": "LORA",
        "base_model_name_or_path": (record.get("base") or {}).get("source"),
        "inference_mode": True,
        "bias": "none",
        "modules_to_save": sorted({n.rpartition(".")[0] for n in whole}) or None,
        **_settings(ranks),
    }
    file = io.BytesIO()
    outlines = {name: (str(each.dtype), each.shape) for name, each in tensors.items()}
    write_tensors(file, outlines, tensors, {"format": "pt"})
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    return {PEFT_TENSORS: file.getvalue(), PEFT_CONFIG: text.encode()}


def _written_map(record: dict[str, Any], variables: Collection[str]) -> KeyMap:
    """Returns the map between names in PEFT and the variables of a model."""
    origin = record.get("origin")
    libraries = (origin,) if origin in LIBRARIES else LIBRARIES
    fitting = [each for each in SOURCES if each.builder == record["builder"]]
    for source in sorted(fitting, key=lambda each: each.code_base != LIBRARIES[0]):
        if source.code_base in libraries:
            key_map = source.module_map(record)
            if key_map and all(map(key_map.name, variables)):
                return key_map
    raise ValueError(
        f"Adapters of this {record['builder']} would need the names of "
        f"{' or '.join(libraries)} in PEFT. They are written for transformers' ViT, "
        "DeiT and DINOv2 with the heads that they have there, and for what timm can "
        'build. Save them with format="kerasvit", or merge them and save the model.'
    )


def _found(key_map: KeyMap, name: str | None) -> tuple[list[str], Transform]:
    """Returns (variable paths, transform) of the kernel of a module.

    Raises:
        ValueError: It is a tensor of another kind.
    """
    found = key_map.find(name) if name else None
    if found and name and name.endswith(".weight"):
        return found
    raise ValueError(
        f"PEFT adapts modules; {name} is a tensor without one of its own. Choose other "
        '`layers` in add_lora, or save the adapters with format="kerasvit".'
    )


def _joined(
    arrays: dict[str, np.ndarray],
    shapes: dict[str, tuple[int, ...]],
    scales: dict[str, float],
    paths: list[str],
    transform: Transform,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Returns (A, B, alpha) of a module with the kernels of one or more layers."""
    layers = [path.removesuffix("/kernel") for path in paths]
    adapted = [layer for layer in layers if layer in scales]
    a = np.concatenate([arrays[f"{n}/{FACTORS[A]}"].T for n in adapted])
    scale, start, blocks = scales[adapted[0]], 0, []
    for layer, path in zip(layers, paths, strict=True):
        block = np.zeros((len(a), shapes[path][1]), a.dtype)
        if layer in adapted:
            b = arrays[f"{layer}/{FACTORS[B]}"]
            block[start : start + len(b)] = b * (scales[layer] / scale)
            start += len(b)
        blocks.append(block)
    return a, transform.write(blocks), scale * len(a)


def _check_whole(
    key_map: KeyMap, trained: Collection[str], variables: Collection[str]
) -> None:
    """Raises a `ValueError` unless variables are all those of modules."""
    names = dict.fromkeys(key_map.name(path) or "" for path in trained)
    other = [path for path in whole_layers(trained, variables) if path in variables]
    other += [name for name in names if not set(paths_of(key_map, name)) <= {*trained}]
    if other:
        raise ValueError(
            "Folders of PEFT hold adapters and modules that are trained as a whole. "
            f"Received: {', '.join(other[:3])}, of which a part is trained. Save the "
            'adapters with format="kerasvit", or merge them and save the model.'
        )


def _settings(modules: dict[str, tuple[int, float]]) -> dict[str, Any]:
    """Returns the settings of adapters from {module: (rank, alpha)}."""
    (rank, alpha), _ = Counter(modules.values()).most_common(1)[0]
    return {
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": sorted(modules),
        "rank_pattern": {n: r for n, (r, _) in sorted(modules.items()) if r != rank},
        "alpha_pattern": {n: a for n, (_, a) in sorted(modules.items()) if a != alpha},
    }
