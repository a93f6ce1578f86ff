"""Folders of LoRA's adapters in the form of PEFT.

`adapter_config.json` has the settings (peft/tuners/lora/config.py), and
`adapter_model.safetensors` the tensors: for an adapted module NAME of the base model,
`base_model.model.NAME.lora_A.weight` (r, in) and `….lora_B.weight` (out, r); and by
their own names those of modules that were trained as a whole. A module computes
W + s B A with s = lora_alpha / r, or lora_alpha / √r with `use_rslora`.
"""

import math
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from .adapter_file import Adapters
from .config import Config, read_json
from .key_map import KeyMap, Transform
from .reader import CheckpointError, Reader, printable
from .sources import SOURCES, Source

PEFT_CONFIG = "adapter_config.json"
PEFT_TENSORS, PEFT_PICKLED = "adapter_model.safetensors", "adapter_model.bin"
LIBRARIES = ("transformers", "timm")
PEFT_FILES = (PEFT_CONFIG, PEFT_TENSORS, PEFT_PICKLED)
PREFIX = "base_model.model."
A, B = ".lora_A.weight", ".lora_B.weight"
_WRAPPER = "timm_model."  # of transformers' TimmWrapperForImageClassification
FACTORS = {A: "lora_kernel_a", B: "lora_kernel_b"}  # and their names here
# Settings that do not change what trained adapters compute, or that are applied. What
# another one asks for, such as `use_dora`, is not known.
_KNOWN = {
    *("peft_type", "peft_version", "task_type", "auto_mapping", "inference_mode"),
    *("base_model_name_or_path", "revision", "r", "lora_alpha", "lora_dropout"),
    *("target_modules", "exclude_modules", "bias", "modules_to_save", "rank_pattern"),
    *("alpha_pattern", "use_rslora", "layers_to_transform", "layers_pattern"),
    *("fan_in_fan_out", "init_lora_weights", "eva_config", "runtime_config"),
    *("megatron_core", "qalora_group_size", "ensure_weight_tying"),
}
# Initial values of the adapters that leave the base weights as they are.
_INITIAL = (True, False, None, "gaussian", "eva", "orthogonal", "mica")
# What a pattern of names may hold: others can take hours to match.
_PATTERN, _REPEATS, _LONGEST = r"[\w.\\^$|()\[\]*+?:-]{,200}", 2, 200
_MERGE = "Merge them in PEFT with merge_and_unload(), and load the merged model."


class PeftFolder(Adapters):
    """Adapters in a folder that PEFT's `save_pretrained` wrote, for one model.

    Args:
        folder: Path of the folder.
        record: Record of the model.
        variables: Paths of the model's variables.
        dense: Paths of its layers that can have adapters.

    Attributes:
        num_classes: Number of classes of the head in the file, or None.

    Raises:
        CheckpointError: A file is missing or damaged; or the adapters are of another
            method than LoRA, or belong to layers that the model does not have.
    """

    def __init__(
        self,
        folder: Path,
        record: dict[str, Any],
        variables: Collection[str],
        dense: Collection[str],
    ) -> None:
        config = Config(read_json(folder / PEFT_CONFIG))
        paths = (folder / PEFT_TENSORS, folder / PEFT_PICKLED)
        path = next((path for path in paths if path.is_file()), None)
        if not config or path is None:
            raise CheckpointError(
                f"{folder} must hold {PEFT_CONFIG}, and {PEFT_TENSORS} or "
                f"{PEFT_PICKLED}. Use the complete folder that PEFT wrote."
            )
        tensors = Reader(path)
        try:
            _check_supported(config)
            key_map = _key_map(tensors, record)
            layers = _adapted(key_map, tensors.shapes)
            _check_layers(config, layers, variables, dense)
            _check_stated(config, tensors.shapes, layers, variables)
            settings = _settings(config, layers, tensors.shapes)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error
        super().__init__(path, settings, tensors, key_map)
        settings["trained"] = whole_layers(self.names & set(variables), variables)
        head = [n for n in tensors.shapes if "head/kernel" in paths_of(key_map, n)]
        shape = tensors.shapes[head[0]] if head else ()
        self.num_classes = shape[0] if shape else None


def paths_of(key_map: KeyMap, name: str) -> list[str]:
    """Returns the paths of the variables of a tensor."""
    found = key_map.find(name)
    return found[0] if found else []


def _check_supported(config: Config) -> None:
    """Raises a `CheckpointError` for other methods than LoRA, and LoRA's variants."""
    if (kind := config.get("peft_type")) != "LORA":
        raise CheckpointError(
            f"these are PEFT's adapters of the type {kind!r:.100}; kerasvit has those "
            f"of LORA. {_MERGE}"
        )
    initial = config.get("init_lora_weights")
    if initial not in _INITIAL:
        raise CheckpointError(
            f"the training changed the base weights (init_lora_weights={initial!r:.100}"
            "). Convert the adapters in PEFT with the argument "
            "path_initial_model_for_weight_conversion of its save_pretrained. Or: "
            f"{_MERGE}"
        )
    if wrong := [key for key, value in config.items() if value and key not in _KNOWN]:
        stated = ", ".join(f"{printable(k)}={config[k]!r:.100}" for k in wrong)
        raise CheckpointError(
            f"{PEFT_CONFIG} states {stated}, which kerasvit does not know: the "
            f"adapters may be more than LoRA. {_MERGE}"
        )


