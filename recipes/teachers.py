"""Loads the teacher of a distillation, and adapts it to the inputs of the student.

    teacher = teachers.find(config, model)      # None without --teacher
    trainer = teachers.trainer_of(teacher, here, model, config, rho, **options)

A teacher is a model of kerasvit (a folder or file of weights, hf://user/repository, or
VARIANT/NAME of public weights), a file of Keras, model.keras, or a class of
keras.applications with its weights of ImageNet.
"""

import dataclasses
import zipfile
from pathlib import Path

import keras
import methods
from progress import console

import kerasvit

# Values that a teacher expects, of pixels from 0 to 255: (scale, offset).
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
VALUES = {
    "pixels": (1.0, 0.0),
    "unit": (1 / 255, 0.0),
    "tf": (1 / 127.5, -1.0),
    "torch": (
        tuple(1 / (255 * s) for s in STD),
        tuple(-m / s for m, s in zip(MEAN, STD, strict=True)),
    ),
}


@dataclasses.dataclass(frozen=True)
class Teacher:
    """A teacher for the inputs of a student.

    Attributes:
        model: `keras.Model`, inputs of the student → logits or probabilities.
        probabilities: Whether it returns probabilities.
    """

    model: keras.Model
    probabilities: bool


def find(config, student) -> Teacher | None:
    """Returns the teacher of the settings, or None.

    Prints one line: what it is, and how its inputs are made from the student's.

    Args:
        config: Dataclass of the settings.
        student: `ImageModel` with its record.

    Raises:
        ValueError: There is no such teacher, or it has other classes; it is not known
            which values it expects.
    """
    if config.teacher is None:
        return None
    teacher, prepare, values = _load(config.teacher, config.teacher_input)
    _check_labels(teacher, student)
    pixels = kerasvit.Preprocessing.from_config(student.record["preprocessing"])
    image = keras.Input(student.input_shape[1:], name="image")
    x = image
    if not student.record["kwargs"].get("normalization"):  # normalised outside of it
        scale = [255 * std for std in pixels.std]
        offset = [255 * mean for mean in pixels.mean]
        x = keras.layers.Rescaling(scale, offset, dtype="float32")(x)
    x, resized = _resized(x, teacher)
    model = keras.Model(image, teacher(prepare(x)), name="teacher")
    # It checks the classes, and finds out what the teacher returns.
    trainer = kerasvit.DistillationTrainer(student, model)
    returns = "probabilities" if trainer.probabilities else "logits"
    console.print(
        f"Teacher: {config.teacher}, {teacher.count_params():,} weights, {resized}, "
        f"values {values}; returns {returns}.",
        highlight=False,
        soft_wrap=True,
    )
    return Teacher(model, trainer.probabilities)


def trainer_of(teacher: Teacher | None, here, model, config, rho: float, **options):
    """Returns the trainer, not compiled: with the teacher if there is one.

    Args:
        teacher: Result of `find`.
        here: `devices.Devices`, in whose scope this is called.
        model: `ImageModel` to train, on the devices.
        config: Dataclass of the settings.
        rho: Radius of SAM.
        options: As for `methods.trainer`.
    """
    if teacher is None:
        return methods.trainer(model, config, rho, **options)
    plain = config.method == "sam" or not rho
    trainer = kerasvit.DistillationTrainer(
        model,
        here.place(teacher.model),
        config.distill,
        alpha=config.alpha,
        tau=config.tau,
        probabilities=teacher.probabilities,
        **({"rho": rho, "every": config.sam_every or 1, **options} if plain else {}),
    )
    return trainer if plain else methods.trainer(trainer, config, rho, **options)


def _load(name: str, given: str | None):
    """Returns (teacher, function of pixels in [0, 255] to its inputs, their name)."""
    is_file = name.endswith(".keras")
    if given and not is_file:
        raise ValueError(
            "`teacher_input` is for a .keras file. Leave it out: kerasvit and "
            f"keras.applications have the preprocessing of {name}."
        )
    if callable(getattr(keras.applications, name, None)):
        teacher = _application(name)
        return teacher, _preprocessing_of(name), f"as {name}.preprocess_input"
    teacher = _load_keras(Path(name).expanduser()) if is_file else _load_kerasvit(name)
    if hasattr(teacher, "record"):
        found = kerasvit.Preprocessing.from_config(teacher.record["preprocessing"])
        if teacher.record["kwargs"].get("normalization"):
            return teacher, _values(*VALUES["pixels"]), "from 0 to 255"
        scale = [1 / (255 * std) for std in found.std]
        offset = [-m / s for m, s in zip(found.mean, found.std, strict=True)]
        return teacher, _values(scale, offset), "as its record says"
    if given is None:
        raise ValueError(
            f"`teacher_input`: {name} does not say which values it expects. Give "
            "--teacher-input pixels (0 to 255), unit (0 to 1), tf (-1 to 1) or torch "
            "(mean and deviation of ImageNet)."
        )
    return teacher, _values(*VALUES[given]), f"as --teacher-input {given}"


def _load_keras(path: Path) -> keras.Model:
    if not zipfile.is_zipfile(path):
        raise ValueError(f"`teacher`: {path} does not exist, or is not a .keras file.")
    try:
        return keras.saving.load_model(path, compile=False)
    except TypeError as error:  # a class that this program does not define
        raise ValueError(
            f"`teacher`: Keras cannot load {path}, maybe because of layers of classes "
            "that are defined elsewhere. Save a model of Keras's own layers. Keras: "
            f"{error!s:.300}"
        ) from error


def _load_kerasvit(name: str) -> keras.Model:
    variant, _, tag = name.partition("/")
    if tag and variant in kerasvit.list_models() and not Path(name).exists():
        return getattr(kerasvit, variant)(tag)
    if "://" not in name and not Path(name).expanduser().exists():
        raise ValueError(
            f"`teacher`: there is no file or folder {name} (working directory: "
            f"{Path.cwd()}), and no class of that name in keras.applications. Public "
            "weights are named as ViTB16/sam."
        )
    return kerasvit.from_pretrained(name)


def _application(name: str) -> keras.Model:
    try:
        return getattr(keras.applications, name)(weights="imagenet")
    except OSError as error:  # of the download
        raise ValueError(
            f"`teacher`: the weights of {name} cannot be downloaded: {error}. Give a "
            ".keras file of the model."
        ) from error


def _preprocessing_of(name: str):
    modules = vars(keras.applications).values()
    owner = next(
        m for m in modules if hasattr(m, name) and hasattr(m, "decode_predictions")
    )
    return owner.preprocess_input


def _values(scale, offset):
    return keras.layers.Rescaling(scale, offset, dtype="float32")


def _resized(x, teacher):
    """Returns (images in the size of the teacher's inputs, a text about it)."""
    size = tuple(teacher.input_shape[1:3])
    same = None in size or size == tuple(x.shape[1:3])
    if same:
        return x, "the student's image size"
    x = keras.ops.image.resize(x, size, interpolation="bilinear", antialias=True)
    return x, f"images resized to {size[0]} × {size[1]} (antialiased bilinear)"


def _check_labels(teacher, student):
    names = [
        getattr(each, "record", {}).get("label_names") for each in (teacher, student)
    ]
    if not all(names) or list(names[0]) == list(names[1]):
        return
    differing = [pair for pair in zip(*names, strict=False) if pair[0] != pair[1]]
    example = f": {differing[0][0]!r}, not {differing[0][1]!r}" if differing else ""
    raise ValueError(
        "`teacher` has other classes than the student, or in another order. Received "
        f"{len(names[0])} and {len(names[1])} classes{example}."
    )
