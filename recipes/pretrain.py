"""Trains any model from scratch, with or without SAM, with paper or small settings.

    python recipes/pretrain.py                # a small ViT on 1,000 images of MNIST
    python recipes/pretrain.py study_mixer --rho 0.05    # a Mixer instead, with SAM
    python recipes/pretrain.py vit_sam --model ViTS16    # ImageNet, arXiv 2106.01548
    python recipes/pretrain.py vit_sam --data photos/ --batch-size 256
    python recipes/pretrain.py --help

The first two commands download nothing. recipes/PRESETS.md has the published results of
the papers' settings, which were not run here, and recipes/MEASURED.md those of a study
of small models with and without SAM.
"""

# ruff: noqa: E402
import dataclasses
import functools
import math
import sys

from command import command_line
from training.pretrain_settings import PRESETS, Config, builder_arguments, radius

parse = functools.partial(command_line.parse, presets=PRESETS, script="pretrain.py")
if __name__ == "__main__":  # before the imports that take seconds
    CONFIG = command_line.read(sys.argv[1:], PRESETS, "pretrain.py")

import keras
from devices import devices
from training import (
    callbacks,
    dry_run,
    models,
    results,
    run_folder,
    stages,
    step_plan,
    teachers,
    training_data,
)
from training.models import freeze
from training.optimizers import make_optimizer, sigmoid
from training.progress import Steps, console
from training.results import report
from training.validation import Evaluation, Validation

import kerasvit

TWIN = {
    "image_size": 28,
    "depths": [2, 2, 2],
    "bottleneck": False,
    "stem": "cifar",
    "widths": [12, 24, 48],
    "stem_width": 12,
}
SMALL = {  # 28 px; the first three are for the study
    "small_vit": kerasvit.Variant(
        "small_vit",
        kerasvit.VisionTransformer,
        image_size=28,
        patch_size=7,
        width=64,
        depth=3,
        num_heads=4,
        mlp_dim=128,
    ),
    "small_mixer": kerasvit.Variant(
        "small_mixer",
        kerasvit.MLPMixer,
        image_size=28,
        patch_size=7,
        width=64,
        depth=3,
        tokens_mlp_dim=32,
        channels_mlp_dim=192,
    ),
    "small_bit": kerasvit.Variant(
        "small_bit",
        kerasvit.BigTransfer,
        image_size=28,
        depths=[1, 1],
        width_factor=0.5,
    ),
    "small_swin": kerasvit.Variant(
        "small_swin",
        kerasvit.SwinTransformer,
        image_size=28,
        patch_size=2,
        width=32,
        depths=[2, 2],
        num_heads=[2, 4],
        mlp_ratio=2.0,
    ),
    # Twins: in one, attention is in place of the last unit of later stages. Widths and
    # heads are in the proportions of AlterNet18CIFAR.
    "small_alternet": kerasvit.Variant(
        "small_alternet",
        kerasvit.AlterNet,
        **TWIN,
        attention_depths=[0, 1, 1],
        num_heads=[3, 6, 12],
        head_width=12,
    ),
    "small_preact": kerasvit.Variant("small_preact", kerasvit.PreActResNet, **TWIN),
}


def pretrain(config: Config) -> dict | None:
    """Trains, or continues an interrupted training, and saves the results.

    Returns:
        The content of result.json; None for a dry run.

    Raises:
        command_line.BadInput: The input is wrong; raised before the training.
    """
    with command_line.checking_input():
        command_line.check(config)
        here = devices.start(config)
        here.check_batch(config.batch_size, config.accumulate)
    with here.together():
        return pretrain_on(here, config)


def pretrain_on(here: devices.Devices, config: Config) -> dict | None:
    """Trains on the devices; otherwise like `pretrain`."""
    with command_line.checking_input():
        dataset = training_data.find_data(config, here)
        model = build(config, dataset.class_names)
        if config.steps:
            config = dataclasses.replace(config, epochs=None)
        count = step_plan.planned_images(config, dataset)
        rounds, round_steps = step_plan.plan(config, count)
        config = step_plan.apply_plan(config, {}, rounds, round_steps)
        training_data.check_first_batch(config, model, dataset)
        plan = stages.of(config, count, rounds, round_steps, model)
        here.perturbation(config.perturbation, radius(config))
        if frozen := freeze(model, config.freeze):
            console.print(frozen, highlight=False, soft_wrap=True)
        make_optimizer(config, model, rounds * round_steps)  # it checks the settings
    if config.dry_run:
        return measure(here, config, model, dataset, plan)
    prefix = f"pretrain-{config.model}-"
    with run_folder.claimed_folder(config, dataset, here, prefix) as folder:
        run_folder.print_notices(config, dataset)
        if result := run_folder.finished_result(folder):
            return result
        rho = radius(config)
        parts, name = [], results.name_of(rho)
        for stage, staged in stages.each(here, model, plan, config.remat):
            with here.scope():
                options = stage.config, staged, stage.steps, stage.teacher
                trainer = trainer_of(here, *options)
                progress = stages.saved_progress(stage, folder, name, here)
                parts.append(train(here, stage, staged, trainer, dataset, progress))
        result = stages.summed(parts)
        result |= results.summary(rho, dataset, folder, round_steps)
        result |= stages.facts(plan)
        return results.save(
            result, config, staged, recipe=__file__, here=here, dataset=dataset
        )


