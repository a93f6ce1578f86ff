"""Settings of `pretrain.py`: options, presets, and the papers' radii.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import ast
import dataclasses
from typing import ClassVar, Literal

from presets import PRETRAIN
from training.settings import AUGMENT, OPTIMIZERS, Common


@dataclasses.dataclass(frozen=True)
class Config(Common):
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
    loss: Literal["softmax", "sigmoid"] = "softmax"  # sigmoid: summed over classes
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
    )  # defined in pretrain.py
    # Between DeiT, 1e-3 and then 5e-6 (README_deit.md), and Swin, 5e-4 and 2e-5
    # (swin_base_patch4_window12_384_finetune.yaml).
    then_rate: ClassVar = 0.01

    def check(self) -> None:
        """Raises a `ValueError` for settings that contradict each other."""
        super().check()
        radius(self)
        builder_arguments(self)
        if self.loss == "sigmoid" and self.label_smoothing:
            raise ValueError("`label_smoothing` is for the loss softmax.")
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
    **{name: Config(**preset.settings) for name, preset in PRETRAIN.items()},
    # Trained by benchmarks/study/ with this rho and with 0. No setting was tuned.
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
