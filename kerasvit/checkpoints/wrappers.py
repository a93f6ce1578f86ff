"""Names of tensors without the prefixes of modules that wrap a model.

`torch.compile`, `DistributedDataParallel`, FSDP, moving averages and training scripts
save a model's tensors with a prefix. timm removes some of them too:
timm/models/_helpers.py `clean_state_dict`.
"""

from collections.abc import Callable, Iterable

# Modules of PyTorch around a module at any depth; no code base has a part of this name.
_WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
# Of `DistributedDataParallel`, `DataParallel` and `AveragedModel`, around all of it.
_OUTER = "module"
_UPDATES = "n_averaged"  # a count beside the tensors of an `AveragedModel`


def unwrapped(
    names: Iterable[str], is_known: Callable[[Iterable[str]], bool]
) -> dict[str, str]:
    """Returns {name in a file: name without the prefixes of wrappers}.

    Args:
        names: Names of all tensors in a file.
        is_known: Whether a code base has these names. While it has not and all names
            begin with the same part, such as `timm_model` or `model`, this is removed.
    """
    inner = {name: _without_wrappers(name) for name in names if name != _UPDATES}
    shorter = inner
    while not is_known(shorter.values()):
        parts = {name.partition(".")[0] for name in shorter.values()}
        if len(parts) != 1 or not all("." in name for name in shorter.values()):
            return inner  # errors state the names of the file
        shorter = {full: name.partition(".")[2] for full, name in shorter.items()}
    return shorter


def _without_wrappers(name: str) -> str:
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    while len(parts) > 1 and parts[0] == _OUTER:
        parts = parts[1:]
    return ".".join(parts)
