"""Train any model from scratch, with SAM or without, as the papers do or smaller.

    python recipes/pretrain.py                # a small ViT on 1,000 images of MNIST
    python recipes/pretrain.py study          # ViT, Mixer, BiT, with SAM and without
    python recipes/pretrain.py vit_sam --model ViTS16    # ImageNet, arXiv 2106.01548
    python recipes/pretrain.py vit_sam --data photos/ --batch-size 256
    python recipes/pretrain.py --help

Nothing is downloaded by the first two. What the study measured, and what the papers
publish for their settings, which have not been run here: recipes/README.md.
"""

# ruff: noqa: E402
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's notes on the machine

import dataclasses
import functools
import math
import sys
from typing import Literal

import keras
import study
import training
from optimizers import make_optimizer, sigmoid
from progress import report

import kerasvit

AUGMENT = Literal["none", "shift", "photo", "photo_mixed", "cifar", "cifar_mixed"]


@dataclasses.dataclass(frozen=True)
class Config:
    """Trains a model from scratch. A preset's name may stand before the options."""

    model: str = "small_vit"  # one of SMALL, for 28 px, or of kerasvit.list_models()
    dataset: str = "mnist_subset"  # of built_in.py, or a name of tensorflow-datasets
    data: str | None = None  # folder of class folders of images, in place of `dataset`
    image_size: tuple[int] | tuple[int, int] | None = None  # pixels; None: the model's
    augment: AUGMENT = "none"  # AUGMENTATIONS in augmentations.py
    batch_size: int = 100  # images a step
    epochs: int = 40  # passes through the training images
    optimizer: Literal["adamw", "sgd"] = "adamw"  # sgd: with momentum 0.9
    learning_rate: float = 2e-3  # the highest, after the warm-up
    schedule: Literal["cosine", "linear"] = "cosine"  # how it falls from there to 0
    warmup_steps: int = 100  # rising from 0, at most a fifth of the training
    weight_decay: float = 0.1  # a step takes rate × this of a weight, and not of SAM's
    decayed: Literal["kernels", "all"] = "kernels"  # which weights decay
    clip: float = 1.0  # norm beyond which gradients are scaled down; 0: never
    loss: Literal["softmax", "sigmoid"] = "softmax"  # sigmoid: summed over classes
    label_smoothing: float = 0.0  # of softmax, in [0, 1)
    rho: float | None = 0.0  # radius of SAM, ≥ 0; 0: none; None: a first guess by model
    micro_batches: int = 1  # parts of a batch, each with its own perturbation
    dropout: float = 0.0  # rate in the blocks, in [0, 1)
    stochastic_depth: float = 0.0  # of the last block, in [0, 1)
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"  # of Keras
    seed: int = 0  # of weights, order, augmentation and dropout
    out: str | None = None  # folder of the results; None: runs/pretrain-…


