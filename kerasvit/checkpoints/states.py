"""`model_names`: the tensors of one model in a file, without prefixes of wrappers."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from os.path import commonprefix
from typing import Protocol, TypeAlias

from .open_file import CheckpointError, printable
from .torch_file import save_again

# Modules of PyTorch around a module at any depth; no code base has a part of this name.
# "module" is of `DistributedDataParallel`, `DataParallel` and `AveragedModel`.
_WRAPPERS = {
    *("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "module"),
}
_UPDATES = "n_averaged"  # a count beside the tensors of an `AveragedModel`
_DEEP = 8  # parts before all names that may be removed
# The projections for training beside the backbone in files of DINO, iBOT and DINOv2:
# `DINOHead` in facebookresearch/dino/vision_transformer.py.
_PROJECTION = re.compile(r"((dino|ibot)_)?head\.(mlp|last_layer)\b")
_FEWEST = 8  # tensors of a model; smaller states are not looked at more closely
_LISTED = 20  # states in a message

IsKnown: TypeAlias = Callable[[Collection[str]], bool]


class States(Protocol):
    """The part of `Reader` that this module uses."""

    @property
    def path(self) -> object: ...

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]: ...

    @property
    def states(self) -> Mapping[str, list[str]]: ...

    @property
    def keys(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def objects(self) -> Mapping[str, Mapping[str, str]]: ...


def model_names(file: States, state: str | None, is_known: IsKnown) -> dict[str, str]:
    """Returns {name in a file: name without prefixes} of the tensors of one model.

    Args:
        file: `Reader` of a file, perhaps with several states.
        state: Which of them: the name of one, or one of its words such as "ema" of
            "state_dict_ema"; or what all names of a part begin with, such as
            "teacher.backbone". None: the only one that is a model.
        is_known: Whether a code base has these names.

    Raises:
        CheckpointError: There is no such state, or there are several; or the state
            holds objects that are not tensors.
    """

    def is_model(names: Collection[str]) -> bool:
        return len(names) >= _FEWEST and is_known(names)

    inner = {key: _unwrapped(names, is_model) for key, names in file.states.items()}
    known = [key for key, names in inner.items() if is_model(names.values())]
    if state is not None:
        key, chosen = _chosen(file, state, known, is_model)
        names = _unwrapped(chosen, is_model)
    elif len(known) == 1 or len(inner) == 1:
        key = (known or list(inner))[0]
        names = inner[key]
    else:
        models = _models(file, known, is_model)
        what = "it holds several models" if models else "it holds several states"
        raise CheckpointError(_choice(file, models or file.states, what))
    for name, kind in file.objects.get(key, {}).items():
        if state in (None, key) or _begins(name, key, str(state)):
            raise CheckpointError(
                f"it holds {kind:.200} at {name:.200}, beside the tensors of a model. "
                "Only tensors of real numbers are read, and no other object is made. "
                f"{save_again(file.path, file.keys.get(key, ()), kind)}"
            )
    if not is_model(names.values()) and (parts := _known_parts(names, is_model)):
        what = "more than one model" if len(parts) > 1 else "more than a model"
        raise CheckpointError(_choice(file, parts, f"it holds {what}"))
    return names


def _models(file: States, known: list[str], is_model: IsKnown) -> dict[str, list[str]]:
    """Returns {what `state` chooses it by: names of its tensors} of all models."""
    models = {key: file.states[key] for key in known}
    for key in [key for key in file.states if key not in models]:
        models |= _known_parts(file.states[key], is_model)
    return models


def _chosen(
    file: States, state: str, known: list[str], is_model: IsKnown
) -> tuple[str, list[str]]:
    """Returns (name of a state, names of its tensors that are chosen)."""
    if not isinstance(state, str):
        raise CheckpointError(f"`state` must be text. Received: {state!r:.200}.")
    fitting = [key for key in known if key == state]
    fitting = fitting or [key for key in known if state in re.split("[._]", key)]
    if len(fitting) == 1:
        return fitting[0], file.states[fitting[0]]
    for key, names in file.states.items():
        if chosen := [name for name in names if _begins(name, key, state)]:
            return key, chosen
    what = f"it has {'several states' if fitting else 'no state'} {state!r:.200}"
    models = _models(file, known, is_model)
    if list(models) == [""]:
        raise CheckpointError(f"{what}. It holds one model: leave out `state`.")
    raise CheckpointError(_choice(file, models or file.states, what))


def _begins(name: str, key: str, state: str) -> bool:
    """Returns whether a name of the state `key` is in a part.

    The part may be named without the state's own name, and without wrappers.
    """
    inside = name.removeprefix(f"{key}.")
    known = {name, inside, _without_wrappers(name), _without_wrappers(inside)}
    return any(each.startswith(f"{state}.") for each in known)


def _known_parts(names: Iterable[str], is_model: IsKnown) -> dict[str, list[str]]:
    """Returns {what their names begin with: names} of the models in a larger one."""
    inner = {name: _without_wrappers(name) for name in names}
    common = commonprefix(list(inner.values()))
    start = common.rfind(".") + 1
    parts: dict[str, list[str]] = {}
    for name, short in inner.items():
        first, dot, _ = short[start:].partition(".")
        if dot:
            parts.setdefault(short[:start] + first, []).append(name)
    return {
        part: inside
        for part, inside in parts.items()
        if is_model(_unwrapped(inside, is_model).values())
    }


def _choice(file: States, models: Mapping[str, list[str]], what: str) -> str:
    """Returns a message that lists models and says how to choose one."""
    lines = [
        f"  {printable(key):.200}: {len(names)} tensors, "
        f"{sum(math.prod(file.shapes[name]) for name in names):,} values"
        for key, names in list(models.items())[:_LISTED]
    ]
    more = len(models) - len(lines)
    lines += [f"  and {more} more"] * bool(more)
    last = printable(list(models)[-1])
    choice = f'state="{last:.200}" (--state {last:.200} of the recipes)'
    return "\n".join([f"{what}. Choose a part, such as {choice}:", *lines])


def _unwrapped(names: Iterable[str], is_model: IsKnown) -> dict[str, str]:
    """Returns {name in a file: name without the prefixes of wrappers}.

    `torch.compile`, `DistributedDataParallel`, FSDP, moving averages and training
    scripts save a model's tensors with a prefix. timm removes some of them too:
    timm/models/_helpers.py `clean_state_dict`.

    Args:
        names: Names of all tensors of a model.
        is_model: Whether a code base has these names. While it has not and all names
            begin with the same part, such as `timm_model` or `model`, this is removed.
    """
    inner = {name: _without_wrappers(name) for name in names}
    inner = {n: s for n, s in inner.items() if s.rpartition(".")[2] != _UPDATES}
    shorter = inner
    for _ in range(_DEEP + 1):
        if is_model(shorter.values()):
            return shorter
        shorter = _without_projection(shorter)
        if len({short.partition(".")[0] for short in shorter.values()}) != 1:
            break
        if not all("." in short for short in shorter.values()):
            break
        shorter = {name: short.partition(".")[2] for name, short in shorter.items()}
    return inner  # errors state the names of the file


def _without_projection(names: dict[str, str]) -> dict[str, str]:
    """Returns the names of a backbone without those of DINO's projection."""
    if not any(short.startswith("backbone.") for short in names.values()):
        return names
    return {
        name: short for name, short in names.items() if not _PROJECTION.match(short)
    }


def _without_wrappers(name: str) -> str:
    *modules, last = name.split(".")
    return ".".join([*(part for part in modules if part not in _WRAPPERS), last])
