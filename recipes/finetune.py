"""Fine-tunes any model with SAM on digits, a folder of images, or a public dataset.

    python recipes/finetune.py                      # scikit-learn's digits: no download
    python recipes/finetune.py --data photos/ --model ViTB16 --weights vit.npz
    python recipes/finetune.py pets --weights vit.npz               # Oxford-IIIT Pet
    python recipes/finetune.py --help

On 2 busy CPU cores, 2026-11-21, the first took 1.2 minutes on JAX, 1.5 on TensorFlow,
2.2 on PyTorch. Test accuracy on JAX, three seeds: 97.2 % (96.9 to 97.8) without SAM,
96.8 % (96.1 to 98.3) with SAM, on 359 images: one point is noise. More results:
recipes/MEASURED.md.
"""

# ruff: noqa: E402
import dataclasses
import functools
import sys

from command import command_line
from training.finetune_settings import PRESETS, Config

parse = functools.partial(command_line.parse, presets=PRESETS, script="finetune.py")
if __name__ == "__main__":  # before the imports that take seconds
    CONFIG = command_line.read(sys.argv[1:], PRESETS, "finetune.py")

import keras
from devices import devices
from training import (
    callbacks,
    defaults,
    dry_run,
    hyperrule,
    linear_classifier,
    method_settings,
    models,
    results,
    run_folder,
    stages,
    step_plan,
    teachers,
    training_data,
)
from training.models import freeze, trained_weights
from training.optimizers import make_optimizer
from training.progress import Steps, console
from training.results import report
from training.validation import Evaluation, Validation

import kerasvit

SMALL = kerasvit.Variant(  # 114,000 weights
    "small",
    kerasvit.VisionTransformer,
    patch_size=Config.small_patch,
    width=64,
    depth=3,
    num_heads=4,
    mlp_dim=128,
    pool="average",
)


def finetune(config: Config) -> dict | None:
    """Trains, or continues an interrupted training, and saves the results.

    Returns:
        The content of result.json; None for a dry run.

    Raises:
        command_line.BadInput: The input is wrong; raised before the training.
    """
    [result] = run([config])
    return result


def compare(config: Config) -> list[dict | None]:
    """Fine-tunes without SAM and with it, in two folders; else like `finetune`."""
    with command_line.checking_input():
        command_line.check(config)
    config = dataclasses.replace(config, compare=False)
    folder = run_folder.out_folder(config)
    of_sam = dict.fromkeys(method_settings.SETTINGS) | {"method": "sam"}
    plain = dataclasses.replace(config, out=f"{folder}/plain", rho=0.0, **of_sam)
    return run([plain, dataclasses.replace(config, out=f"{folder}/sam")])


def run(configs: list[Config]) -> list[dict | None]:
    """Calls `finetune_on` for each of the settings, which have the same devices."""
    with command_line.checking_input():
        for config in configs:
            command_line.check(config)
        here = devices.start(config)
        models.check_weights(config, {"small": SMALL})
    with here.together():
        return [finetune_on(here, config) for config in configs]


def finetune_on(here: devices.Devices, config: Config, dataset=None) -> dict | None:
    """Trains on the devices, on `LabelledImages` if given; else like `finetune`."""
    with command_line.checking_input():
        dataset = dataset or training_data.find_data(config, here)
        count = step_plan.planned_images(config, dataset)
        of_rule = {}
        if config.rule:
            config, of_rule = hyperrule.of(config, count, dataset)
            size = f"HyperRule: images of {config.image_size[0]} pixels"
            console.print(f"{size}, {of_rule['image_size']} (--image-size).")
        model = build(config, dataset.class_names)
        config, reasons = defaults.resolve(
            config, count, dataset.kind, model, here.count
        )
        reasons |= of_rule
        here.check_batch(config.batch_size, config.accumulate)
        here.perturbation(config.perturbation, config.rho)
        rounds, round_steps = step_plan.plan(config, count)
        config = step_plan.apply_plan(config, reasons, rounds, round_steps)
        variant = model.record["variant"] or model.name
        config = dataclasses.replace(config, model=config.model or variant)
        training_data.check_first_batch(config, model, dataset)
        if config.lora:
            add_adapters(config, model)
        if frozen := freeze(model, config.freeze):
            console.print(frozen, highlight=False, soft_wrap=True)
        make_optimizer(config, model, rounds * round_steps)  # it checks the settings
        plan = stages.of(config, count, rounds, round_steps, model)
    if config.dry_run:
        return measure(here, config, model, dataset, plan)
    with run_folder.claimed_folder(config, dataset, here) as folder:
        run_folder.print_notices(config, dataset)
        if result := run_folder.finished_result(folder):
            return result

        defaults.print_settings(config, reasons)
        start = None
        if config.weights:
            options = training_data.batch_options(config, model)
            # The first process writes the file of the head.
            with command_line.checking_input(), here.first_goes_first():
                start = linear_classifier.set_head(
                    model, dataset, options, config, folder
                )
        parts, name = [], results.name_of(config.rho)
        for stage, staged in stages.each(here, model, plan, config.remat):
            with here.scope():
                options = stage.config, staged, stage.steps, stage.teacher
                trainer = trainer_of(here, *options)
                progress = stages.saved_progress(stage, folder, name, here)
                parts.append(train(here, stage, staged, trainer, dataset, progress))
        result = stages.summed(parts)
        result |= results.summary(config.rho, dataset, folder, round_steps, start)
        result |= stages.facts(plan)
        return results.save(
            result, config, staged, recipe=__file__, here=here, dataset=dataset
        )


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
            trainer = trainer_of(here, stage.config, staged, stage.steps, stage.teacher)
            options = batch_options(config, staged)
            batches = training_data.fit_batches(here, config, dataset, options)
            title = stage.text if len(plan) > 1 else "of this training"
            dry_run.run(here, config, trainer, batches, stage.steps, title)


