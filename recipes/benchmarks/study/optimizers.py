"""Compares SGD, AdamW and SAM on a small ViT and a small BiT, for several rates.

    python -m recipes.benchmarks.study optimizers --dry-run     # how long it takes
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
import pretrain
from command import command_line
from devices import devices
from pretrain import PRESETS
from training import stages, training_data

from . import compared, runs, tasks
from .measures import compilation_cache
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


@dataclasses.dataclass(frozen=True)
class Training:
    """One training of the study.

    Args:
        model: Key of `MODELS`.
        kind: One of `compared.KINDS`.
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
    each = [Training(m, kind, 0.0, 0) for m in MODELS for kind in compared.KINDS]
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


def time_training(study: Optimizers, each: Training, folder: Path) -> dict:
    """Returns the time of a short training, from which that of the study follows."""
    return runs.time_steps(config_of(study, each, folder))


def time_step(study: Optimizers, each: Training, folder: Path) -> dict:
    """Returns the CPU time of a step in this process, which has one thread."""
    keras.utils.clear_session()
    config = config_of(study, each, folder)
    config = dataclasses.replace(config, warmup_steps=0)  # for few steps
    dataset = training_data.find_data(config, devices.ONE)
    model = pretrain.build(config, dataset.class_names)
    [stage] = stages.of(config, dataset, model)
    trainer = pretrain.compiled(devices.ONE, stage, model)
    options = training_data.fit_options(config, model)
    train = stage.batches(devices.ONE, dataset, options)
    fit = functools.partial(trainer.fit, shuffle=False, verbose=0)
    fit(train.with_epochs_of(UNTIMED))
    begin = time.process_time()
    fit(train.with_epochs_of(TIMED))
    return {"cpu_ms_per_step": 1000 * (time.process_time() - begin) / TIMED}


def tasks_of(study: Optimizers, folder: Path) -> dict[str, tasks.Task]:
    """Returns the tasks of the study, or those that measure its time."""
    if study.dry_run:
        work = {each.timing: (time_training, each) for each in firsts(study)}
    else:
        work = {each.timing: (time_step, each) for each in firsts(study)}
        work |= {each.name: (train, each) for each in trainings(study)}
    return {
        name: tasks.Task(lambda do=do, each=each: do(study, each, folder))
        for name, (do, each) in work.items()
    }


def main(settings: dict, folder: Path, number: int) -> None:
    """Does the tasks of the study in one of its processes."""
    study = Optimizers(**settings)
    with compilation_cache(folder / f"programs_{number}"):
        tasks.work(tasks_of(study, folder), folder)


def run(study: Optimizers) -> dict:
    """Trains and measures, or does what remains of an interrupted study.

    Returns:
        The content of result.json; for `dry_run`, the measured times.

    Raises:
        command_line.BadInput: The input is wrong, raised before the training; or a
            training failed or was stopped.
    """
    with command_line.checking_input():
        command_line.check(study)
        dataset = training_data.find(study.dataset, study.data)
    if study.dry_run:
        counts = {
            each.timing: study.seeds * len(rates_of(study, each.optimizer))
            for each in firsts(study)
        }
        return runs.estimate("optimizers", study, counts)
    result = runs.train("optimizers", study, dataset, list(tasks_of(study, Path())))
    result["rows"] = rows_of(study, result["measured"])
    if not result["rows"]:
        raise command_line.BadInput("`summary`: no training is finished.")
    page = compared.markdown(result)
    runs.write(
        "optimizers", study, result, page, lambda path: compared.draw(result, path)
    )
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
                settings.append({"rate": rate, **compared.joined(study, found)})
        cpu = measured.get(first.timing, {}).get("cpu_ms_per_step")
        names = {"model": first.model, "kind": first.kind, "base": first.optimizer}
        chosen = max(settings, key=compared.score, default=None)
        rows += [
            {**names, **each, "chosen": each is chosen, "cpu_ms_per_step": cpu}
            for each in settings
        ]
    return rows


def report(study: Optimizers, result: dict) -> None:
    """Prints the table, or the estimated time."""
    runs.report("optimizers", study, result)
