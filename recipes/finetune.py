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
from typing import ClassVar, Literal

from command import command_line
from command.options import OF_RULE
from command.weights import Weights
from presets import FINETUNE
from training.settings import METHOD_SETTINGS, METHODS, Common


@dataclasses.dataclass(frozen=True)
class Head:
    """The new head, before all weights are trained."""

    linear_head: bool | None = None  # start with a head fitted to frozen features
    # first the head alone, for so many passes through the images, then all weights
    probe_epochs: int | None = None
    # None: 0.001, or learning_rate if it is larger
    probe_learning_rate: float | None = None


@dataclasses.dataclass(frozen=True)
class LoRA:
    """Adapters of a frozen model."""

    lora: int | None = None  # rank of adapters in a frozen model; None: train all
    # regular expression of the paths of their layers; None: attention/(query|value)
    lora_layers: str | None = None
    train_norms: bool = False  # with lora: also train normalisation layers
    keep_adapters: bool = False  # with lora: save adapters in a file of their own


@dataclasses.dataclass(frozen=True)
class Config(Common, Head, LoRA, Weights):
    """Fine-tunes a model with SAM. A preset's name may stand before the options."""

    # `defaults.py` chooses the settings that are None by the task, with reasons.

    # "small", or one of kerasvit.list_models(); None: "small" without weights, else the
    # model that the folder of the weights states
    model: str | None = None
    weights: str | None = None  # public name, file or folder; None: fresh weights
    dataset: str = "digits"  # of names.BUILT_IN, or of tensorflow-datasets
    decayed: Literal["kernels", "all"] = "all"  # which weights decay
    # BiT's: of the number and the size of the images (defaults.py)
    rule: Literal["hyperrule"] | None = None
    # SAM or a successor: kerasvit/training/README.md; auto: SAM only if it helps in
    # short trainings on the images
    method: Literal[*METHODS, "auto"] = "sam"
    try_minutes: float = 10.0  # of these trainings, with and without SAM
    compare: bool = False  # also train without SAM, in a folder of its own

    small: ClassVar = ("small",)  # models that this script defines
    small_patch: ClassVar = 8  # pixels; side of the patches of "small"
    then_rate: ClassVar = 0.1  # the rate is already that of fine-tuning

    def check(self) -> None:
        """Raises a `ValueError` for settings that contradict each other."""
        if self.method == "auto":
            self._check_auto()
        super().check()
        if self.lora is not None and not self.weights:
            raise ValueError("`lora`: adapters need pretrained --weights below them.")
        if self.compare and (self.rho == 0 or (self.rule and self.rho is None)):
            raise ValueError(
                "`compare`: rho is 0, so that there is no training with SAM to compare "
                "with. Give a radius, --rho."
            )
        is_small = self.model in (None, "small") and not self.weights
        if self.rule:
            self._check_rule()
        elif is_small:
            self._check_size()
        default = "sgd" if is_small else "adamw"  # of defaults.py
        if self.learning_rate is None and self.optimizer not in (None, default):
            raise ValueError(
                f"`optimizer`: {self.optimizer} needs a --learning-rate; the one that "
                f"is chosen without is for {default}."
            )

    def _check_auto(self):
        if self.compare:
            raise ValueError(
                "`compare` trains with SAM and without, and --method auto chooses one "
                "of them. Give --no-compare, or --method sam."
            )
        if self.task == "multilabel":
            raise ValueError(
                "`method`: auto compares accuracies of one label per image, and --task "
                "multilabel has several. Give --method sam, or --rho 0 for plain "
                "training."
            )
        for name in ("rho", *METHOD_SETTINGS, "rule", "teacher", "freeze"):
            if (given := getattr(self, name)) is not None:
                raise ValueError(
                    f"`{name}`: --method auto tries SAM and plain training without it. "
                    f"Received: {given}. Leave out --{name.replace('_', '-')} or the "
                    "preset that sets it, or give --method sam."
                )

    def _check_size(self):
        if any(side % self.small_patch for side in self.image_size or ()):
            raise ValueError(
                "`image_size` of the small model must be a multiple of its patches, "
                f"{self.small_patch}. Received: {' '.join(map(str, self.image_size))}. "
                "Give another size, or --model and --weights."
            )

    def _check_rule(self):
        default = type(self)()
        for name in OF_RULE:
            if (given := getattr(self, name)) != getattr(default, name):
                raise ValueError(
                    f"`rule`: HyperRule chooses `{name}` itself. Received: {given}. "
                    f"Leave out --{name.replace('_', '-')} or the preset that sets it, "
                    "or --rule."
                )


PRESETS = {
    # The first one is the demo, used without arguments.
    "digits": Config(compare=True),
    # Of the papers: see PRESETS.md.
    **{name: preset.configuration(Config) for name, preset in FINETUNE.items()},
}

