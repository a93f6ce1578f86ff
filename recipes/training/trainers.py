"""Trainers of the SAM family, of distillation from a teacher, of masked patches.

    teacher = trainers.find_teacher(config, model)      # None without --teacher
    trainer = trainers.trainer_of(devices, stage, model)    # of one of its stages

`any_model.py` says what a teacher can be.
"""

import dataclasses

import keras
from scoring import any_model
from training import training_data
from training.progress import console
from training.settings import METHODS

import kerasvit

CLASSES = {
    "sam": kerasvit.SAM,
    "asam": kerasvit.ASAM,
    "gsam": kerasvit.GSAM,
    "looksam": kerasvit.LookSAM,
    "msam": kerasvit.MSAM,
    "samon": kerasvit.SAMON,
    "friendlysam": kerasvit.FriendlySAM,
}


def of_method(model, config, rho: float, **options) -> kerasvit.SAM:
    """Returns the trainer of the method, not compiled.

    Args:
        model: `keras.Model` to train, or a trainer that allows another around it.
        config: Dataclass of the settings.
        rho: Radius; 0 is plain training, whatever the method.
        options: `perturbation` and `micro_batches` of `kerasvit.SAM`.
    """
    if not rho:
        return kerasvit.SAM(model, 0.0, **options)
    arguments = METHODS[config.method].items()
    given = {argument: getattr(config, setting) for setting, argument in arguments}
    if config.method == "gsam":
        options["lr_max"] = config.learning_rate
        options["lr_min"] = config.learning_rate * (
            config.decay_factor ** len(config.decay_at)
            if config.schedule == "steps"
            else config.final_rate
        )
        if config.rho_min is None:
            given["rho_min"] = rho / 6  # 0.1 for 0.6 in the authors' code
    given = {name: value for name, value in given.items() if value is not None}
    return CLASSES[config.method](model, rho, **given, **options)


@dataclasses.dataclass(frozen=True)
class Teacher:
    """A teacher for the inputs of a student.

    Attributes:
        model: `keras.Model`, inputs of the student → logits or probabilities.
        probabilities: Whether it returns probabilities.
    """

    model: keras.Model
    probabilities: bool


def find_teacher(config, student) -> Teacher | None:
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
    found = any_model.load(config.teacher, "teacher", config.teacher_input)
    teacher = found.model
    any_model.check_one_label(teacher, config.teacher, "teacher")
    _check_labels(teacher, student)
    if teacher.input_shape[-1] != student.input_shape[-1]:
        raise ValueError(
            f"`teacher` takes images with {teacher.input_shape[-1]} channels, and the "
            f"student {student.input_shape[-1]}. Give a teacher for the same images."
        )
    pixels = student.preprocessing
    image = keras.Input(student.input_shape[1:], name="image")
    x = image
    if not student.record["kwargs"].get("normalization"):  # normalised outside of it
        scale = [255 * std for std in pixels.std]
        offset = [255 * mean for mean in pixels.mean]
        x = kerasvit.layers.Rescaling(scale, offset, dtype="float32")(x)
    x, resized = _resized(x, teacher)
    model = keras.Model(image, teacher(found.prepare(x)), name="teacher")
    # It checks the classes, and finds out what the teacher returns.
    trainer = kerasvit.DistillationTrainer(student, model)
    returns = "probabilities" if trainer.probabilities else "logits"
    console.print(
        f"Teacher: {config.teacher}, {teacher.count_params():,} weights, {resized}, "
        f"values {found.values}; returns {returns}.",
        highlight=False,
        soft_wrap=True,
    )
    return Teacher(model, trainer.probabilities)


def trainer_of(devices, stage, model) -> keras.Model:
    """Returns the trainer of a stage, not compiled: with the teacher if there is one.

    Args:
        devices: `Devices`, in whose scope this is called.
        stage: `stages.Stage`, with its settings and its teacher.
        model: `ImageModel` to train, on the devices.
    """
    config, teacher, rho = stage.config, stage.teacher, stage.config.rho
    objective = getattr(config, "objective", "labels")
    options = {
        "perturbation": devices.perturbation(config.perturbation, rho),
        "micro_batches": getattr(config, "micro_batches", 1),
    }
    if teacher is None and objective == "labels":
        return of_method(model, config, rho, **options)
    plain = config.method == "sam" or not rho
    own = {"rho": rho, "every": config.sam_every or 1, **options} if plain else {}
    if teacher is None:
        trainer = _masked(config, model, **own)
    else:
        trainer = kerasvit.DistillationTrainer(
            model,
            devices.place(teacher.model),
            config.distill,
            alpha=config.alpha,
            tau=config.tau,
            probabilities=teacher.probabilities,
            **own,
        )
    return trainer if plain else of_method(trainer, config, rho, **options)


def check_objective(config, model) -> None:
    """Raises a `ValueError` for a model or images that an objective cannot have."""
    if config.objective == "labels":
        return
    if training_data.has_soft_labels(config):
        raise ValueError(
            f"`augment`: {config.augment} mixes images with their labels, which the "
            f"objective {config.objective} does not have. Give another one, such as "
            "photo."
        )
    _masked(config, model)


def _masked(config, model, **options):
    names = ("width", "depth", "num_heads")
    sizes = config.decoder and dict(zip(names, config.decoder, strict=True))
    return kerasvit.MaskedPatches(
        model, config.objective, ratio=config.mask_ratio, decoder=sizes, **options
    )


def _resized(x, teacher):
    """Returns (images in the size of the teacher's inputs, a text about it)."""
    size = tuple(teacher.input_shape[1:3])
    same = None in size or size == tuple(x.shape[1:3])
    if same:
        return x, "the student's image size"
    x = keras.ops.image.resize(
        x, size, "bilinear", antialias=True, data_format="channels_last"
    )
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
