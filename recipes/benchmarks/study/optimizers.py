"""Compares SGD, AdamW and SAM on a small ViT and a small BiT, for several rates.

    python -m recipes.benchmarks.study optimizers               # or continues

All trainings of a model have the same images, steps, schedule and clipping; those of a
seed begin with the same weights and take the same batches. SAM perturbs the weights for
the optimizer that arXiv 2106.01548 uses for the model: AdamW for ViT, SGD with momentum
for ResNets. The weight decays are those of the presets `study_…`.
"""

import dataclasses
import functools
import time
from pathlib import Path

import keras
import numpy as np
import pretrain
from command import command_line
from devices.devices import ONE
from pretrain import PRESETS
from training import stages, training_data
from training.curves import save_figure

from . import runs
from .runs import mean_and_deviation
from .settings import Optimizers

MODELS = {"ViT": "study_vit", "BiT": "study_bit"}
BASES = {"ViT": "AdamW", "BiT": "SGD"}  # of SAM
DECAYS = {
    "AdamW": PRESETS["study_vit"].weight_decay,
    "SGD": PRESETS["study_bit"].weight_decay,
}
VALIDATIONS = 20  # the curve of the loss has a point for each
SAVE_MINUTES = 0.5
UNTIMED, TIMED = 5, 30  # steps
KINDS = ("SGD", "AdamW", "SAM")
# Colours of Okabe and Ito, as in claim.py.
STYLES = {"SGD": ("#0072B2", "o"), "AdamW": ("#D55E00", "s"), "SAM": ("#009E73", "^")}


@dataclasses.dataclass(frozen=True)
class Training:
    """One training of the study.

    Args:
        model: Key of `MODELS`.
        kind: One of `KINDS`.
        rate: Maximum of the learning rate.
        seed: Seed of weights and order.
    """

    model: str
    kind: str
    rate: float
    seed: int

    @property
    def optimizer(self) -> str:
        """SGD or AdamW."""
        return BASES[self.model] if self.kind == "SAM" else self.kind

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.model}_{self.kind}_{self.rate:g}_seed_{self.seed}"

    @property
    def timing(self) -> str:
        """Name of the task that measures the CPU time of its steps."""
        return f"{self.model}_{self.kind}_time"


def rates_of(study: Optimizers, optimizer: str) -> tuple[float, ...]:
    """Returns the learning rates of an optimizer."""
    return study.sgd_rates if optimizer == "SGD" else study.adamw_rates


def trainings(study: Optimizers) -> list[Training]:
    """Returns all trainings, those of a seed after each other."""
    return [
        dataclasses.replace(first, rate=rate, seed=seed)
        for seed in range(study.seeds)
        for first in firsts(study)
        for rate in rates_of(study, first.optimizer)
    ]


def firsts(study: Optimizers) -> list[Training]:
    """Returns one training of each model and kind."""
    each = [Training(m, kind, 0.0, 0) for m in MODELS for kind in KINDS]
    return [
        dataclasses.replace(one, rate=rates_of(study, one.optimizer)[0]) for one in each
    ]


def config_of(study: Optimizers, each: Training, folder: Path):
    """Returns the `pretrain.Config` of a training."""
    return dataclasses.replace(
        PRESETS[MODELS[each.model]],
        dataset=study.dataset,
        data=study.data,
        steps=study.steps,
        epochs=None,
        validations=VALIDATIONS,
        optimizer=each.optimizer.lower(),
        learning_rate=each.rate,
        weight_decay=DECAYS[each.optimizer],
        rho=study.rho if each.kind == "SAM" else 0.0,
        seed=each.seed,
        save_minutes=SAVE_MINUTES,
        out=str(folder / each.name),
    )


def train(study: Optimizers, each: Training, folder: Path) -> dict:
    """Trains, or continues, and returns the measurements."""
    keras.utils.clear_session()
    found = pretrain.pretrain(config_of(study, each, folder))
    history = found["history"]
    return {
        "accuracy": found["accuracy"],
        **{key: history[-1][key] for key in ("val_accuracy", "val_loss")},
        "losses": [logs["loss"] for logs in history],
        "steps_between_losses": found["steps_between_validations"],
    }


def time_step(study: Optimizers, each: Training, folder: Path) -> dict:
    """Returns the CPU time of a step in this process, which has one thread."""
    keras.utils.clear_session()
    config = config_of(study, each, folder)
    config = dataclasses.replace(config, warmup_steps=0)  # for few steps
    dataset = training_data.find_data(config, ONE)
    model = pretrain.build(config, dataset.class_names)
    [stage] = stages.of(config, dataset, model)
    trainer = pretrain.compiled(ONE, stage, model)
    options = training_data.fit_options(config, model)
    train = stage.batches(ONE, dataset, options)
    fit = functools.partial(trainer.fit, shuffle=False, verbose=0)
    fit(train.with_epochs_of(UNTIMED))
    begin = time.process_time()
    fit(train.with_epochs_of(TIMED))
    return {"cpu_ms_per_step": 1000 * (time.process_time() - begin) / TIMED}


