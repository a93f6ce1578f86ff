"""Fine-tune any model with SAM, on digits, a folder of images, or a published data set.

    python recipes/finetune.py                      # scikit-learn's digits: no download
    python recipes/finetune.py --data photos/ --model ViTB16 --weights vit.npz
    python recipes/finetune.py pets --weights vit.npz --rho 0.1     # Oxford-IIIT Pet
    python recipes/finetune.py --help

On 2 busy CPU cores, 2026-11-21, the first took 1.2 minutes on JAX, 1.5 on TensorFlow,
2.2 on PyTorch. Test accuracy on JAX, three seeds: 97.2 % (96.9 to 97.8) without SAM,
96.8 % (96.1 to 98.3) with; of 359 images, so a point is noise. More: recipes/README.md.
"""

# ruff: noqa: E402
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's notes on the machine

import dataclasses
import difflib
import functools
import json
import math
import shutil
import sys
from pathlib import Path
from typing import Literal

import data
import keras
import tyro
from batches import AUGMENTATIONS, evaluation_batches, training_batches
from progress import Progress, claim_folder, console, draw_curves, report, write_json

import kerasvit
from kerasvit.images import input_problem


@dataclasses.dataclass(frozen=True)
class Config:
    """Fine-tunes a model with SAM. A preset's name may stand before the options."""

    model: str = "small"  # "small", for 32 px, or one of kerasvit.list_models()
    weights: str | None = None  # file or folder to start from; None: fresh weights
    dataset: str = "digits"  # "digits", or a name of tensorflow-datasets
    data: str | None = None  # folder of class folders of images, in place of `dataset`
    image_size: tuple[int] | tuple[int, int] | None = None  # pixels, height first
    augment: Literal["none", "shift", "photo"] = "shift"  # AUGMENTATIONS in batches.py
    batch_size: int = 64  # images a step
    learning_rate: float = 0.2  # the highest, after the warm-up; then a cosine to 0
    warmup_steps: int = 50  # rising from 0, at most a fifth of the training
    steps: int = 480  # of the optimizer, warm-up included
    epochs: int | None = None  # passes through the training images, in place of `steps`
    rho: float = 0.05  # radius of SAM, ≥ 0; 0 trains without
    compare: bool = True  # train without SAM too, from the same start
    dropout: float = 0.0  # rate in the blocks, in [0, 1)
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"  # of Keras
    seed: int = 0  # of fresh weights, order, augmentation and dropout
    out: str | None = None  # folder of the results; None: runs/NAME-BACKEND


SMALL = kerasvit.Variant(  # 114,000 weights
    "small",
    kerasvit.VisionTransformer,
    patch_size=8,
    width=64,
    depth=3,
    num_heads=4,
    mlp_dim=128,
    pool="average",
)

paper = functools.partial(  # Dosovitskiy et al. 2021; vit_jax/configs/common.py
    Config,
    model="ViTB16",
    image_size=(384,),
    augment="photo",
    batch_size=512,
    rho=0.0,
    compare=False,
)
PRESETS = {  # those of the paper have no SAM, and need weights: of ImageNet-21k there
    "digits": Config(),
    "cifar10": paper(
        dataset="cifar10", learning_rate=0.01, warmup_steps=500, steps=10_000
    ),
    "cifar100": paper(
        dataset="cifar100", learning_rate=0.03, warmup_steps=500, steps=10_000
    ),
    "pets": paper(
        dataset="oxford_iiit_pet", learning_rate=0.03, warmup_steps=100, steps=500
    ),
    "flowers": paper(
        dataset="oxford_flowers102", learning_rate=0.03, warmup_steps=100, steps=500
    ),
    "imagenet": paper(
        dataset="imagenet2012", learning_rate=0.03, warmup_steps=500, steps=20_000
    ),
}