parse = functools.partial(command_line.parse, presets=PRESETS, script="finetune.py")
if __name__ == "__main__":  # before the imports that take seconds
    CONFIG = command_line.read(sys.argv[1:], PRESETS, "finetune.py")

import keras
from devices.devices import Devices, start_devices
from training import (
    defaults,
    dry_run,
    linear_classifier,
    models,
    results,
    run_folder,
    sam_trial,
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


def finetune(asked: Config) -> dict | None:
    """Trains, or continues an interrupted training, and saves the results.

    Returns:
        The content of result.json; None for a dry run.

    Raises:
        command_line.BadInput: The input is wrong; raised before the training.
    """
    [result] = run([asked])
    return result


def compare(asked: Config) -> list[dict | None]:
    """Fine-tunes without SAM and with it, in two folders; else like `finetune`."""
    with command_line.checking_input():
        command_line.check(asked)
    with_sam = dataclasses.replace(asked, compare=False)
    folder = run_folder.out_folder(with_sam)
    of_sam = dict.fromkeys(METHOD_SETTINGS) | {"method": "sam"}
    plain = dataclasses.replace(with_sam, out=f"{folder}/plain", rho=0.0, **of_sam)
    return run([plain, dataclasses.replace(with_sam, out=f"{folder}/sam")])


def run(trainings: list[Config]) -> list[dict | None]:
    """Calls `finetune_on` for settings that have the same devices."""
    with command_line.checking_input():
        for asked in trainings:
            command_line.check(asked)
        devices = start_devices(trainings[0])
        channels = models.check_weights(trainings[0], {"small": SMALL})
    with devices.together():
        return [finetune_on(devices, asked, None, channels) for asked in trainings]


def finetune_on(
    devices: Devices, asked: Config, images=None, of_weights: int = 3
) -> dict | None:
    """Trains on the devices, on `LabelledImages` if given; else like `finetune`."""
    with command_line.checking_input():
        images = images or training_data.find_data(asked, devices, of_weights)
        model = build(asked, images.class_names, defaults.size_of(asked, images))
        means = models.set_means(asked, model, images, of_weights)
        chosen, reasons = defaults.choose(asked, images, model, devices)
        training_data.check_first_batch(chosen, model, images)
        models.train_only(chosen, model)
        plan = stages.of(chosen, images, model, reasons)
        config = stages.main_of(plan).config  # complete from here on
        make_optimizer(config, model, stages.main_of(plan).steps)  # it checks them
    if config.dry_run:
        return dry_run.measure(devices, plan, model, images, compiled)
    with run_folder.claimed_folder(config, images, devices) as folder:
        if result := run_folder.finished_result(folder):
            return result
        plan, tried = sam_trial.decided(devices, plan, model, images, folder, reasons)
        config = stages.main_of(plan).config
        defaults.print_settings(config, reasons)
        seen = seen_in_training(config, images)
        start = linear_classifier.set_head(devices, model, seen, config, folder)
        parts = []
        # The head alone, all weights, larger images: each if the settings ask for it.
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
        result = results.summary(parts, plan, images, folder, start, means, tried)
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
    trainer.compile(
        make_optimizer(config, model, stage.steps),
        loss=loss_of(config, stage.counts),
        weighted_metrics=[accuracy_of(config)],
    )
    return trainer


def build(asked: Config, label_names: list[str], size=None) -> keras.Model:
    """Returns the model before training, with a head for the classes.

    Args:
        asked: Settings.
        label_names: Names of the classes.
        size: Result of `defaults.size_of`.
    """
    variant = models.find_variant(asked, {"small": SMALL})
    size = asked.image_size or size
    if variant is SMALL and not asked.weights:
        size = size or (32,)
    options = {
        "num_classes": len(label_names),
        "image_size": size and (size[0], size[-1]),
        "state": asked.state,
    }
    if asked.channels:
        options["channels"] = asked.channels
    if variant is None:
        model = kerasvit.from_pretrained(asked.weights, **options)
        if model.record["kwargs"].get("dropout", asked.dropout) != asked.dropout:
            options["dropout"] = asked.dropout
            model = kerasvit.from_pretrained(asked.weights, **options)
    else:
        if asked.dropout or "dropout" in variant.defaults:
            options["dropout"] = asked.dropout
        model = variant(asked.weights, **options)
    models.set_labels(asked, model, label_names)
    if asked.rule:
        model.record["preprocessing"] |= defaults.EVALUATION
    return model


def main(asked: Config) -> None:
    """Trains, prints the results, and warns if the weights became worse."""
    found = compare(asked) if asked.compare else [finetune(asked)]
    if not asked.dry_run:
        results.report(*found)
        for result in found:
            linear_classifier.warn_if_worse(result)
            stages.warn_if_worse(result)


if __name__ == "__main__":
    command_line.main(lambda: main(CONFIG))