def tasks_of(study: Optimizers, folder: Path) -> dict[str, runs.Task]:
    """Returns the trainings of the study, and before them the times of their steps."""
    work = {each.timing: (time_step, each) for each in firsts(study)}
    work |= {each.name: (train, each) for each in trainings(study)}
    return {
        name: runs.Task(functools.partial(do, study, each, folder))
        for name, (do, each) in work.items()
    }


def run(study: Optimizers) -> dict:
    """Trains and measures, or does what remains of an interrupted study.

    Returns:
        The content of result.json.

    Raises:
        command_line.BadInput: The input is wrong, raised before the training; or a
            training failed.
    """
    with command_line.checking_input():
        command_line.check(study)
        dataset = training_data.find(study.dataset, study.data)
    tasks = functools.partial(tasks_of, study)
    result = runs.train("optimizers", study, dataset, tasks)
    result["rows"] = rows_of(study, result["measured"])
    if not result["rows"]:
        raise command_line.BadInput("`summary`: no training is finished.")
    page = markdown(result)
    runs.write("optimizers", study, result, page, lambda path: draw(result, path))
    return result


def rows_of(study: Optimizers, measured: dict) -> list[dict]:
    """Returns the finished trainings of each model, optimizer and rate.

    Args:
        study: Settings.
        measured: {name of a task: its measurements} of the finished tasks.
    """
    rows = []
    for first in firsts(study):
        settings = []
        for rate in rates_of(study, first.optimizer):
            seeds = [
                dataclasses.replace(first, rate=rate, seed=seed).name
                for seed in range(study.seeds)
            ]
            found = [measured[name] for name in seeds if name in measured]
            if found:
                settings.append({"rate": rate, **joined(study, found)})
        cpu = measured.get(first.timing, {}).get("cpu_ms_per_step")
        names = {"model": first.model, "kind": first.kind, "base": first.optimizer}
        chosen = max(settings, key=score, default=None)
        rows += [
            {**names, **each, "chosen": each is chosen, "cpu_ms_per_step": cpu}
            for each in settings
        ]
    return rows


def joined(study, measurements: list[dict]) -> dict:
    """Returns the values of the seeds of one model, optimizer and rate.

    Args:
        study: Settings.
        measurements: Measurements of each finished seed.
    """
    keys = ("accuracy", "val_accuracy", "val_loss", "losses")
    between = measurements[0]["steps_between_losses"]
    return {
        **{key: [each[key] for each in measurements] for key in keys},
        "steps_between_losses": between,
        "reached": [
            steps_until(each["losses"], study.threshold, between)
            for each in measurements
        ],
    }


def steps_until(losses: list[float], limit: float, between: int) -> int | None:
    """Returns the step at which the mean loss is first below a limit, or None.

    Args:
        losses: Mean of each `between` steps.
        limit: Loss.
        between: Number of steps.
    """
    below = np.flatnonzero(np.array(losses) < limit)
    return (int(below[0]) + 1) * between if len(below) else None


def score(row: dict) -> tuple[float, float, float]:
    """Returns what a chosen rate has the highest of.

    They are the mean validation accuracy, then the lower loss, then the lower rate.
    """
    return np.mean(row["val_accuracy"]), -np.mean(row["val_loss"]), -row["rate"]


def markdown(result: dict) -> str:
    """Returns the table, and sentences about what it shows and does not show.

    Args:
        result: Content of result.json.
    """
    settings, images = result["settings"], result["images"]
    lines = [
        "| model | optimizer | learning rate | seeds "
        f"| steps until training loss < {settings['threshold']:g} "
        "| CPU seconds of them | CPU ms per step | final training loss "
        "| validation accuracy, % | test accuracy, % |",
        "|---|---|" + "---:|" * 8,
    ]
    lines += [_cells(row) for row in result["rows"]]
    lines += [
        "",
        f"{images['train']:,} training, {images['validation']:,} validation and "
        f"{images['test']:,} test images ({result['test']}); {settings['steps']} steps "
        "of 100 images. Accuracies and losses are mean ± standard deviation of the "
        "seeds; a training loss is the mean of "
        f"{result['rows'][0]['steps_between_losses']} steps, and for SAM that of the "
        "weights before the perturbation. **Bold**: the rate with the best validation "
        f"accuracy. SAM has rho {settings['rho']:g} and the optimizer in brackets. "
        + runs.state_of(result),
        *at_the_edge(result["rows"]),
    ]
    return "\n".join(lines) + "\n"


