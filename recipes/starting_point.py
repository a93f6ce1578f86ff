"""What stands before a training: its settings and why, and what its weights know.

starting_point.show_settings(config, reasons)
start = starting_point.begin(model, dataset, reading, config, folder)
"""

import dataclasses

import linear_head
import numpy as np
from progress import console
from rich.table import Table

SHOWN = ("kept", "linear", "images", "tested")  # fields of `Start` that are numbers


def show_settings(config, reasons: dict) -> None:
    """Prints a table of the settings that depend on the task.

    Args:
        config: Dataclass of the settings, with nothing left open.
        reasons: Setting → why it has its value.
    """
    table = Table("setting", "value", "why", title="Settings", title_justify="left")
    for name, reason in reasons.items():
        table.add_row(name, f"{getattr(config, name)}", reason)
    console.print(table)


def begin(model, dataset, reading, config, folder) -> dict:
    """Measures the loaded weights, gives the model its head, and prints both.

    Args:
        model: `ImageModel` with weights that were trained.
        dataset: `data.Dataset`.
        reading: Keyword arguments of `batches.evaluation_batches`.
        config: `finetune_settings.Config`; without `linear_head` the head stays.
        folder: Of the training. A training that continues finds the measurement there.

    Returns:
        The numbers of `linear_head.Start`, and the head that training `begins` with,
        for result.json.
    """
    file = folder / "start.npz"
    if file.exists():
        start = _read(file)
    else:
        start = linear_head.start(model, dataset, reading, config.seed)
        _write(file, start)
    better = start.kept is not None and start.kept >= start.linear
    if config.linear_head and not better:
        linear_head.assign(model, start.heads)
        begins = "the linear classifier"
    elif start.kept is not None:
        begins = "the head of the weights"
    else:
        begins = "a head of zeros"
    _show(start, begins)
    numbers = {name: getattr(start, name) for name in (*SHOWN, "accuracy")}
    return {**numbers, "begins": begins}


def warn_below(result: dict) -> None:
    """Prints a warning if the training ended below what it began with."""
    start = result.get("start")
    if not start:
        return
    reached = result["results"][result["kept"]]["history"][-1]["val_accuracy"]
    if reached < start["accuracy"]:
        console.print(
            f"Warning: the training made the model worse. It ends at {reached:.2%} of "
            f"the validation images; before it, the same weights had "
            f"{start['accuracy']:.2%} of {start['tested']:,}. Give a smaller "
            "--learning-rate or more --steps.",
            style="bold red",
            soft_wrap=True,
            highlight=False,
        )


def _show(start, begins):
    table = Table("before training", "validation accuracy", title="Loaded weights")
    table.title_justify = "left"
    if start.kept is not None:
        table.add_row("their head", f"{start.kept:.2%}")
    fitted = f"linear classifier on frozen features of {start.images:,} images"
    table.add_row(fitted, f"{start.linear:.2%}")
    console.print(table)
    console.print(
        f"Of {start.tested:,} validation images. Training begins with {begins}.",
        highlight=False,
        soft_wrap=True,
    )


def _write(file, start):
    numbers = {
        name: np.array(np.nan if value is None else value)
        for name, value in dataclasses.asdict(start).items()
        if name in SHOWN
    }
    heads = {
        f"{part}_{i}": array
        for i, head in enumerate(start.heads)
        for part, array in zip(("kernel", "bias"), head, strict=True)
    }
    unfinished = file.with_name(f".{file.name}")
    with unfinished.open("wb") as stream:
        np.savez(stream, **numbers, **heads)
    unfinished.replace(file)


def _read(file):
    with np.load(file, allow_pickle=False) as found:
        count = sum(name.startswith("kernel_") for name in found)
        kept = float(found["kept"])
        return linear_head.Start(
            kept=None if np.isnan(kept) else kept,
            linear=float(found["linear"]),
            images=int(found["images"]),
            tested=int(found["tested"]),
            heads=[(found[f"kernel_{i}"], found[f"bias_{i}"]) for i in range(count)],
        )
