"""Groups of the options for `--help`, the important ones first.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import ast
import dataclasses
import inspect
import textwrap
import typing

import tyro

GROUPS = {  # of all scripts; {title: names of settings}
    "main": (
        *("models", "on", "format", "image_set", "folder", "data", "dataset"),
        *("model", "weights", "image_size", "augment", "batch_size", "epochs"),
        *("steps", "learning_rate", "rho", "compare", "only", "budget", "masks"),
        *("replace", "card", "out", "dry_run"),
    ),
    "data": (
        *("images", "validation_share", "share", "share_seed", "same_steps"),
        *("rand_augment", "mixup", "cutmix", "erasing", "repeats", "resize"),
        *("label_smoothing", "model_input"),
    ),
    "model": (
        *("model_options", "layers", "train_backbone", "dropout", "stochastic_depth"),
        *("linear_head", "freeze", "lora", "lora_layers", "train_norms"),
        *("keep_adapters", "inputs", "outputs", "batch"),
    ),
    "training": (
        *("loss", "optimizer", "momentum", "schedule", "decay_at", "decay_factor"),
        *("final_rate", "warmup_steps", "warmup_from", "weight_decay", "decayed"),
        *("no_decay", "layer_decay", "clip", "ema", "rule", "seed", "l2"),
    ),
    "SAM": (
        *("method", "sam_every", "sam_alpha", "sam_eta", "rho_min", "perturbation"),
        "micro_batches",
    ),
    "stage": (
        *("probe_epochs", "probe_learning_rate", "then_size", "then_steps"),
        *("then_epochs", "then_learning_rate"),
    ),
    "teacher": ("teacher", "teacher_input", "distill", "alpha", "tau"),
    "feature": ("frozen", "layer", "shots", "seeds", "train_images", "vtab"),
    "corruption": ("corrupt", "reference"),
    "device": ("dtype", "devices", "accumulate", "remat", "speed_from"),
    "output": (
        *("validations", "keep_best", "patience", "few_shot", "save_minutes"),
        *("tensorboard", "license"),
    ),
}


def parse(kind: type, default, **options):
    """Returns an instance of a dataclass, as `tyro.cli` does, with grouped options.

    Args:
        kind: Dataclass. A setting that is in no group is in the last one, "other".
        default: Instance with the defaults; None: those of the class.
        options: Keyword arguments of `tyro.cli`.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind, include_extras=True)
    texts, left, groups = descriptions(kind), dict(fields), []
    for title, names in [*GROUPS.items(), ("other", tuple(fields))]:
        found = [left.pop(name) for name in names if name in left]
        members = []
        for field in found:
            hint = hints[field.name]
            if text := texts.get(field.name):
                hint = typing.Annotated[hint, tyro.conf.arg(help=text)]
            value = getattr(default, field.name, field.default)
            members.append((field.name, hint, dataclasses.field(default=value)))
        if found:
            group = dataclasses.make_dataclass(title, members, kw_only=True)
            group.__doc__ = ""
            groups.append((title, group))
    whole = dataclasses.make_dataclass("Options", groups)
    parsed = tyro.cli(whole, config=(tyro.conf.OmitArgPrefixes,), **options)
    values = [vars(getattr(parsed, title)) for title, _ in groups]
    return kind(**{name: value for each in values for name, value in each.items()})


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