def _key_map(tensors: Reader, record: dict[str, Any]) -> KeyMap:
    """Returns the map from names in the file to variable paths of the model.

    The names are those of the code base that knows most of them. Tensors that no model
    here has a place for, such as those of CLIP's text tower, are left out of `tensors`.

    Raises:
        CheckpointError: There are no adapters, or no code base with this architecture
            has their names.
    """
    if not any(name.endswith(A) for name in tensors.shapes):
        raise CheckpointError("it holds no adapters. Use the file that PEFT wrote.")
    found: list[tuple[list[tuple], list[str]]] = [
        _rules(source, tensors.shapes, record["kwargs"])
        for source in SOURCES
        if source.builder == record["builder"] and source.code_base in LIBRARIES
    ]
    rules, dropped = max(found, key=lambda pair: len(pair[0]), default=([], []))
    if not any(name.endswith(A) for name, *_ in rules):
        some = ", ".join(f"{printable(name):.200}" for name in [*tensors.shapes][:3])
        raise CheckpointError(
            f"the names of the tensors are not those of a {record['builder']} in "
            f"{' or '.join(LIBRARIES)}: {some}, … Load the adapters into the model "
            "that they were trained on."
        )
    for name in dropped:
        del tensors.shapes[name]
    return KeyMap(*rules)


def _rules(
    source: Source, names: Collection[str], kwargs: dict[str, Any]
) -> tuple[list[tuple], list[str]]:
    """Returns (rules of the names that a source knows, names that it drops)."""
    key_map, rules, dropped = source.key_map(kwargs), [], []
    short = {name: source.short_name(_weight(name)) for name in names}
    for name, weight in short.items():
        if source.dropped(weight, set(short.values())):
            dropped.append(name)
        elif found := key_map.find(weight):
            paths, transform = found
            ending = next(filter(name.endswith, FACTORS), None)
            if ending:
                layers = [path.removesuffix("/kernel") for path in paths]
                paths = [f"{layer}/{FACTORS[ending]}" for layer in layers]
            if ending == A:  # one for all layers that the module has in one kernel
                transform = _shared(len(paths))
            rules.append((name, tuple(paths), transform))
    return rules, dropped


def _weight(name: str) -> str:
    """Returns the name in the base model of a tensor, or of the kernel of a factor."""
    name = name.removeprefix(PREFIX).removeprefix(_WRAPPER)
    for ending in FACTORS:
        if name.endswith(ending):
            return name.removesuffix(ending) + ".weight"
    return name.replace(".base_layer.", ".")


def _shared(count: int) -> Transform:
    """Returns the transform of a factor A that several layers have."""
    return Transform(lambda a: [a.T] * count, lambda arrays: arrays[0].T)


def _adapted(key_map: KeyMap, names: Iterable[str]) -> dict[str, str]:
    """Returns {path of an adapted layer: name of its factor A in the file}."""
    return {
        path.removesuffix(f"/{FACTORS[A]}"): name
        for name in names
        if name.endswith(A)
        for path in paths_of(key_map, name)
    }


def _check_layers(
    config: Config,
    layers: dict[str, str],
    variables: Collection[str],
    dense: Collection[str],
) -> None:
    """Raises a `CheckpointError` if the adapters are not for these layers."""
    if absent := [layer for layer in layers if layer not in dense]:
        layer, name = absent[0], _module(layers[absent[0]])
        if {layer, f"{layer}/kernel"} & set(variables):
            raise CheckpointError(
                f"it adapts {name}; kerasvit has adapters of dense layers before the "
                f"head. {_MERGE}"
            )
        raise CheckpointError(
            f"it adapts {name} and {len(absent) - 1} other layers that the model does "
            f"not have, which would be {layer}. Load the adapters into the model that "
            "they were trained on."
        )
    if config.get("exclude_modules") or config.get("layers_to_transform") is not None:
        return
    chosen = [config.get(key) for key in ("target_modules", "modules_to_save")]
    if re.search(r"\b\d", str(chosen)):  # numbers of blocks
        return
    kinds = {_kind(layer) for layer in layers}
    without = [p for p in dense if _kind(p) in kinds and p not in layers]
    if without:
        raise CheckpointError(
            f"it adapts {len(layers)} layers, such as {_module(layers[[*layers][0]])}; "
            f"the model has {len(without)} more of the same kind, such as "
            f"{without[0]}. Load the adapters into the model that they were trained on."
        )


