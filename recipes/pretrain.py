"""Trains any model from scratch, with or without SAM, with paper or small settings.

    python recipes/pretrain.py                # a small ViT on 1,000 images of MNIST
    python recipes/pretrain.py study_mixer --rho 0.05    # a Mixer instead, with SAM
    python recipes/pretrain.py vit_sam --model ViTS16    # ImageNet, arXiv 2106.01548
    python recipes/pretrain.py vit_sam --data photos/ --batch-size 256
    python recipes/pretrain.py --objective mae --decoder 64 2 4    # without labels
    python recipes/pretrain.py --help

The first two commands download nothing. recipes/PRESETS.md has the published results of
the papers' settings, which were not run here, and recipes/experiments/results those of
small models with and without SAM.
"""

# ruff: noqa: E402
import ast
import dataclasses
import functools
import math
import sys
from typing import ClassVar, Literal

from command import command_line
from presets import PRETRAIN
from training.settings import AUGMENT, OPTIMIZERS, Common, Unlabelled


@dataclasses.dataclass(frozen=True)
class Config(Common, Unlabelled):
    """Trains a model from scratch. A preset's name may stand before the options."""

    model: str = "small_vit"  # one of `small`, for 28 px, or of kerasvit.list_models()
    dataset: str = "mnist_subset"  # of names.BUILT_IN, or of tensorflow-datasets
    augment: AUGMENT = "none"  # crops, flips, mixing: recipes/DATA.md
    batch_size: int = 100  # images per step
    epochs: int | None = 40  # passes through the training images
    validations: int = 50  # at most; a state is saved at each
    optimizer: OPTIMIZERS = "adamw"
    learning_rate: float = 2e-3  # maximum, after the warm-up
    warmup_steps: int = 100  # linear; at most a fifth of the training
    weight_decay: float = 0.1  # times the learning rate; without SAM's perturbation
    # sigmoid: summed over classes
    loss: Literal["softmax", "sigmoid", "focal", "adjusted", "asymmetric"] = "softmax"
    rho: float | None = 0.0  # radius of SAM, ≥ 0; 0: no SAM; None: of RADII
    micro_batches: int = 1  # parts of each device's batch, perturbed separately
    stochastic_depth: float = 0.0  # of the last block, in [0, 1)
    # arguments of the model's builder, such as pool=average positions=sincos2d
    model_options: tuple[str, ...] | None = None

    small: ClassVar = (
        "small_vit",
        "small_mixer",
        "small_bit",
        "small_swin",
        "small_alternet",
        "small_preact",
        "small_ablation",
        "small_hybrid",
        "small_pit",
        "small_resnext",
    )  # defined in pretrain.py
    # Between DeiT, 1e-3 and then 5e-6 (README_deit.md), and Swin, 5e-4 and 2e-5
    # (swin_base_patch4_window12_384_finetune.yaml).
    then_rate: ClassVar = 0.01

    def check(self) -> None:
        """Raises a `ValueError` for settings that contradict each other."""
        super().check()
        Unlabelled.check(self)
        radius(self)
        builder_arguments(self)
        if self.loss == "sigmoid" and self.teacher:
            raise ValueError("`teacher` is for the loss softmax. Give --loss softmax.")


# SAM's radii of arXiv 2106.01548. Only the radius of ViT-B/16 is confirmed by another
# source: use them as starting points. Their ResNets have BiT's widths.
RADII = {
    "BiTR50x1": 0.02,
    "BiTR101x1": 0.05,
    "BiTR152x1": 0.02,
    "BiTR50x2": 0.05,
    "BiTR101x2": 0.05,
    "BiTR152x2": 0.05,
    "ViTS32": 0.05,
    "ViTS16": 0.1,
    "ViTS14": 0.1,
    "ViTS8": 0.15,
    "ViTB32": 0.15,
    "ViTB16": 0.2,
    "MixerS32": 0.1,
    "MixerS16": 0.15,
    "MixerS8": 0.2,
    "MixerB32": 0.35,
    "MixerB16": 0.6,
    "MixerB8": 0.6,
}

PRESETS = {
    "mnist": Config(),
    # Of the papers: see PRESETS.md.
    **{name: preset.configuration(Config) for name, preset in PRETRAIN.items()},
    # Of reproduce.py's small models, with this rho and with 0. No setting was tuned.
    "study_vit": Config(epochs=30, rho=0.1),
    "study_mixer": Config(model="small_mixer", epochs=30, rho=0.1),
    "study_bit": Config(
        model="small_bit",
        epochs=30,
        optimizer="sgd",
        learning_rate=0.05,
        weight_decay=0.01,
        rho=0.1,
    ),
}


