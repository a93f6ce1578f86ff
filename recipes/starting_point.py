"""Steps before fine-tuning: prints the settings, measures the weights, sets the head.

starting_point.print_settings(config, reasons)
start = starting_point.set_head(model, dataset, batch_options, config, folder)
"""

import dataclasses

import linear_head
import numpy as np
from progress import console
from rich.table import Table
from selection import kept_logs

NUMBERS = ("kept", "linear", "images", "tested")  # scalar fields of `Start`


def print_settings(config, reasons: dict) -> None:
    """Prints a table of the settings that depend on the task.

    Args:
        config: Dataclass of the settings, without None for these settings.
        reasons: {setting: reason for its value}.
    """
    table = Table("setting", "value", "why", title="Settings", title_justify="left")
    for name, reason in reasons.items():
        table.add_row(name, f"{getattr(config, name)}", reason)
    console.print(table)


def set_head(model, dataset, batch_options, config, folder) -> dict:
    """Fits a linear classifier, sets the better head, and prints the accuracies.

    Args:
        model: `ImageModel` with pretrained weights.
        dataset: `data.Dataset`.
        batch_options: Keyword arguments of `batches.evaluation_batches`.
        config: `finetune_settings.Config`; without `linear_head` the model keeps its
            head.
        folder: Folder of the training. A continued training reads start.npz in it
            instead of fitting again.

    Returns:
        For result.json: the numbers of `linear_head.Start`, and in `begins` the name of
        the head at the start of the training.
    """
    file = folder / "start.npz"
    if file.exists():
        start = _read(file)
    else:
        start = linear_head.start(model, dataset, batch_options, config.seed)
        _write(file, start)
    kept_is_better = start.kept is not None and start.kept >= start.linear
    if config.linear_head and not kept_is_better:
        linear_head.assign(model, start.heads)
        begins = "the linear classifier"
    elif start.kept is not None:
        begins = "the head of the weights"
    else:
        begins = "a head of zeros"
    _print_start(start, begins)
    numbers = {name: getattr(start, name) for name in (*NUMBERS, "accuracy")}
    return {**numbers, "begins": begins}


def warn_if_worse(result: dict) -> None:
    """Prints a warning if fewer images are classified correctly than before."""
    start = result.get("start")
    if not start:
        return
    final = kept_logs(result["results"][result["kept"]])["val_accuracy"]
    # The accuracies are those of different sums in float32.
    if final < start["accuracy"] - 0.5 / start["tested"]:
        with_sam = result["kept"] != "without SAM"
        smaller = "--rho or --learning-rate" if with_sam else "--learning-rate"
        console.print(
            f"Warning: the training made the model worse. It ends at {final:.2%} of "
            f"the validation images; before it, the same weights had "
            f"{start['accuracy']:.2%} of {start['tested']:,}. "
            f"Give a smaller {smaller}, or more --steps.",
            style="bold red",
            soft_wrap=True,
            highlight=False,
        )


def _print_start(start, begins):
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
        if name in NUMBERS
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
