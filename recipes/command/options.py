"""Options of the commands: groups in the help, other names, and which need others."""

import ast
import dataclasses
import inspect
import re
import textwrap
import typing

import tyro

# Names of these options in timm and elsewhere with another spelling: tyro, which finds
# --epoch and --modle, does not find these.
ALIASES = {
    "lr": "learning-rate",
    "bs": "batch-size",
    "wd": "weight-decay",
    "checkpoint": "weights",
    "opt": "optimizer",
    "sched": "schedule",
    "decay-rate": "decay-factor",
    "decay-milestones": "decay-at",
    "min-lr": "final-rate",
    "warmup-lr": "warmup-from",
    "clip-grad": "clip",
    "model-ema-decay": "ema",
    "aa": "rand-augment",
    "reprob": "erasing",
    "aug-repeats": "repeats",
    "drop": "dropout",
    "drop-path": "stochastic-depth",
    "initial-checkpoint": "weights",
    "pretrained": "weights",
    "input-size": "image-size",
    "img-size": "image-size",
    "output": "out",
    "grad-accum-steps": "accumulate",
    "grad-checkpointing": "remat",
}
LENGTHS = ("--steps", "--epochs"), ("--then-steps", "--then-epochs")
# Settings that --rule hyperrule chooses; others may be given with it.
OF_RULE = (
    *("steps", "epochs", "warmup_steps", "warmup_from", "schedule", "decay_at"),
    *("decay_factor", "final_rate", "optimizer", "momentum", "weight_decay", "clip"),
    *("augment", "resize", "mixup"),
)
EXCLUSIVE = (
    *LENGTHS,
    ("--data", "--dataset"),
    *(("--rule", f"--{name.replace('_', '-')}") for name in OF_RULE),
)
# {setting: option without which it changes nothing}; any value where it is a CAPITAL
NEEDED = {
    "channels": "--data FOLDER",
    "value_range": "--data FOLDER",
    "resize": "--augment resize_crop",
    "try_minutes": "--method auto",
    "share_seed": "--share SHARE",
    "same_steps": "--share SHARE",
    "teacher_input": "--teacher MODEL",
    "distill": "--teacher MODEL",
    "alpha": "--teacher MODEL",
    "tau": "--distill soft",
    "mask_ratio": "--objective MASKED",
    "decoder": "--objective mae",
    "loss": "--objective labels",
    "decay_at": "--schedule steps",
    "decay_factor": "--schedule steps",
    "lora_layers": "--lora RANK",
    "train_norms": "--lora RANK",
    "keep_adapters": "--lora RANK",
    "probe_epochs": "--weights FILE",
    "rule": "--weights FILE",
    "probe_learning_rate": "--probe-epochs N",
    "then_steps": "--then-size PIXELS",
    "then_epochs": "--then-size PIXELS",
    "then_learning_rate": "--then-size PIXELS",
}
MAIN = (  # of all scripts, whatever their group
    *("models", "on", "format", "image_set", "folder", "data", "dataset"),
    *("model", "weights", "image_size", "augment", "batch_size", "epochs"),
    *("steps", "learning_rate", "rho", "compare", "only", "budget", "masks"),
    *("replace", "card", "out", "dry_run"),
)


def check_needed(config) -> None:
    """Raises a `ValueError` for a setting that changes nothing without another one."""
    defaults = default_settings(config)
    for name in [name for name in NEEDED if name in defaults]:
        if getattr(config, name) != defaults[name] and not has_effect(config, name):
            option = name.replace("_", "-")
            raise ValueError(f"`{name}`: give {NEEDED[name]} with --{option}.")


def has_effect(config, name: str) -> bool:
    """Returns whether the option is given without which a setting changes nothing."""
    if name not in NEEDED:
        return True
    option, value = NEEDED[name].removeprefix("--").split()
    other = option.replace("-", "_")
    if not hasattr(config, other):  # of another script
        return True
    given = getattr(config, other)
    if value.islower():  # in upper case: any but the default
        return given == value
    return given != default_settings(config)[other]


def default_settings(config) -> dict:
    """Returns {setting: default} of the dataclass of a configuration."""
    return {field.name: field.default for field in dataclasses.fields(config)}


def check_expression(setting: str, pattern: str) -> None:
    """Raises a `ValueError` for a regular expression that Python cannot read."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"`{setting}` must be a regular expression, such as 'bias$|/norm'. "
            f"Received: {pattern!r}, {error}."
        ) from error


def parse_groups(kind: type, default, **options):
    """Returns an instance of a dataclass, as `tyro.cli` does, with grouped options.

    Args:
        kind: Dataclass of the settings. Those of no group are in the group "other".
        default: Instance with the defaults; None: those of the class.
        options: Keyword arguments of `tyro.cli`.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    texts, groups = descriptions(kind), []
    for title, fields in _groups(kind).items():
        members = []
        for field in fields:
            hint = hints[field.name]
            if text := texts.get(field.name):
                hint = typing.Annotated[hint, tyro.conf.arg(help=text)]
            value = getattr(default, field.name, field.default)
            members.append((field.name, hint, dataclasses.field(default=value)))
        group = dataclasses.make_dataclass(title, members, kw_only=True)
        group.__doc__ = ""
        groups.append((title, group))
    whole = dataclasses.make_dataclass("Options", groups)
    parsed = tyro.cli(whole, config=(tyro.conf.OmitArgPrefixes,), **options)
    values = [vars(getattr(parsed, title)) for title, _ in groups]
    return kind(**{name: value for each in values for name, value in each.items()})


def _groups(kind):
    """Returns {title: fields}: the main ones, then those of each base class."""
    left = {field.name: field for field in dataclasses.fields(kind)}
    main = [left.pop(name) for name in MAIN if name in left]
    groups = {"main": main}
    for base in kind.__mro__[1:-1]:
        own = [name for name in vars(base).get("__annotations__", ()) if name in left]
        if own:
            title = base.__name__
            title = title.lower() if title.istitle() else title  # not SAM and LoRA
            groups[title] = [left.pop(name) for name in own]
    return groups | ({"other": [*left.values()]} if left else {})


def descriptions(kind: type) -> dict[str, str]:
    """Returns {setting: text below it, else comment beside it, else above it}."""
    found = {}
    for each in reversed(kind.__mro__[:-1]):
        source = textwrap.dedent(inspect.getsource(each))
        lines, body = source.splitlines(), ast.parse(source).body[0].body
        for node, after in zip(body, [*body[1:], None], strict=True):
            if not isinstance(node, ast.AnnAssign):
                continue
            text = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = inspect.cleandoc(after.value.value)
            elif "  # " in lines[node.end_lineno - 1]:
                text = lines[node.end_lineno - 1].rpartition("  # ")[2]
            else:
                for line in reversed(lines[: node.lineno - 1]):
                    if not line.strip().startswith("# "):
                        break
                    text = f"{line.strip()[2:]} {text}"
            found[node.target.id] = " ".join(text.split()) or found.get(node.target.id)
    return found
