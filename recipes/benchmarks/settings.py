"""Options of the benchmarks.

This module imports neither Keras nor kerasvit, so that a command is parsed first.
"""

import dataclasses
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import tyro
from command import command_line, limits, names, startup

# Defaults that differ from ViTB16, 15 rounds and 1 round of warm-up.
MODELS = {
    "train": ("ViTS16",),
    "sam": ("ViTS16", "BiTR50x1"),
    "data": ("ViTS16",),
    "hessian": ("ViTS16",),
    "serve": ("ViTS16",),
}
ROUNDS = {"hessian": 60, "serve": 7}
WARMUP = {"forward": 2, "train": 2}
OF_A_TRAINING = ("quantization", "int8", "simulate")
ON_EVERY_BACKEND = ("forward", "train", "sam", "load", "import", "hessian")
WITH_MEMORY = ("forward", "train", "sam", "load", "hessian")
SOURCES = {"flax_source": "vit_jax", "kerasformers_source": "kerasformers"}  # packages
RIVAL = Literal[
    "keras-hub",
    "ResNet50V2",
    "KerasFormers",
    "Flax",
    "timm",
    "timm-compiled",
    "kerasvit-compiled",
]


@dataclasses.dataclass(frozen=True)
class Config:
    """Times kerasvit and other libraries on this machine."""

    what: Annotated[
        Literal[
            "forward",
            "train",
            "sam",
            "load",
            "import",
            "data",
            "quantization",
            "int8",
            "simulate",
            "hessian",
            "serve",
            "results",
        ],
        tyro.conf.Positional,
    ]
    """forward: inference; train: an AdamW step; sam: SAM methods; load: a model file;
    import: kerasvit; data: the input pipeline; quantization: int8 and int4 of a trained
    model; int8: its exports in int8; simulate: its accuracy by method and bits;
    hessian: an eigenvalue of 32 images; serve: ways to answer with a model; results:
    prints saved results as Markdown."""
    model: tuple[str, ...] = ()
    """Names of kerasvit.list_models(); default ViTB16 for forward and load, ViTS16 for
    train, data, hessian and serve, and both ViTS16 and BiTR50x1 for sam."""
    rivals: tuple[RIVAL, ...] | None = None
    """Other libraries, for forward and train; default all that are installed or given,
    but timm-compiled and kerasvit-compiled (PyTorch), whose compilation takes a
    minute."""
    jit_compile: bool = False
    """For sam on PyTorch: compile the passes of all methods."""
    flax_source: str | None = None
    """For forward and train on JAX: a checkout of google-research/vision_transformer,
    to compare with the authors' code; needs flax, ml_collections and optax."""
    kerasformers_source: str | None = None
    """For forward and train: a checkout of IMvision12/KerasFormers."""
    image_size: int | None = None
    """Pixels; default of the model."""
    batch_size: int = 8
    """Images per step."""
    rounds: int | None = None
    """Timed steps per implementation; default 15, for serve 7. For hessian, the largest
    number of products; default 60."""
    warmup: int | None = None
    """Untimed steps before, which compile; default 1, for forward and train 2."""
    dtype: Literal["float32", "mixed_bfloat16"] = "float32"
    """Precision of the Keras models; timm runs in float32 or under autocast."""
    memory_of: str | None = None
    """For forward, train, sam, load and hessian: only print the memory of a row, in
    bytes."""
    memory: bool = True
    """For forward and train on a GPU, and sam: also measure the memory, which takes
    longer."""
    folder: str | None = None
    """For load and hessian: a folder that save_pretrained wrote; default a new model.
    For data: a folder of class folders; default 400 JPEG files of scikit-learn's and
    scikit-image's photographs. For quantization, int8 and simulate: the folder of a
    training. For
    results: the folder of their files; default runs/benchmarks."""

    @property
    def name(self) -> str:
        """Name of the only model."""
        (name,) = self.model
        return name


def read(arguments: Sequence[str]) -> Config:
    """Returns the configuration of a command, checked before the slow imports.

    Raises:
        command_line.BadInput: An option, a number, the backend or a path is wrong.
    """
    config = command_line.parse_options(
        arguments,
        Config,
        prog="python -m recipes.benchmarks",
        description=Config.__doc__,
    )
    with command_line.checking_input():
        limits.check(config)
        for name in config.model:
            names.check_model(name)
        if config.memory_of is not None and config.what not in WITH_MEMORY:
            raise ValueError(
                f"`--memory-of` is for {', '.join(WITH_MEMORY)}. Received: "
                f"{config.what} --memory-of {config.memory_of}."
            )
        check_rivals(config)
        if config.folder is not None and not Path(config.folder).is_dir():
            raise ValueError(f"`folder`: there is no folder {config.folder}.")
        check_sources(config)
        if config.what == "serve" and not hasattr(os, "sched_setaffinity"):
            raise ValueError("serve chooses cores as Linux does. Run it on Linux.")
        if config.what in OF_A_TRAINING:
            check_training(config.folder)
        if config.what == "results":
            return config
        if "KERAS_BACKEND" in os.environ or config.what not in ON_EVERY_BACKEND:
            startup.check_backend()
        needs_photographs = config.what == "data" and config.folder is None
        if needs_photographs and not importlib.util.find_spec("skimage"):
            raise ValueError(
                "scikit-image, whose photographs are read, is not installed: "
                "pip install scikit-image, or give a folder with `--folder`."
            )
    return config


def check_rivals(config: Config) -> None:
    """Raises a `ValueError` if a measurement has no rivals or compiled passes."""
    if config.rivals and config.what not in ("forward", "train"):
        raise ValueError(
            f"`--rivals` is for forward and train. Received: {config.what} --rivals "
            f"{' '.join(config.rivals)}."
        )
    if config.jit_compile and config.what != "sam":
        raise ValueError(
            "`--jit-compile` is for sam; forward and train have the rival "
            f"kerasvit-compiled. Received: {config.what} --jit-compile."
        )
    backend = os.environ.get("KERAS_BACKEND")
    compiled = config.jit_compile or "kerasvit-compiled" in (config.rivals or ())
    if compiled and backend not in ("torch", None):
        raise ValueError(
            "Compiled passes are PyTorch's; the other backends compile each step. Set "
            f"KERAS_BACKEND=torch. Received: KERAS_BACKEND={backend}."
        )


def check_sources(config: Config) -> None:
    """Raises a `ValueError` if a folder is not the checkout that it should be."""
    for option, package in SOURCES.items():
        folder = getattr(config, option)
        if folder is not None and not Path(folder, package, "__init__.py").is_file():
            raise ValueError(
                f"`{option}`: give the folder of a checkout, with the package "
                f"{package}. Received: {folder}."
            )


def check_training(folder: str | None) -> None:
    """Raises a `ValueError` if a folder is not that of a finished training."""
    complete = folder and all(
        Path(folder, name).exists() for name in ("config.json", "result.json", "model")
    )
    if not complete:
        raise ValueError(
            "`folder`: give the folder of a training by finetune.py or pretrain.py, "
            f"which has config.json, result.json and model/. Received: {folder}."
        )


def counts(config: Config) -> dict[str, int]:
    """Returns the numbers of timed and warm-up rounds, given or default."""
    return {
        "rounds": _count(config.rounds, ROUNDS.get(config.what, 15), 1, "rounds"),
        "warmup": _count(config.warmup, WARMUP.get(config.what, 1), 0, "warmup"),
    }


def _count(number, default, least, option):
    if number is not None and number < least:
        sys.exit(f"`--{option}` must be at least {least}. Received: {number}.")
    return default if number is None else number
