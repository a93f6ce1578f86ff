"""Settings of `finetune.py`: options and presets.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import dataclasses
from typing import ClassVar, Literal

from command.options import OF_RULE
from presets import FINETUNE
from training.settings import Common


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
class Config(Common, Head, LoRA):
    """Fine-tunes a model with SAM. A preset's name may stand before the options."""

    # "small", or one of kerasvit.list_models(); None: "small" without weights, else the
    # model that the folder of the weights states
    model: str | None = None
    weights: str | None = None  # public name, file or folder; None: fresh weights
    dataset: str = "digits"  # of names.BUILT_IN, or of tensorflow-datasets
    # defaults.py chooses settings that are None by the task; a table shows the reasons
    decayed: Literal["kernels", "all"] = "all"  # which weights decay
    # BiT's: of the number and the size of the images (hyperrule.py)
    rule: Literal["hyperrule"] | None = None
    compare: bool = False  # also train without SAM, in a folder of its own

    small: ClassVar = ("small",)  # models that finetune.py defines
    small_patch: ClassVar = 8  # pixels; side of the patches of "small"
    then_rate: ClassVar = 0.1  # the rate is already that of fine-tuning

    def check(self) -> None:
        """Raises a `ValueError` for settings that contradict each other."""
        super().check()
        if self.lora is not None and not self.weights:
            raise ValueError("`lora`: adapters need pretrained --weights below them.")
        if self.compare and (self.rho == 0 or (self.rule and self.rho is None)):
            raise ValueError(
                "`compare`: rho is 0, so that there is no training with SAM to compare "
                "with. Give a radius, --rho."
            )
        if self.rule:
            self._check_rule()
        elif self.model in (None, "small") and not self.weights:
            self._check_size()

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
    "digits": Config(compare=True),
    # Of the papers: see PRESETS.md.
    **{name: Config(**preset.settings) for name, preset in FINETUNE.items()},
}
