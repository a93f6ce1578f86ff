"""Settings of `evaluate.py`.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import dataclasses
import os
import re
from pathlib import Path
from typing import Annotated, Literal

import tyro
from command import names
from command.weights import Weights
from scoring import catalogue
from scoring.catalogue import ALIASES, CORRUPTED, SETS, find
from scoring.vtab import catalogue as vtab


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corruption:
    """Corrupted images."""

    corrupt: tuple[str, ...] = ()
    """Corruptions of the images: all, published (the 15 of the papers), or names such
    as fog. Corrupted sets, such as c, have the published ones by default."""
    reference: str | None = None
    """Of the models, the one whose corruption errors are 100; None: AlexNet for
    ImageNet, else the first model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Feature:
    """How features are scored, and how the tasks of VTAB are learned."""

    frozen: tuple[Literal["few_shot", "knn", "probe"], ...] = ()
    """Few-shot least squares, k-NN or a linear probe, without training."""
    layer: str | None = None
    """Layer of these features, such as encoder_block_7, or -2 for the block before the
    last; None: the input of the head."""
    shots: tuple[int, ...] = (1, 5, 10, 25)
    """Training images of each class, for few_shot."""
    seeds: int = 3
    """Choices of these images, over which few_shot takes the mean."""
    train_images: int = 65_000
    """At most so many training images of each set, for the features."""
    vtab: Literal["probe", "hyperrule"] = "probe"
    """How models learn the tasks of VTAB: a linear classifier on frozen features, or
    all weights with BiT-HyperRule."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trust:
    """Probabilities that can be trusted."""

    trust: bool = False
    """Calibrate the models on validation images of the sets, which are divided as in a
    training, score them on the test images, and store it in the models' folders."""
    coverage: float = 0.9
    """Share of the images whose set of classes has the right one."""
    precision: float | None = None
    """Of several labels: thresholds with this precision, instead of the best F1."""
    recall: float | None = None
    """Of several labels: thresholds with this recall, instead of the best F1."""
    unlike: tuple[str, ...] = ()
    """Sets with images of none of the classes, which a model should tell apart."""

    def check_trust(self, on: tuple[str, ...]) -> None:
        """Raises a `ValueError` for settings that contradict each other."""
        if not 0 < self.coverage < 1:
            raise ValueError(
                f"`coverage` must be between 0 and 1, such as 0.9. Received: "
                f"{self.coverage:g}."
            )
        for name in ("unlike", "precision", "recall"):
            if getattr(self, name) not in (None, ()) and not self.trust:
                raise ValueError(f"`{name}` is for --trust: give it, too.")
        for name in ("precision", "recall"):
            if (given := getattr(self, name)) is not None and not 0 < given < 1:
                raise ValueError(
                    f"`{name}` must be between 0 and 1, such as 0.9. Received: "
                    f"{given:g}."
                )
        if None not in (self.precision, self.recall):
            raise ValueError("Give `precision` or `recall`: one follows the other.")
        if self.trust and any(vtab.has(name) or name in CORRUPTED for name in on):
            raise ValueError(
                "`trust`: sets of VTAB and corrupted sets have no validation images. "
                "Give others."
            )
        if len(set(self.unlike)) < len(self.unlike) or set(self.unlike) & set(on):
            raise ValueError("`unlike`: give each set once, and none of --on.")
        for name in self.unlike:
            if not Path(os.path.expanduser(name)).exists():
                check_set(name, "unlike")


