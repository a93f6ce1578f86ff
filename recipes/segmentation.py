"""Trains a linear segmentation head on features of any model, or also the model.

    python recipes/segmentation.py                       # synthetic shapes: no download
    python recipes/segmentation.py --data photos/ --weights vit_small.safetensors
    python recipes/segmentation.py --data photos/ --weights runs/sam/model \\
        --train-backbone --rho 0.05
    python recipes/segmentation.py --help

The head is a batch normalisation and a 1 × 1 convolution for each map, whose logits are
resized to the image and added, as the linear head on DINOv2's features (Oquab et al.
2023, arXiv 2304.07193, section 7.4). `model.keras` in the folder of the results takes
pixels from 0 to 255. A stopped command continues from its last saved state.
"""

# ruff: noqa: E402
import contextlib
import dataclasses
import math
import os
import shutil
import sys
import warnings
from pathlib import Path

from command import command_line, folder_lock
from segmenting.settings import Config


def parse(arguments) -> Config:
    """Returns the configuration of a command: `command_line.parse_options`."""
    return command_line.parse_options(
        arguments, Config(), prog="segmentation.py", description=Config.__doc__
    )


if __name__ == "__main__":  # before the imports that take seconds
    CONFIG = command_line.start(parse, sys.argv[1:])

import keras
import numpy as np
from command import paths
from devices.devices import ONE
from segmenting import labelled_masks, results
from segmenting.labelled_masks import IGNORED, Batches
from training import run_folder, validation
from training.progress import Steps, console
from training.run_folder import claim, replace_file, write_json
from training.step_log import StepLog
from training.validation import Validation

import kerasvit
from kerasvit.inspection import as_rgb

SMALL = kerasvit.Variant(  # 124,000 weights
    "small",
    kerasvit.PreActResNet,
    depths=[1, 1, 1, 1],
    widths=(16, 32, 48, 64),
    stem_width=16,
    bottleneck=False,
    stem="cifar",
)


def segment(config: Config) -> dict:
    """Trains, or continues a stopped training, and returns the content of result.json.

    Raises:
        command_line.BadInput: The input is wrong; raised before the training.
    """
    with command_line.checking_input():
        command_line.check(config)
        keras.config.set_dtype_policy("float32")
        keras.utils.set_random_seed(config.seed)
        backbone = features(config)
        size = backbone.input_shape[1:3]
        transform = backbone.preprocessing
        as_rgb(np.zeros((1, 1, transform.channels)), config.bands)  # it checks them
        dataset = labelled_masks.find(config, size, transform)
        out = f"runs/segmentation-{dataset.name}-{keras.backend.backend()}"
        folder = Path(os.path.expanduser(config.out or out))
    with contextlib.ExitStack() as held:
        with command_line.checking_input():
            if not (folder / "result.json").exists():
                held.enter_context(folder_lock.locked(folder))
            claim(folder, located(config), dataset)
        return run_folder.finished_result(folder) or trained(
            config, backbone, dataset, folder
        )


def trained(config: Config, backbone, dataset, folder: Path) -> dict:
    """Trains, saves, and returns the content of result.json."""
    classes = len(dataset.class_names)
    model = segmenter(backbone, classes)
    describe(config, backbone, model, dataset)
    rounds = min(config.validations, config.steps)
    steps = math.ceil(config.steps / rounds)  # between two validations
    trainer = compiled(config, model, rounds * steps, classes)
    tested = Tested(dataset.validation, config.batch_size)
    train = Batches(dataset.train, config.batch_size, steps, config.seed)
    resume = kerasvit.Resume(folder / "training", train, config.save_minutes)
    log = StepLog(folder / "log.csv", resume, ONE, config.batch_size)
    with Steps(resume, metric="mean_iou") as bar:
        trainer.fit(
            train,
            epochs=rounds,
            shuffle=False,  # the batches are shuffled
            callbacks=[log, Validation(tested), resume, bar],
            verbose=0,  # `bar` prints
        )
    result = {
        **results.scores(model, tested.batches, dataset.class_names),
        "measured_on": "validation",  # there are no test images
        "folder": str(folder),
        "images": dataset.counts,
        "history": validation.rounds(resume.history),
    }
    unfinished = folder / "unfinished.keras"
    model.save(unfinished)
    replace_file(unfinished, folder / "model.keras")
    path = folder / "predictions.png"
    results.draw(model, *tested.batches[0], path, config.bands)
    write_json(folder / "result.json", result)
    shutil.rmtree(folder / "training")
    return result


