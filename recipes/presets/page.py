"""Writes PRESETS.md, the page of all presets and published results.

python -m recipes.presets.page > recipes/PRESETS.md
"""

import textwrap
from collections.abc import Iterator

from . import FINETUNE, PRETRAIN, RESULTS, Preset, Result

PRESETS = {**PRETRAIN, **FINETUNE}
START = """\
# The papers' trainings

Each preset of `pretrain.py` and `finetune.py` has the settings of a published training.
**None of them has been run here: the results are the published ones.** Options after
the name change its settings. `--dry-run` measures the time and the memory of a step.
`python -m recipes.presets.page > recipes/PRESETS.md` writes this page.

- [Published results](#published-results), with the command of each
- [Presets](#presets), with the source of each setting, what is unconfirmed, and the
  hardware

All trainings differ from the originals in these points: 2 % of the training images are
used for validation if a dataset has no such split; a warm-up is at most a fifth of the
training; RandAugment has ten of its operations, with the formulas of Keras's layers and
similar but not equal strengths; Mixup and CutMix mix neighbours of the shuffled batch
and draw one ratio per image and not per batch. Weight decay is that of Keras, which
multiplies it by the learning rate.

The dataset imagenet21k is not one of tensorflow-datasets. Give class folders with
`--data`, or prepare a dataset imagenet21k with the splits train and validation in
TFDS_DATA_DIR. The published trainings have 21,843 classes (release of autumn 2011,
with two empty ones: 21,841) and all images but 51,200.

## Published results

Top-1 accuracy in %. λ is the largest eigenvalue of the Hessian
(`kerasvit.inspection.largest_eigenvalue`), which Tables 1 and 3 of arXiv 2106.01548
have for trainings of Table 2. The number of steps in its Table 4 is that of all images.
FOLDER is the model that the first of two commands trains, `runs/…/model`.
"""
COLUMNS = "| training | command | published |\n|---|---|---|"


def page() -> str:
    """Returns the content of PRESETS.md."""
    parts = [START]
    for table, results in tables().items():
        parts += [f"### {table}\n", COLUMNS]
        parts += [
            f"| {result.row} | {commands(name, result)} | {result.value} |"
            for name, result in results
        ]
        parts.append("")
    parts.append("## Presets\n")
    for name, preset in PRESETS.items():
        parts += [*described(name, preset), ""]
    return "\n".join(parts).rstrip() + "\n"


def tables() -> dict[str, list[tuple[str, Result]]]:
    """Returns {table: its results with the names of their presets}, sorted by name.

    The name is "" for results of `finetune.py` without a preset.
    """
    found: dict[str, list[tuple[str, Result]]] = {}
    rows = [("", result) for result in RESULTS]
    rows += [(name, row) for name, preset in PRESETS.items() for row in preset.results]
    for name, result in rows:
        found.setdefault(result.table, []).append((name, result))
    return dict(sorted(found.items()))


def commands(name: str, result: Result) -> str:
    """Returns the command of a result, or both, for a table."""
    first = f"`{command(name, result)}`"
    then = f"`python recipes/finetune.py {result.then}`"
    return f"{first}, then {then}" if result.then else first


def command(name: str, result: Result | None = None) -> str:
    """Returns the command of a preset, with the options of a result."""
    options = result.options if result else ""
    script = PRESETS[name].script if name else "finetune.py"
    return " ".join(f"python recipes/{script} {name} {options}".split())


def described(name: str, preset: Preset) -> Iterator[str]:
    """Yields the lines about a preset: its settings by origin, and the rest."""
    by_origin: dict[tuple[str, str], list[str]] = {}
    for setting, value in preset.settings.items():
        origin = preset.origins.get(setting, ("", ""))
        by_origin.setdefault(origin, []).append(f"{setting} {shown(value)}")
    yield f"### {name}\n"
    yield f"    {command(name)}\n"
    for (source, reason), values in by_origin.items():
        text = ", ".join(values)
        text += f": {source}" if source else ""
        yield item(text + (f". **Unconfirmed:** {reason}." if reason else "."))
    if preset.differs:
        yield item(f"Differs: {preset.differs}.")
    yield item(f"Hardware: {preset.hardware}.")


def item(text: str) -> str:
    """Returns an item of a list, in lines of 100 columns."""
    return textwrap.fill(
        text, 100, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
    )


def shown(value: object) -> str:
    """Returns a value as an option has it."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:g}"
    return "of the model" if value is None else str(value)


if __name__ == "__main__":
    print(page(), end="")