@dataclasses.dataclass(frozen=True)
class Config(Corruption, Feature, Trust, Weights):
    """Scores models on data sets, as the papers do."""

    models: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Folders of trainings or of save_pretrained, files of weights, model.keras,
    hf://user/name, or ViTB16/sam for public weights. Later ones are compared with the
    first."""
    on: tuple[str, ...] = ()
    """Data sets: imagenet real v2 r a sketch, others of scoring/SETS.md or of
    tensorflow-datasets, a folder of class folders, a table (.csv, .jsonl), or digits;
    and vtab, a group as vtab/natural, or a task as vtab/dtd, of scoring/VTAB.md."""
    tta: Literal["flip", "crops"] | None = None
    """Take the mean of the probabilities over views of an image: with its mirror image,
    or of four corners and the centre, each with its mirror image."""
    ensemble: bool = False
    """Also score the mean of the probabilities of all models."""
    images: int | None = None
    """At most so many images of each set, always the same; None: all."""
    out: str = "scores"
    """Folder of the results. What is in it is not computed again."""
    card: bool = False
    """Write the scores into README.md of each model's folder; of other models into
    that of its scores."""
    speed_from: str = "runs/benchmarks"
    """Folder of measured speeds: python -m recipes.benchmarks forward."""
    # Pixels, height first; None: the model's, and 128 or 480 for --vtab hyperrule.
    image_size: tuple[int, ...] | None = None
    # Values that a .keras model without a record expects.
    model_input: Literal["pixels", "unit", "tf", "torch"] | None = None
    batch_size: int = 64
    """Images per step, of all devices together."""
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """Keras policy."""
    devices: str = "all"
    """all, a number, or on JAX data=4,model=2."""

    def check(self) -> None:
        """Raises a `ValueError` for settings that are missing."""
        if not self.models:
            raise ValueError("`models`: give one or more models to score.")
        for name in self.models:
            names.check_model_or_path(name, "models")
        if not self.on:
            raise ValueError(
                "`on`: give one or more sets to score on, such as --on imagenet real "
                "v2, --on photos/ or --on digits."
            )
        places = [str(place(name)) for name in self.on]
        if len(set(places)) < len(places):
            raise ValueError(f"`on`: each set once. Received: {', '.join(self.on)}.")
        for name in self.on:
            if not Path(os.path.expanduser(name)).exists() and not vtab.has(name):
                check_set(name)
        tasks = vtab.tasks(self.on)
        if self.vtab == "hyperrule" and not tasks:
            raise ValueError("`vtab`: give --on vtab, or some of its tasks.")
        if self.layer is not None and not self.frozen:
            if not tasks or self.vtab != "probe":
                raise ValueError("`layer` is for features: give --frozen knn.")
        if self.frozen and all(map(vtab.has, self.on)):
            raise ValueError("`frozen`: give a set that is not of VTAB, too.")
        catalogue.chosen_kinds(self.corrupt)
        if self.corrupt and all(map(vtab.has, self.on)):
            raise ValueError("`corrupt`: give a set that is not of VTAB, too.")
        if self.corrupt:
            catalogue.check_installed()
        if self.reference not in (None, *self.models):
            raise ValueError(
                f"`reference`: give one of the models, {', '.join(self.models)}. "
                f"Received: {self.reference}."
            )
        if (self.tta or self.ensemble) and (self.frozen or tasks or self.corrupt):
            raise ValueError(
                "`tta`, `ensemble`: not with --frozen, --corrupt or VTAB, for which "
                "each model sees an image once. Leave them out."
            )
        if self.tta and self.card:
            raise ValueError(
                "`card`: a card states what the model itself reaches, not a mean over "
                "views of an image. Leave --tta or --card out."
            )
        self.check_trust(self.on)
        vtab.check(tasks)


def place(name: str) -> Path | str:
    """Returns the folder or file of a set, or its name in tensorflow-datasets."""
    path = Path(os.path.expanduser(name))
    return path.resolve() if path.exists() else ALIASES.get(name, name)


def check_set(name: str, setting: str = "on") -> None:
    """Raises a `ValueError` for a set that does not exist or cannot be prepared."""
    if re.search(r"^[./~]|\.(csv|jsonl|ndjson)$", name):
        raise ValueError(
            f"`{setting}`: there is no folder or table {name} (working directory: "
            f"{Path.cwd()})."
        )
    names.check_dataset(name, setting, [*ALIASES, *SETS, *CORRUPTED, vtab.NAME])
    dataset = ALIASES.get(name, name)
    published = CORRUPTED.get(dataset) or find(dataset)
    if not published or not published.manual:
        names.check_reachable(dataset, setting, f"--{setting} FOLDER")
        return
    root, file = Path(os.path.expanduser(names.data_location())), published.manual
    is_prepared = any(root.glob(f"{dataset}/**/dataset_info.json"))
    if not is_prepared and not (root / "downloads/manual" / file).exists():
        raise ValueError(
            f"`{setting}`: {dataset} is not in {root}, and must be downloaded by "
            f"hand: {names.located(published.download)}."
        )