def trainer_of(here, config: Config, model, steps: int, teacher=None):
    """Returns the compiled trainer of a training, or a stage, of `steps` steps."""
    freeze(model, config.freeze)  # a copy on the devices
    perturbation = here.perturbation(config.perturbation, config.rho)
    trainer = teachers.trainer_of(
        teacher, here, model, config, config.rho, perturbation=perturbation
    )
    loss, accuracy = loss_and_accuracy(config)
    trainer.compile(  # plain training where rho is 0
        make_optimizer(config, model, steps),
        loss=loss,
        weighted_metrics=[accuracy],
    )
    return trainer


def loss_and_accuracy(config: Config):
    """Returns loss and metric, of one-hot labels where they are mixed or smoothed."""
    losses, metrics = keras.losses, keras.metrics
    if not training_data.has_soft_labels(config):
        loss = losses.SparseCategoricalCrossentropy(from_logits=True)
        return loss, metrics.SparseCategoricalAccuracy(name="accuracy")
    loss = losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=config.label_smoothing
    )
    return loss, metrics.CategoricalAccuracy(name="accuracy")


def batch_options(config: Config, model) -> dict:
    """Returns keyword arguments for the batches of the training and its evaluation."""
    options = training_data.batch_options(config, model)
    if training_data.has_soft_labels(config):
        options["classes"] = len(model.record["label_names"])
    return options


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
    options = batch_options(config, model)
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


def add_adapters(config: Config, model: keras.Model) -> None:
    """Adds LoRA's adapters, freezes the base, and prints the number of weights."""
    layers = {"layers": config.lora_layers} if config.lora_layers else {}
    try:
        kerasvit.add_lora(model, config.lora, train_norms=config.train_norms, **layers)
    except ValueError as error:
        raise ValueError(f"--lora, --lora-layers: {error}") from error
    text = f"LoRA of rank {config.lora}: {trained_weights(model)}"
    console.print(text, highlight=False)


def build(config: Config, label_names: list[str]) -> keras.Model:
    """Returns the model before training, with a head for the classes."""
    variant = models.find_variant(config, {"small": SMALL})
    size = config.image_size
    if variant is SMALL and not config.weights:
        size = size or (32,)
    options = {
        "num_classes": len(label_names),
        "image_size": size and (size[0], size[-1]),
    }
    if variant is None:
        model = kerasvit.from_pretrained(config.weights, **options)
        if model.record["kwargs"].get("dropout", config.dropout) != config.dropout:
            options["dropout"] = config.dropout
            model = kerasvit.from_pretrained(config.weights, **options)
    else:
        if config.dropout or "dropout" in variant.defaults:
            options["dropout"] = config.dropout
        model = variant(config.weights, **options)
    if model.adapters:
        kerasvit.merge_lora(model)
        console.print("The adapters of the weights are merged into their kernels.")
    if config.weights:
        console.print(models.reset_unless_same_classes(model, label_names))
    else:
        console.print(
            f"{model.record['variant']}: fresh weights, as --weights gives none."
        )
        # Fresh weights need no crop: use the whole image.
        model.record["preprocessing"]["crop"] = 1.0
    if config.rule:
        model.record["preprocessing"] |= hyperrule.EVALUATION
    model.record["label_names"] = label_names
    model.record.pop("problem_type", None)  # of the weights: now it is one label
    return model


def main(config: Config) -> None:
    """Trains, prints the results, and warns if the weights became worse."""
    results = compare(config) if config.compare else [finetune(config)]
    if not config.dry_run:
        report(*results)
        for result in results:
            linear_classifier.warn_if_worse(result)
            stages.warn_if_worse(result)


if __name__ == "__main__":
    command_line.main(lambda: main(CONFIG))