SMALL = {  # 28 px, for the study; 112,000, 89,000 and 121,000 weights
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

# arXiv 2106.01548; unconfirmed by its appendix, but for ViT-B/16, which others give:
# where to begin. A network of BiT's widths is their ResNet.
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

imagenet = functools.partial(
    Config,
    dataset="imagenet2012",
    augment="photo",
    batch_size=4096,
    epochs=300,
    learning_rate=3e-3,
    warmup_steps=10_000,
    weight_decay=0.3,
)
# From scratch on ImageNet, arXiv 2010.11929, table 3 and section B.1; the loss is that
# of Google's code (big_vision/configs/vit_i1k.py).
vit = functools.partial(imagenet, model="ViTB16", loss="sigmoid", dropout=0.1)
resnet = functools.partial(
    imagenet,
    model="BiTR50x1",
    epochs=90,
    optimizer="sgd",
    learning_rate=1.6,  # 0.1 for 256 images
    weight_decay=1e-3,  # 1.6e-3 in big_vision's unit, which is not that of the rate
)
PRESETS = {
    "mnist": Config(),
    "vit": vit(),
    # arXiv 2106.01548, appendix: the same, and for a Mixer a straight line.
    "vit_sam": vit(rho=None),
    "mixer_sam": imagenet(
        model="MixerB16",
        schedule="linear",
        loss="sigmoid",
        stochastic_depth=0.1,
        rho=None,
    ),
    "resnet_sam": resnet(warmup_steps=5_000, rho=None),
    # big_vision/configs/mlp_mixer_i1k.py, after arXiv 2105.01601; decay 1e-4 there.
    "mixer": imagenet(
        model="MixerB16",
        augment="photo_mixed",
        learning_rate=1e-3,
        schedule="linear",
        weight_decay=0.1,
        loss="sigmoid",
        stochastic_depth=0.1,
    ),
    # big_vision/configs/bit_i1k.py, after arXiv 1912.11370.
    "bit": resnet(warmup_steps=1_000),
    # configs/cifar100_vit.yaml of xxxnell/how-do-vits-work, arXiv 2202.06709: 5 epochs
    # of warm-up and 300 more.
    "alternet_cifar100": Config(
        model="AlterNet50CIFAR100",
        dataset="cifar100",
        augment="cifar_mixed",
        batch_size=96,
        epochs=305,
        learning_rate=1.25e-4,
        warmup_steps=2_552,  # of 49,000 images
        weight_decay=0.05,
        decayed="all",
        clip=5.0,
        label_smoothing=0.1,
        stochastic_depth=0.1,
    ),
    # What the study trains, each of them with rho and with 0; none was searched for.
    "study": study.Study(),
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


def pretrain(config: Config) -> dict:
    """Trains, or goes on where it was stopped, and leaves the results in a folder.

    Raises:
        training.BadInput: Something is wrong; found before any training time is spent.
    """
    prepared = training.prepare(config, build, f"pretrain-{config.model}-")
    rho = radius(config)
    radii = {"with SAM" if rho else "without SAM": rho}
    return training.run(config, prepared, radii, compiled, one_hot=True)


def compiled(config, model, rho, steps):
    """The trainer; plain training where rho is 0."""
    if config.loss == "sigmoid" and config.label_smoothing:
        raise training.BadInput("`label_smoothing` is for the loss softmax.")
    trainer = kerasvit.SAM(model, rho, micro_batches=config.micro_batches)
    trainer.compile(
        make_optimizer(config, model, steps),
        loss=sigmoid
        if config.loss == "sigmoid"
        else keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=config.label_smoothing
        ),
        metrics=[keras.metrics.CategoricalAccuracy(name="accuracy")],
    )
    return trainer


def radius(config) -> float:
    """Radius of SAM: the number given, or the paper's for the model."""
    return RADII[config.model] if config.rho is None else config.rho


def build(config, label_names):
    """The model at its start."""
    variant = training.chosen(config, SMALL)
    if config.rho is None and config.model not in RADII:
        raise ValueError(
            f"`rho`: the paper has none for {config.model}. Give one with --rho, or "
            f"take one of {', '.join(RADII)}."
        )
    size = config.image_size
    rates = {"dropout": config.dropout, "stochastic_depth": config.stochastic_depth}
    model = variant(
        num_classes=len(label_names),
        image_size=size and (size[0], size[-1]),
        **{k: rate for k, rate in rates.items() if rate or k in variant.defaults},
    )
    model.record["label_names"] = label_names
    if not config.augment.startswith("photo"):  # no crop in training: none in the test
        model.record["preprocessing"]["crop"] = 1.0
    if config.loss == "sigmoid":
        # Every class as likely as in the data: -6.9 of 1,000, -10 of 21,843.
        bias = model.get_layer("head").bias
        bias.assign(keras.ops.full(bias.shape, -math.log(len(label_names))))
    return model


parse = functools.partial(training.parse, presets=PRESETS, script="pretrain.py")


def main():
    """From the command line."""
    config = parse(sys.argv[1:])
    if isinstance(config, study.Study):
        study.report(study.run(config, pretrain, PRESETS))
    else:
        report(pretrain(config))


if __name__ == "__main__":
    training.main(main)