def builder_arguments(config: Config) -> dict:
    """Returns `model_options` as {argument: value}.

    Raises:
        ValueError: An option is not ARGUMENT=VALUE, or is another option of the script.
    """
    arguments = {}
    for option in config.model_options or ():
        name, equals, text = option.partition("=")
        fields = {field.name for field in dataclasses.fields(config)}
        if name in fields | {"num_classes"}:
            raise ValueError(
                f"`model_options`: {name} is set by --{name.replace('_', '-')}, or by "
                f"the images. Received: {option!r}."
            )
        if not (name.isidentifier() and equals and text):
            raise ValueError(
                "`model_options` must be arguments of the model's builder, such as "
                f"pool=average. Received: {option!r}."
            )
        try:
            arguments[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):  # a word
            arguments[name] = text
    return arguments


def radius(config: Config) -> float:
    """Returns SAM's radius: that of the settings, or the paper's for the model.

    Raises:
        ValueError: The paper has no radius for the model.
    """
    if config.rho is not None:
        return config.rho
    if config.model not in RADII:
        raise ValueError(
            f"`rho`: the paper has none for {config.model}. Give one with --rho, or "
            f"use one of the models {', '.join(RADII)}."
        )
    return RADII[config.model]


parse = functools.partial(command_line.parse, presets=PRESETS, script="pretrain.py")
if __name__ == "__main__":  # before the imports that take seconds
    CONFIG = command_line.read(sys.argv[1:], PRESETS, "pretrain.py")

import keras
from devices.devices import Devices, start_devices
from training import (
    dry_run,
    models,
    results,
    run_folder,
    stages,
    trainers,
    training_data,
)
from training.few_shot import FewShot
from training.optimizers import accuracy_of, loss_of, make_optimizer
from training.progress import Steps
from training.step_log import StepLog
from training.validation import Evaluation, KeepBest, Validation, seen_in_training

import kerasvit

TWIN = {
    "image_size": 28,
    "depths": [2, 2, 2],
    "bottleneck": False,
    "stem": "cifar",
    "widths": [12, 24, 48],
    "stem_width": 12,
}
SMALL = {  # 28 px; for reproduce.py
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
    # For the studies of arXiv 2202.06709: window, pool and norm are --model-options.
    "small_ablation": kerasvit.Variant(
        "small_ablation",
        kerasvit.VisionTransformerAblation,
        image_size=28,
        patch_size=4,
        width=48,
        depth=4,
        num_heads=3,
        mlp_dim=96,
        window=None,
        pool="token",
        norm="pre",
    ),
    "small_hybrid": kerasvit.Variant(
        "small_hybrid",
        kerasvit.HybridVisionTransformer,
        image_size=28,
        resnet_depths=[1],
        width_factor=0.5,
        patch_size=1,
        width=64,
        depth=2,
        num_heads=4,
        mlp_dim=128,
    ),
    "small_pit": kerasvit.Variant(
        "small_pit",
        kerasvit.PoolingVisionTransformer,
        image_size=28,
        patch_size=4,
        stride=4,
        width=32,
        depths=[2, 2],
        num_heads=[2, 4],
        mlp_ratio=2.0,
        distilled=False,
    ),
    "small_resnext": kerasvit.Variant(
        "small_resnext",
        kerasvit.ResNeXt,
        image_size=28,
        stem="cifar",
        depths=[2, 2, 2],
        width=40,
        stem_width=12,
        groups=4,
        group_width=5,
    ),
}


def pretrain(asked: Config) -> dict | None:
    """Trains, or continues an interrupted training, and saves the results.

    Returns:
        The content of result.json; None for a dry run.

    Raises:
        command_line.BadInput: The input is wrong; raised before the training.
    """
    with command_line.checking_input():
        command_line.check(asked)
        devices = start_devices(asked)
        devices.check_batch(asked.batch_size, asked.accumulate)
    with devices.together():
        return pretrain_on(devices, asked)