def _check_stated(
    config: Config,
    names: Iterable[str],
    layers: Iterable[str],
    variables: Collection[str],
) -> None:
    """Raises a `CheckpointError` if the file lacks what the configuration states.

    PEFT itself states modules that the model may not have, such as "score".
    """
    tensors = [_weight(name) for name in names]
    modules = config.get("modules_to_save")
    modules = modules if isinstance(modules, list) else []
    saved = any(f".{m}." in f".{name}" for m in modules for name in tensors)
    if modules and not saved:
        raise CheckpointError(
            f"{PEFT_CONFIG} states that {', '.join(map(str, modules)):.200} was "
            "trained, and the file has no tensor of it. Use the complete folder that "
            "PEFT wrote."
        )
    kind = config.get("bias")
    trained = {
        "all": [path for path in variables if path.endswith("/bias")],
        "lora_only": [p for p in variables if p in {f"{each}/bias" for each in layers}],
    }.get(kind if isinstance(kind, str) else "", [])
    if trained and not any(name.endswith(".bias") for name in tensors):
        raise CheckpointError(
            f"{PEFT_CONFIG} states bias={kind!r}, that biases were trained, and the "
            "file has none. Use the complete folder that PEFT wrote."
        )


def _kind(path: str) -> str:
    """Returns the path of a layer without the numbers of blocks."""
    return re.sub(r"_\d+(?=[_/])", "", path)


def _module(name: str) -> str:
    """Returns the name of an adapted module in the base model."""
    return name.removeprefix(PREFIX).removesuffix(A)


def _settings(
    config: Config, layers: dict[str, str], shapes: dict[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Returns settings for `kerasvit/adapters.py`, without `trained`.

    Raises:
        CheckpointError: A number is out of range, or not that of the tensors.
    """
    common = _scale(config, "", config.get("r"))
    settings: dict[str, Any] = {"rank": common[0], "alpha": common[1]}
    settings |= {"layers": list(layers), "ranks": {}, "alphas": {}}
    for layer, name in layers.items():
        rank, alpha = _scale(config, _module(name), common[0])
        if shapes[name][:1] != (rank,):
            raise CheckpointError(
                f"{PEFT_CONFIG} states the rank {rank} for {_module(name)}, whose "
                f"tensor is {shapes[name]}. They come from two saves: use the complete "
                "folder."
            )
        settings["ranks"] |= {layer: rank} if rank != common[0] else {}
        settings["alphas"] |= {layer: alpha} if alpha != common[1] else {}
    return {key: value for key, value in settings.items() if value != {}}


def _scale(config: Config, module: str, rank: Any) -> tuple[int, float]:
    """Returns (rank, alpha) of a module; alpha is for the scale alpha / rank."""
    rank = _stated(config, "rank_pattern", module, rank)
    alpha = _stated(config, "alpha_pattern", module, config.get("lora_alpha"))
    for key, value, kind in (("r", rank, int), ("lora_alpha", alpha, (int, float))):
        if not isinstance(value, kind) or not 0 < value < 2**31:
            raise CheckpointError(
                f"{PEFT_CONFIG} must state a positive {key}. Received: {value!r:.100}."
            )
    return rank, float(alpha * (math.sqrt(rank) if config.get("use_rslora") else 1))


def _stated(config: Config, key: str, module: str, default: Any) -> Any:
    """Returns the value of the first pattern that matches a module, as PEFT does.

    Reference: peft/utils/other.py `get_pattern_key`.
    """
    patterns = config.get(key) or {}
    if not isinstance(patterns, dict):
        raise CheckpointError(
            f"{PEFT_CONFIG} must have an object as {key}. Received: {patterns!r:.100}."
        )
    for pattern, value in patterns.items():
        repeats = len(re.findall(r"[*+]", pattern))
        simple = re.fullmatch(_PATTERN, pattern) and repeats <= _REPEATS
        if not simple or re.search(r"\)[*+?]", pattern) or len(module) > _LONGEST:
            raise CheckpointError(
                f"{PEFT_CONFIG} has the pattern {printable(pattern)!r:.200}, which "
                "could take hours to match. Write the names of the modules instead."
            )
        try:
            if re.match(rf"(.*\.)?({pattern})$", module):
                return value
        except re.error as error:
            raise CheckpointError(
                f"{PEFT_CONFIG} has the pattern {printable(pattern)!r:.200}, which is "
                f"no regular expression: {error}."
            ) from error
    return default


def whole_layers(names: Collection[str], variables: Collection[str]) -> list[str]:
    """Returns the paths of layers whose variables are all named, and of the others."""
    rest = [path for path in variables if path not in names]
    parts = {path.rpartition("/")[0] for path in rest}
    layers = {path: path.rpartition("/")[0] for path in variables if path in names}
    return list(dict.fromkeys(p if of in parts else of for p, of in layers.items()))
