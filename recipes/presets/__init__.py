"""The papers' trainings as data: settings, sources and published results.

Each paper has a file here, NAME.toml, with tables of its presets:

    [pretrain.NAME]              a preset of `pretrain.py`; or [finetune.NAME]
    extends = "OTHER"            takes what it does not state from a preset above it
    hardware = "…"               accelerators of the published training
    differs = "…"                what the script does otherwise; optional

    [[pretrain.NAME.settings]]   settings of one origin, and their values
    source = "…"                 where they are published
    unconfirmed = "…"            why they are uncertain

    [pretrain.NAME.results]      {table: rows}, not taken from another preset

Each setting but the names of dataset and model has a source or is unconfirmed; the
value "None" is Python's. A row has the fields of `Result` after its table. The table
[results] has those of `finetune.py` without a preset.

`pretrain.py` and `finetune.py` make configurations of the presets,
and `page.py` writes PRESETS.md. This module imports neither Keras nor kerasvit.
"""

import dataclasses
import tomllib
import typing
from pathlib import Path

KEYS = {"extends", "hardware", "differs", "settings", "results"}
WITHOUT_ORIGIN = {"dataset", "model"}


@dataclasses.dataclass(frozen=True)
class Result:
    """A published result, and the options of its training.

    Attributes:
        table: Where it was published.
        row: The row there.
        options: Options after the preset's name.
        value: Top-1 accuracy in %, as printed there; "–": none.
        then: Preset and options of the fine-tuning that follows; FOLDER is the model of
            the first training.
    """

    table: str
    row: str
    options: str
    value: str
    then: str = ""


@dataclasses.dataclass(frozen=True)
class Preset:
    """Settings of a published training.

    Attributes:
        script: Script that has the preset.
        settings: {setting: value}, for the `Config` of the script.
        origins: {setting: (where it is published, why it is uncertain)}, "" for none.
        hardware: Accelerators of the published training.
        differs: What the script does otherwise, beside what holds for all presets.
        results: Published results, also of other models by `--model`.
    """

    script: str
    settings: dict
    origins: dict[str, tuple[str, str]]
    hardware: str
    differs: str
    results: tuple[Result, ...]

    def configuration(self, config: type):
        """Returns the settings as a `config`, the dataclass of the script.

        Raises:
            ValueError: It has no such setting, or a value is of another type.
        """
        types = {field.name: field.type for field in dataclasses.fields(config)}
        for name, value in self.settings.items():
            expect(name in types, f"{self.script} has no setting `{name}`.")
            expected = f"`{name}` must be of type {types[name]}. Received: {value!r}."
            expect(is_of_type(value, types[name]), expected)
        return config(**self.settings)


def is_of_type(value: object, hint) -> bool:
    """Returns whether a value is of the type of a field. An int is a float, too."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return value in parts
    if typing.get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(is_of_type(v, parts[0]) for v in value)
    if parts:  # of a union
        return any(is_of_type(value, part) for part in parts)
    return type(value) is hint or (hint is float and type(value) is int)


def read(path: Path) -> tuple[dict[str, Preset], tuple[Result, ...]]:
    """Returns the presets of a file, and its results without a preset.

    Raises:
        ValueError: The file is not TOML, or has other keys than this module describes.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path.name} must be TOML: {error}.") from error
    results = published(tables.pop("results", {}), path.name)
    presets: dict[str, Preset] = {}
    for script, named in tables.items():
        expected = "[pretrain.NAME], [finetune.NAME] or [results]"
        correct = script in ("pretrain", "finetune")
        expect(correct, f"{path.name} must have {expected}. Received: [{script}].")
        for name, table in named.items():
            where = f"{path.name}, [{script}.{name}]:"
            base = presets.get(table.get("extends"))
            missing = f"{where} `extends` must be a preset above it in the file."
            expect(base is not None or "extends" not in table, missing)
            presets[name] = completed(f"{script}.py", table, base, where)
    return presets, results


def completed(script: str, table: dict, base: Preset | None, where: str) -> Preset:
    """Returns the preset of a table and the one that it extends."""
    unknown = ", ".join(table.keys() - KEYS)
    expect(not unknown, f"{where} keys must be of {sorted(KEYS)}. Received: {unknown}.")
    groups = table.get("settings", [])
    expect(isinstance(groups, list), f"{where} write settings as [[…settings]].")
    stated: dict[str, object] = {}
    origins = dict(base.origins) if base else {}
    for group in groups:
        origin = group.pop("source", ""), group.pop("unconfirmed", "")
        for name, value in group.items():
            expect(name not in stated, f"{where} `{name}` must be stated once.")
            stated[name] = python_value(value)
            if name not in WITHOUT_ORIGIN:
                missing = f"{where} `{name}` must have a source or be unconfirmed."
                expect(any(origin), missing)
                origins[name] = origin
    settings = {**base.settings, **stated} if base else stated
    hardware = table.get("hardware", base.hardware if base else "")
    expect(hardware, f"{where} must state the `hardware`.")
    differs = table.get("differs", base.differs if base else "")
    results = published(table.get("results", {}), where)
    return Preset(script, settings, origins, hardware, differs, results)


def published(tables: dict, where: str) -> tuple[Result, ...]:
    """Returns {table: rows} as results."""
    for rows in tables.values():
        for row in rows:
            texts = len(row) in (3, 4) and all(isinstance(cell, str) for cell in row)
            expect(texts, f"{where} a row must be 3 or 4 texts. Received: {row}.")
    return tuple(Result(table, *row) for table, rows in tables.items() for row in rows)


def python_value(value: object) -> object:
    """Returns a value of TOML as a setting has it."""
    if isinstance(value, list):
        return tuple(value)
    return None if value == "None" else value


def expect(condition: object, message: str) -> None:
    """Raises a `ValueError` unless the condition holds."""
    if not condition:
        raise ValueError(message)


PRETRAIN: dict[str, Preset] = {}
FINETUNE: dict[str, Preset] = {}
RESULTS: tuple[Result, ...] = ()  # of `finetune.py` without a preset
for _path in sorted(Path(__file__).parent.glob("*.toml")):
    _presets, _results = read(_path)
    RESULTS += _results
    for _name, _preset in _presets.items():
        (PRETRAIN if _preset.script == "pretrain.py" else FINETUNE)[_name] = _preset
