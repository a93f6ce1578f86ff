"""`Preset`: the settings of a published training, and what is known about them."""

import dataclasses


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
        sources: {settings, separated by spaces: where the values are published}.
        unconfirmed: {settings: why the values are uncertain}. Each setting but the
            names of model and dataset is here or in `sources`.
        hardware: Accelerators of the published training.
        differs: What the script does otherwise, beside what holds for all presets.
        results: Published results, also of other models by `--model`.
    """

    script: str
    settings: dict
    sources: dict[str, str]
    hardware: str
    unconfirmed: dict[str, str] = dataclasses.field(default_factory=dict)
    differs: str = ""
    results: tuple[Result, ...] = ()


def pretraining(settings: dict, **statements) -> Preset:
    """Returns a preset of `pretrain.py`."""
    return Preset("pretrain.py", settings, **statements)


def finetuning(settings: dict, **statements) -> Preset:
    """Returns a preset of `finetune.py`."""
    return Preset("finetune.py", settings, **statements)