def train(here, stage: stages.Stage, model, trainer, dataset, progress) -> dict:
    """Trains, or continues, and returns test metrics and history.

    Args:
        here: `devices.Devices`.
        stage: Stage of the training.
        model: `ImageModel` on the devices.
        trainer: Result of `trainer_of`.
        dataset: `kerasvit.data.LabelledImages`.
        progress: `saving.Progress` of the stage.
    """
    config = stage.config
    options = batch_options(config, model, dataset)
    # Batches that take no more memory than those of `fit`.
    evaluated = {**options, "batch_size": config.batch_size // config.accumulate}
    validation = Evaluation(dataset.validation, here, **evaluated)
    measured = [
        Validation(validation, progress.end_steps),
        *callbacks.of(config, here, dataset, evaluated),
    ]
    progress.restore(trainer, validation.batches)
    explained = dry_run.explained_out_of_memory(here, config)
    with explained, progress, Steps.of(progress) as steps:
        for step, part in progress.parts(trainer):
            trainer.fit(
                stage.fit_batches(here, dataset, options, step),
                **part,  # its epochs are rounds: see step_plan.py
                shuffle=False,  # the batches are already shuffled
                callbacks=[*measured, progress, steps],
                verbose=0,  # `steps` prints
            )
    kept = progress.finish(trainer)
    metrics = Evaluation(dataset.test, here, **evaluated)(trainer)
    return {**metrics, **kept}


def measure(here, config: Config, model, dataset, plan: list) -> None:
    """Runs a few steps, as the training does, but without results.

    Args:
        here: `devices.Devices`.
        config: Settings.
        model: `ImageModel`.
        dataset: `kerasvit.data.LabelledImages`.
        plan: Result of `stages.of`.
    """
    for stage, staged in stages.each(here, model, plan, config.remat):
        with here.scope():
            options = stage.config, staged, stage.steps, stage.teacher
            trainer = trainer_of(here, *options)
            options = batch_options(config, staged, dataset)
            batches = training_data.fit_batches(here, config, dataset, options)
            title = stage.text if len(plan) > 1 else "of this training"
            dry_run.run(here, config, trainer, batches, stage.steps, title)


def trainer_of(here, config: Config, model, steps: int, teacher=None):
    """Returns the compiled trainer of a training, or a stage, of `steps` steps."""
    freeze(model, config.freeze)  # a copy on the devices
    rho = radius(config)
    trainer = teachers.trainer_of(
        teacher,
        here,
        model,
        config,
        rho,
        perturbation=here.perturbation(config.perturbation, rho),
        micro_batches=config.micro_batches,
    )
    trainer.compile(  # plain training where rho is 0
        make_optimizer(config, model, steps),
        loss=sigmoid
        if config.loss == "sigmoid"
        else keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=config.label_smoothing
        ),
        weighted_metrics=[keras.metrics.CategoricalAccuracy(name="accuracy")],
    )
    return trainer


def batch_options(config: Config, model, dataset) -> dict:
    """Returns keyword arguments for the methods `batches`."""
    classes = len(dataset.class_names)  # for one-hot labels
    return {**training_data.batch_options(config, model), "classes": classes}


def build(config: Config, label_names: list[str]) -> keras.Model:
    """Returns the model before training, with a head for the classes."""
    variant = models.find_variant(config, SMALL)
    size = config.image_size
    rates = {"dropout": config.dropout, "stochastic_depth": config.stochastic_depth}
    model = variant(
        num_classes=len(label_names),
        image_size=size and (size[0], size[-1]),
        **{k: rate for k, rate in rates.items() if rate or k in variant.defaults},
        **builder_arguments(config),
    )
    model.record["label_names"] = label_names
    if training_data.augmentation(config).area == 1:  # no crop, as in training
        model.record["preprocessing"]["crop"] = 1.0
    if config.loss == "sigmoid":
        # Initial probability 1 / classes: a bias of -6.9 for 1,000, -10 for 21,843.
        bias = model.get_layer("head").bias
        bias.assign(keras.ops.full(bias.shape, -math.log(len(label_names))))
    return model


def show(result: dict | None) -> None:
    """Prints the results, and a warning if the last stage made the weights worse."""
    if result:
        report(result)
        stages.warn_if_worse(result)


if __name__ == "__main__":
    command_line.main(lambda: show(pretrain(CONFIG)))