def at_the_edge(rows: list[dict]) -> list[str]:
    """Returns lines about chosen rates that are the least or largest that were tried.

    Args:
        rows: Rows of the result.
    """
    groups: dict[str, list[dict]] = {}
    for row in rows:
        groups.setdefault(f"{row['model']} with {row['kind']}", []).append(row)
    found = []
    for name, group in groups.items():
        rates = [row["rate"] for row in group]
        [chosen] = [row["rate"] for row in group if row["chosen"]]
        if chosen in (min(rates), max(rates)):
            found.append(f"{name} ({chosen:g})")
    if not found:
        return []
    text = "The chosen rate is the least or the largest that was tried, so that another"
    return ["", f"{text} may be better, for {', '.join(found)}."]


def _spread(values, digits):
    """Returns mean ± standard deviation; the mean only, of one value."""
    mean, deviation = (f"{each:.{digits}f}" for each in mean_and_deviation(values))
    return f"{mean} ± {deviation}" if len(values) > 1 else mean


def _cells(row):
    """Returns the row of a model, an optimizer and a rate."""
    reached, count, cpu = row["reached"], len(row["accuracy"]), row["cpu_ms_per_step"]
    steps = [step for step in reached if step]
    mean = float(np.mean(steps)) if len(steps) == count else None
    some = f"{len(steps)} of {count} seeds" if steps else "–"
    optimizer = f"SAM ({row['base']})" if row["kind"] == "SAM" else row["kind"]
    cells = (
        row["model"],
        optimizer,
        f"{row['rate']:g}",
        str(count),
        some if mean is None else f"{mean:.0f}",
        "–" if mean is None or cpu is None else f"{mean * cpu / 1000:.1f}",
        "–" if cpu is None else f"{cpu:.0f}",
        _spread([losses[-1] for losses in row["losses"]], 4),
        *(
            _spread([100 * each for each in row[key]], 2)
            for key in ("val_accuracy", "accuracy")
        ),
    )
    mark = "**" if row["chosen"] else ""
    return f"| {' | '.join(f'{mark}{cell}{mark}' for cell in cells)} |"


def draw(result: dict, path: Path) -> None:
    """Plots the training loss over the steps, and the accuracy over the rates."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = result["rows"]
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure, axes = pyplot.subplots(
        2,
        len(models),
        figsize=(5 * len(models), 7.5),
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for (above, below), model in zip(axes.T, models, strict=True):
        here = [row for row in rows if row["model"] == model]
        for row in here:
            _draw_losses(above, row)
        above.axhline(result["settings"]["threshold"], color="black", linewidth=0.6)
        above.set_yscale("log")
        above.set(xlabel="step", title=model)
        for kind in KINDS:
            _draw_accuracies(below, kind, [row for row in here if row["kind"] == kind])
        below.set_xscale("log")
        below.set(xlabel="learning rate")
        for axis in (above, below):
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("training loss, mean of the seeds")
    axes[1][0].set_ylabel("test accuracy, %")
    figure.suptitle(
        "Thick: the rate of the best validation accuracy, with the range of the seeds; "
        "thin: the others.\nBelow: mean and standard deviation; small points: seeds",
        fontsize="medium",
    )
    labels = axes[1][0].get_legend_handles_labels()
    figure.legend(*labels, loc="outside lower center", ncols=3, frameon=False)
    save_figure(figure, path)


def _draw_losses(axis, row):
    color, _ = STYLES[row["kind"]]
    losses, between = np.array(row["losses"]), row["steps_between_losses"]
    steps = between * np.arange(1, losses.shape[1] + 1)
    if row["chosen"]:
        axis.fill_between(steps, losses.min(0), losses.max(0), color=color, alpha=0.2)
    options = {"linewidth": 2} if row["chosen"] else {"linewidth": 0.8, "alpha": 0.6}
    axis.plot(steps, losses.mean(0), color=color, **options)


def _draw_accuracies(axis, kind, rows):
    color, marker = STYLES[kind]
    # SAM is drawn beside the optimizer that it has.
    rates = np.array([row["rate"] for row in rows]) * (1.12 if kind == "SAM" else 1)
    values = [100 * np.array(row["accuracy"]) for row in rows]
    means = np.array([mean_and_deviation(each) for each in values]).reshape(-1, 2)
    options = {"color": color, "marker": marker, "capsize": 4, "markersize": 6}
    axis.errorbar(rates, means[:, 0], means[:, 1], label=kind, **options)
    for rate, each in zip(rates, values, strict=True):
        points = {"color": color, "marker": marker, "s": 10, "alpha": 0.4}
        axis.scatter([rate * 1.05] * len(each), each, **points)