def features(config: Config) -> kerasvit.FeatureModel:
    """Returns the model of the settings as a backbone that takes pixels to 255."""
    name = config.model or (None if config.weights else "small")
    size = config.image_size or ((48,) if name == "small" else ())
    options = {"num_classes": 0, "include_preprocessing": True, "state": config.state}
    if size:
        options["image_size"] = size[0], size[-1]
    if name is None:
        model = kerasvit.from_pretrained(config.weights, **options)
    else:
        variant = SMALL if name == "small" else getattr(kerasvit, name)
        model = variant(config.weights, **options)
    layers = [int(x) if x.lstrip("-").isdecimal() else x for x in config.layers]
    backbone = kerasvit.features(model, layers or None)
    backbone.trainable = config.trains_backbone
    # Of the images and masks, which the file of the model states.
    backbone.preprocessing = labelled_masks.squashed(
        backbone.preprocessing, backbone.input_shape[1:3]
    )
    return backbone


def located(config: Config) -> Config:
    """Returns the settings with a path that does not depend on the working folder."""
    return dataclasses.replace(
        config, folder=config.folder and str(paths.absolute(config.folder))
    )


def segmenter(backbone: kerasvit.FeatureModel, classes: int) -> keras.Model:
    """Returns the model from images to logits (batch, height, width, classes)."""
    size = backbone.input_shape[1:3]
    image = keras.Input(backbone.input_shape[1:], name="image")
    logits = []
    maps = keras.tree.flatten(backbone(image))
    for name, x in zip(backbone.names, maps, strict=True):
        x = kerasvit.layers.BatchNormalization(name=f"{name}_norm")(x)
        x = keras.layers.Conv2D(
            classes, 1, data_format="channels_last", name=f"{name}_classifier"
        )(x)
        logits.append(
            keras.ops.image.resize(x, size, "bilinear", data_format="channels_last")
        )
    total = keras.layers.Add(name="logits")(logits) if logits[1:] else logits[0]
    return keras.Model(image, total, name="segmenter")


def describe(config: Config, backbone, model: keras.Model, dataset) -> None:
    """Prints what is trained on what."""
    trained = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    levels = ", ".join(
        f"{name} (stride {stride}, {channels} channels)"
        for name, stride, channels in zip(
            backbone.names, backbone.strides, backbone.channels, strict=True
        )
    )
    kind = "trained" if config.trains_backbone else "frozen"
    height, width = backbone.input_shape[1:3]
    counts = dataset.counts
    console.print(
        f"Features of the {kind} {backbone.name.removesuffix('_features')}: {levels}. "
        f"{trained:,} weights are trained on {counts['train']:,} images of {height} × "
        f"{width} pixels with {len(dataset.class_names)} classes, and validated on "
        f"{counts['validation']:,}.",
        highlight=False,
        soft_wrap=True,
    )


def compiled(config: Config, model: keras.Model, steps: int, classes: int):
    """Returns the trainer of a training of `steps` steps."""
    warmup = min(50, steps // 5)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps - warmup, warmup_target=config.rate, warmup_steps=warmup
    )
    # Keras's MeanIoU counts in int64, which JAX does not have.
    warnings.filterwarnings("ignore", "Explicitly requested dtype int64")
    trainer = kerasvit.SAM(model, config.rho)
    trainer.compile(
        optimizer=kerasvit.AdamW(rate, weight_decay=config.weight_decay),
        loss=keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=IGNORED
        ),
        metrics=[
            keras.metrics.MeanIoU(
                classes, ignore_class=IGNORED, sparse_y_pred=False, name="mean_iou"
            )
        ],
    )
    return trainer


class Tested:
    """Loss and mean IoU of a trainer on the validation images, for `Validation`.

    Args:
        images: Pairs (image, mask).
        batch_size: Images per batch; the last may have fewer.
    """

    devices = ONE

    def __init__(self, images, batch_size: int):
        count = len(images)
        self.batches = [
            labelled_masks.stacked(images, range(count)[i : i + batch_size])
            for i in range(0, count, batch_size)
        ]

    def __call__(self, trainer) -> dict[str, float]:
        batches, steps = (each for each in self.batches), len(self.batches)
        return trainer.evaluate(batches, steps=steps, verbose=0, return_dict=True)


if __name__ == "__main__":
    command_line.main(lambda: results.report(segment(CONFIG)))