def finetune(config: Config) -> dict:
    """Trains, or goes on where it was stopped, and leaves the results in a folder.

    Raises:
        BadInput: Something is wrong; found before any training time is spent.
    """
    model, dataset, folder = prepare(config)
    if (finished := folder / "result.json").exists():
        console.print(f"{folder} is finished. To train afresh, delete it.")
        return json.loads(finished.read_text())

    transform = kerasvit.Preprocessing.from_config(model.record["preprocessing"])
    built_in = bool(model.record["kwargs"].get("normalization"))
    options = {"batch_size": config.batch_size, "normalize": not built_in}
    validation = evaluation_batches(dataset.validation, transform, **options)
    test = evaluation_batches(dataset.test, transform, **options)
    rounds, round_steps = plan(config, len(dataset.train))
    steps = rounds * round_steps

    start = model.get_weights()
    trainings = {"with SAM": config.rho} if config.rho else {}
    if config.compare or not config.rho:
        trainings = {"without SAM": 0.0, **trainings}
    results = {}
    for name, rho in trainings.items():
        model.set_weights(start)
        trainer = kerasvit.SAM(model, rho)  # plain training where rho is 0
        trainer.compile(
            keras.optimizers.SGD(
                kerasvit.warmup_cosine(
                    config.learning_rate,
                    steps=steps,
                    warmup_steps=min(config.warmup_steps, steps // 5),
                ),
                momentum=0.9,
                global_clipnorm=1.0,
            ),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        )
        progress = Progress(folder / name.replace(" ", "_"), config.seed)
        done = progress.restore(trainer)
        console.rule(f"{name}, rounds {done} to {rounds} of {round_steps} steps")
        if done < rounds:
            trainer.fit(
                training_batches(
                    dataset.train,
                    transform,
                    seed=config.seed,
                    start=done * round_steps,
                    augmentation=AUGMENTATIONS[config.augment],
                    **options,
                ),
                initial_epoch=done,
                epochs=rounds,
                steps_per_epoch=round_steps,
                shuffle=False,  # that is done
                validation_data=validation,
                callbacks=[progress],
            )
        results[name] = {
            **trainer.evaluate(test, verbose=0, return_dict=True),
            "history": progress.history,
        }

    kerasvit.save_pretrained(model, folder / "model")
    result = {
        "results": results,
        "folder": str(folder),
        "round_steps": round_steps,
        "test": dataset.test_name,
        "images": dataset.counts,
    }
    draw_curves(result, folder / "curves.png")
    write_json(folder / "result.json", result)
    for name in trainings:
        shutil.rmtree(folder / name.replace(" ", "_"))
    return result


def prepare(config):
    """Model, data and folder, once all that can be wrong with them has been tried."""
    try:
        check(config)
        if config.data:
            dataset = data.folder(config.data)
        elif config.dataset == "digits":
            dataset = data.digits()
        else:
            dataset = data.tfds(config.dataset)
        model = build(config, dataset.label_names)
        check_first_batch(config, model, dataset)
        name = Path(config.data or config.dataset).resolve().name
        folder = config.out or f"runs/{name}-{keras.backend.backend()}"
        return model, dataset, claim_folder(folder, config, dataset)
    except ValueError as error:
        raise BadInput(str(error)) from error


class BadInput(ValueError):
    """Something is wrong with what the user gave."""


def check(config):
    """Raises a `ValueError` for a number out of its range."""
    limits = {
        "batch_size": (1, math.inf),
        "learning_rate": (1e-12, math.inf),
        "warmup_steps": (0, math.inf),
        "steps": (1, math.inf),
        "epochs": (1, math.inf),
        "rho": (0, math.inf),
        "dropout": (0, 0.99),
        "seed": (0, 2**31 - 1),
    }
    for name, (low, high) in limits.items():
        value = getattr(config, name)
        if value is not None and not (low <= value <= high and math.isfinite(value)):
            most = f" and at most {high}" if high < math.inf else ""
            raise ValueError(
                f"`{name}` must be at least {low}{most}. Received: {value}."
            )


def build(config, label_names):
    """The model at its start."""
    keras.config.set_dtype_policy(config.dtype)
    keras.utils.set_random_seed(config.seed)
    data.check_name("model", config.model, ["small", *kerasvit.list_models()])
    variant = SMALL if config.model == "small" else getattr(kerasvit, config.model)
    fresh = config.model == "small" and not config.weights
    size = config.image_size or ((32,) if fresh else None)
    has_dropout = config.dropout or "dropout" in variant.defaults
    model = variant(
        config.weights,
        num_classes=len(label_names),
        image_size=size and (size[0], size[-1]),
        **({"dropout": config.dropout} if has_dropout else {}),
    )
    model.record["label_names"] = label_names
    if not config.weights:
        console.print(f"{config.model}: fresh weights, as --weights gives no others.")
        # There is no transform to be true to: show it the image to its edges.
        model.record["preprocessing"]["crop"] = 1.0
    return model


def check_first_batch(config, model, dataset):
    """Raises a `ValueError` if the values of images are not what the model takes."""
    transform = kerasvit.Preprocessing.from_config(model.record["preprocessing"])
    built_in = bool(model.record["kwargs"].get("normalization"))
    options = {"seed": config.seed, "augmentation": AUGMENTATIONS[config.augment]}
    options |= {"batch_size": 8, "normalize": not built_in}
    images, _ = next(iter(training_batches(dataset.train, transform, **options)))
    problem = input_problem(images, transform.mean, transform.std, built_in=built_in)
    if problem:
        raise ValueError(problem)


def plan(config, count):
    """(rounds, steps of each); a round ends with validation and a saved state."""
    steps_per_epoch = max(1, round(count / config.batch_size))
    steps = config.steps
    if config.epochs is not None:
        steps = config.epochs * steps_per_epoch
    # An epoch each; but not hundreds, as for flowers, whose epoch is two steps.
    rounds = min(50, max(1, round(steps / steps_per_epoch)))
    return rounds, math.ceil(steps / rounds)


def parse(arguments: list[str]) -> Config:
    """The configuration: that of a preset, with what the options change."""
    preset, options = "digits", list(arguments)
    if options and not options[0].startswith("-"):
        preset = options.pop(0)
        if preset not in PRESETS:
            near = difflib.get_close_matches(preset, PRESETS) or PRESETS
            raise BadInput(f"There is no preset {preset!r}. Close: {', '.join(near)}.")
    return tyro.cli(
        Config,
        default=PRESETS[preset],
        args=options,
        prog="finetune.py [PRESET]",
        description=f"{Config.__doc__} Presets: {', '.join(PRESETS)}.",
    )


def main(arguments):
    """From the command line."""
    try:
        result = finetune(parse(arguments))
    except BadInput as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit("\nInterrupted. The same command goes on from the last round.")
    report(result)


if __name__ == "__main__":
    main(sys.argv[1:])