def pretrain_on(devices: Devices, asked: Config) -> dict | None:
    """Trains on the devices; otherwise like `pretrain`."""
    with command_line.checking_input():
        images = training_data.find_data(asked, devices)
        model = build(asked, images.class_names)
        means = models.set_means(asked, model, images)
        devices.perturbation(asked.perturbation, radius(asked))
        epochs = None if asked.steps else asked.epochs
        chosen = dataclasses.replace(asked, rho=radius(asked), epochs=epochs)
        training_data.check_first_batch(chosen, model, images)
        models.train_only(chosen, model)
        trainers.check_objective(chosen, model)
        plan = stages.of(chosen, images, model)
        config = stages.main_of(plan).config
        make_optimizer(config, model, stages.main_of(plan).steps)  # it checks them
    if config.dry_run:
        return dry_run.measure(devices, plan, model, images, compiled)
    prefix = f"pretrain-{config.model}-"
    with run_folder.claimed_folder(config, images, devices, prefix) as folder:
        if result := run_folder.finished_result(folder):
            return result
        seen = seen_in_training(config, images)
        parts = []
        # All weights, then larger images if the settings ask for them.
        for stage, staged in stages.each(devices, model, plan):
            with devices.scope():
                trainer = compiled(devices, stage, staged)
                options = training_data.fit_options(config, staged)
                train = stage.batches(devices, images, options)
                validation = Evaluation(seen.validation, devices, **options)
                # It restores the last state of an interrupted `fit`, of each stage.
                resume = kerasvit.Resume(
                    stage.folder(folder), train, config.save_minutes
                )
                best = KeepBest.of(config, resume, devices)
                explained = dry_run.explained_out_of_memory(devices, config)
                with explained, Steps.of(config, resume) as steps:
                    trainer.fit(
                        devices.distributed(train),
                        epochs=stage.rounds,  # of steps between two validations
                        shuffle=False,  # the batches are already shuffled
                        callbacks=[  # a callback of yours: before `best`
                            StepLog.of(config, resume, devices),
                            Validation(validation),
                            *FewShot.of(config, devices, images, options),
                            *(*best, resume, steps),
                        ],
                        verbose=0,  # `steps` prints
                    )
                kept = stages.finish(stage, trainer, resume, *best)
                test = Evaluation(images.test, devices, **options)
                parts.append({**test(trainer), **kept})
        result = results.summary(parts, plan, images, folder, means=means)
        return results.save(
            result, plan, staged, recipe=__file__, devices=devices, dataset=images
        )


def compiled(devices: Devices, stage: stages.Stage, model) -> keras.Model:
    """Returns the compiled trainer of a stage: SAM, a successor, or plain training.

    Args:
        devices: Devices of the training, in whose scope this is called.
        stage: The stage, with its settings, steps and teacher.
        model: `ImageModel` on the devices.
    """
    config = stage.config
    trainer = trainers.trainer_of(devices, stage, model)  # where rho is 0: plain
    if config.objective != "labels":  # the trainer has its loss, and more weights
        trainer.compile(make_optimizer(config, trainer, stage.steps))
        return trainer
    trainer.compile(
        make_optimizer(config, model, stage.steps),
        loss=loss_of(config, stage.counts),
        weighted_metrics=[accuracy_of(config)],
    )
    return trainer


def build(config: Config, label_names: list[str]) -> keras.Model:
    """Returns the model before training, with a head for the classes, if any."""
    variant = models.find_variant(config, SMALL)
    size = config.image_size
    rates = {"dropout": config.dropout, "stochastic_depth": config.stochastic_depth}
    channels = {"channels": config.channels} if config.channels else {}
    labelled = config.objective == "labels"
    model = variant(
        num_classes=len(label_names) if labelled else 0,
        image_size=size and (size[0], size[-1]),
        **{k: rate for k, rate in rates.items() if rate or k in variant.defaults},
        **channels,
        **builder_arguments(config),
    )
    if labelled:
        model.record["label_names"] = label_names
        models.set_task(config, model)
    if training_data.augmentation(config).area == 1:  # no crop, as in training
        model.record["preprocessing"]["crop"] = 1.0
    if config.loss == "sigmoid" and config.task == "single_label":
        # Initial probability 1 / classes: a bias of -6.9 for 1,000, -10 for 21,843.
        bias = model.get_layer("head").bias
        bias.assign(keras.ops.full(bias.shape, -math.log(len(label_names))))
    return model


def show(result: dict | None) -> None:
    """Prints the results, and a warning if the last stage made the weights worse."""
    if result:
        results.report(result)
        stages.warn_if_worse(result)


if __name__ == "__main__":
    command_line.main(lambda: show(pretrain(CONFIG)))
