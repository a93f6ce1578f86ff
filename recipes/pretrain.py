"""Trains any model from scratch, with or without SAM, with paper or small settings.

    python recipes/pretrain.py                # a small ViT on 1,000 images of MNIST
    python recipes/pretrain.py study_mixer --rho 0.05    # a Mixer instead, with SAM
    python recipes/pretrain.py vit_sam --model ViTS16    # ImageNet, arXiv 2106.01548
    python recipes/pretrain.py vit_sam --data photos/ --batch-size 256
    python recipes/pretrain.py --help

The first two commands download nothing. recipes/README.md contains the published
results for the papers' settings, which were not run here, and the results of a study of
small models with and without SAM.
"""

# ruff: noqa: E402
import functools
import math
import sys

import command_line
from pretrain_settings import PRESETS, Config, radius

parse = functools.partial(command_line.parse, presets=PRESETS, script="pretrain.py")
if __name__ == "__main__":  # before the imports that take seconds
    CONFIG = command_line.read(sys.argv[1:], PRESETS, "pretrain.py")

import data
import keras
import training
from batches import AUGMENTATIONS, evaluation_batches, training_batches
from optimizers import make_optimizer, sigmoid
from progress import Steps, report

import kerasvit

SMALL = {  # for the study, 28 px; 112,000, 89,000 and 121,000 weights
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
}


def pretrain(config: Config) -> dict:
    """Trains, or continues an interrupted training, and saves the results.

    Returns:
        The content of result.json.

    Raises:
        command_line.BadInput: The input is wrong; raised before the training.
    """
    with command_line.checking_input():
        command_line.check(config)
        dataset = data.find(config.dataset, config.data)
        model = build(config, dataset.label_names)
        rounds, round_steps = training.plan(config, len(dataset.train))
        config = training.apply_plan(config, {}, rounds, round_steps)
        training.check_first_batch(config, model, dataset)
        folder = training.claim_folder(config, dataset, f"pretrain-{config.model}-")
    training.print_notices(config, dataset)
    if result := training.finished_result(folder):
        return result

    rho = radius(config)
    trainer = kerasvit.SAM(model, rho, micro_batches=config.micro_batches)
    trainer.compile(  # plain training where rho is 0
        make_optimizer(config, model, rounds * round_steps),
        loss=sigmoid
        if config.loss == "sigmoid"
        else keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=config.label_smoothing
        ),
        metrics=[keras.metrics.CategoricalAccuracy(name="accuracy")],
    )
    batch_options = training.batch_options(config, model)
    batch_options["classes"] = len(dataset.label_names)  # for one-hot labels
    name = "with SAM" if rho else "without SAM"
    progress = training.saved_progress(config, folder, name, rounds, round_steps)
    validation = evaluation_batches(dataset.validation, **batch_options)
    progress.restore(trainer, validation)
    with progress, Steps(name, progress.step, rounds, round_steps) as steps:
        for step, part in progress.parts(trainer):
            trainer.fit(
                training_batches(
                    dataset.train,
                    seed=config.seed,
                    start=step,
                    augmentation=AUGMENTATIONS[config.augment],
                    **batch_options,
                ),
                **part,  # its epochs are rounds: see training.plan
                shuffle=False,  # the batches are already shuffled
                validation_data=validation,
                callbacks=[progress, steps],
                verbose=0,  # `steps` prints
            )
    test = evaluation_batches(dataset.test, **batch_options)
    metrics = trainer.evaluate(test, verbose=0, return_dict=True)
    results = {name: {**metrics, "history": progress.history}}
    result = training.summary(results, dataset, folder, round_steps)
    return training.save(result, config, model, rho, recipe=__file__)


def build(config: Config, label_names: list[str]) -> keras.Model:
    """Returns the model before training, with a head for the classes."""
    variant = training.find_variant(config, SMALL)
    size = config.image_size
    rates = {"dropout": config.dropout, "stochastic_depth": config.stochastic_depth}
    model = variant(
        num_classes=len(label_names),
        image_size=size and (size[0], size[-1]),
        **{k: rate for k, rate in rates.items() if rate or k in variant.defaults},
    )
    model.record["label_names"] = label_names
    if not config.augment.startswith("photo"):  # no crop, as in training
        model.record["preprocessing"]["crop"] = 1.0
    if config.loss == "sigmoid":
        # Initial probability 1 / classes: a bias of -6.9 for 1,000, -10 for 21,843.
        bias = model.get_layer("head").bias
        bias.assign(keras.ops.full(bias.shape, -math.log(len(label_names))))
    return model


if __name__ == "__main__":
    command_line.main(lambda: report(pretrain(CONFIG)))
