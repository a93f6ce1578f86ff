"""Options of a dataclass of settings, in groups, the important ones first.

A group is a base class of the settings; its name is the title of the group.
This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import ast
import dataclasses
import inspect
import textwrap
import typing

import tyro

MAIN = (  # of all scripts, whatever their group
    *("models", "on", "format", "image_set", "folder", "data", "dataset"),
    *("model", "weights", "image_size", "augment", "batch_size", "epochs"),
    *("steps", "learning_rate", "rho", "compare", "only", "budget", "masks"),
    *("replace", "card", "out", "dry_run"),
)


def parse(kind: type, default, **options):
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
