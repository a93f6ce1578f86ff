"""Classification of images: class names and probabilities."""

import functools
import importlib.resources
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, TypeAlias, overload

import keras
import numpy as np
from PIL import Image

from kerasvit.preprocessing import Preprocessing
from kerasvit.preprocessing.images import input_problem
from kerasvit.types import Shape, Tensor

from .arguments import integer
from .backend.forward import outputs_of
from .calibration import Calibration
from .evaluation.arrays import share
from .records import SEVERAL_LABELS, found_record

_BATCH_SIZE = 32
_NO_TRANSFORM = (
    "The model's record has no preprocessing: set model.preprocessing = "
    "kerasvit.Preprocessing(size, ...), or pass preprocessed arrays of floats."
)


Best: TypeAlias = list[tuple[str, float]]  # (name, probability) of an image
Unusual: TypeAlias = tuple[Best, float]  # with the share of `ood`


@overload
def classify(
    model: keras.Model,
    images: str | PathLike[str] | Image.Image,
    top: int = 5,
    *,
    coverage: float | None = None,
) -> Best: ...
@overload
def classify(
    model: keras.Model,
    images: list[Any] | tuple[Any, ...],
    top: int = 5,
    *,
    coverage: float | None = None,
) -> list[Best]: ...
@overload
def classify(
    model: keras.Model,
    images: Any,
    top: int = 5,
    *,
    coverage: float | None = None,
    ood: bool = False,
) -> Best | list[Best] | Unusual | list[Unusual]: ...
def classify(
    model: keras.Model,
    images: Any,
    top: int = 5,
    *,
    coverage: float | None = None,
    ood: bool = False,
) -> Any:
    """Classifies one or several images.

    Images are preprocessed with the evaluation transform of the model's weights, which
    `model.record` contains. All images are read before the model runs. Several threads
    may call it with one model; it waits while the model is changed in place, and on JAX
    while `fit`, `evaluate` or `predict` of a kerasvit model or trainer runs.

    Probabilities are the softmax of the logits. Of a model with several labels per
    image, whose record has "multi_label_classification" as `problem_type`, and of one
    with a single logit, they are the sigmoid of each logit, as in transformers'
    pipelines/image_classification.py. After `kerasvit.calibrate` they are calibrated,
    and of several labels all that reach their threshold are returned, perhaps none.

    Args:
        model: A kerasvit classifier: (batch, H, W, 3) → (batch, classes) logits.
        images: One image: a path, a PIL image or an array (height, width, channels);
            or several: a list of these, or an array (batch, height, width, channels).
            Arrays of floats must be preprocessed and have the model's size.
        top: Number of classes to return, ≥ 1; at most all classes are returned. With
            `coverage` or thresholds it has no effect.
        coverage: In (0, 1), for a calibrated model of one label: returns for each image
            the set of classes that has the right one at this rate.
        ood: For a calibrated model: returns for each image a tuple, with the share of
            the calibration's images that are less unusual. Near 1 the image is unlike
            those of the training.

    Returns:
        A list of (name, probability) for one image, most probable class first; a list
        of such lists for several images.

    Raises:
        ValueError: The model has no record or no classes, or is a regression; an image
            cannot be read (the message names it), or preprocessed values are out of the
            model's range; `coverage` or `ood` of a model that is not calibrated, or
            has changed since.
    """
    top = integer("top", top, 1)
    record = _record(model)
    activation = _activation(record, model.outputs[0].shape[-1])
    names = _names(record, model.outputs[0].shape[-1])
    calibrated = _calibrated(model, coverage, ood)
    images, single = _listed(images)
    batch = np.stack(_preprocessed(images, record, model.inputs[0].shape[1:3]))
    starts = range(0, len(batch), _BATCH_SIZE)
    parts = [outputs_of(model, batch[i : i + _BATCH_SIZE]) for i in starts]
    # Compute the softmax in float32: models in mixed precision return 16 bits.
    logits = np.concatenate([np.asarray(part, "float32") for part in parts])
    if not np.isfinite(logits).all():
        i = int(np.flatnonzero(~np.isfinite(logits).all(axis=1))[0])
        raise ValueError(
            f"The model's output for image {i} is not finite: its weights are damaged, "
            "or float16 overflows (use float32 or mixed_bfloat16)."
        )
    if calibrated is None:
        shares = keras.ops.convert_to_numpy(activation(logits))
        results: list = [_best(row, names, top) for row in shares]
    else:
        shares = calibrated.probabilities(logits)
        chosen = _chosen(calibrated, logits, shares, coverage)
        results = [
            _best(row, names, top if kept is None else int(kept.sum()), kept)
            for row, kept in zip(shares, chosen, strict=True)
        ]
    if ood and calibrated:
        unusual = map(float, calibrated.unusual(logits))
        results = list(zip(results, unusual, strict=True))
    return results[0] if single else results


def _calibrated(
    model: keras.Model, coverage: float | None, ood: bool
) -> Calibration | None:
    """Returns the calibration of a model, after checking that it has what is asked."""
    found = Calibration.of(model, needed=ood or coverage is not None)
    if coverage is not None:
        share("coverage", coverage)
    if found is None and (ood or coverage is not None):
        raise ValueError(
            f"`{'ood' if ood else 'coverage'}`: the model is not calibrated. Call "
            "kerasvit.calibrate(model, data) with validation images first."
        )
    if found and coverage is not None and found.scores is None:
        raise ValueError(
            "`coverage`: sets are for models of one label per image, and this one has "
            "several. Leave it out: all labels over their threshold are returned."
        )
    return found


def _chosen(
    calibrated: Calibration,
    logits: np.ndarray,
    shares: np.ndarray,
    coverage: float | None,
) -> Sequence[np.ndarray | None]:
    """Returns whether each class is returned, for each image; None: the `top` ones."""
    if coverage is not None:
        return list(calibrated.sets(logits, coverage))
    if calibrated.thresholds is not None:
        return list(shares >= np.array(calibrated.thresholds))
    return [None] * len(shares)


@functools.cache
def imagenet_names() -> tuple[str, ...]:
    """Returns the names of the 1000 ImageNet classes in the order of the logits.

    Source: `imagenet1k.txt`, made from timm's lists (Apache-2.0) of WordNet names. Two
    classes have the name "crane", the bird (134) and the machine (517).
    """
    file = importlib.resources.files(__package__) / "imagenet1k.txt"
    lines = file.read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if not line.startswith("#"))


def _best(
    probabilities: np.ndarray,
    names: list[str],
    top: int,
    chosen: np.ndarray | None = None,
) -> Best:
    """Returns the most probable classes, of those that are chosen or of all."""
    if chosen is not None:
        probabilities = np.where(chosen, probabilities, -1)
    # A stable sort keeps the class order of equal probabilities.
    order = np.argsort(-probabilities, kind="stable")[:top]
    return [(names[i], float(probabilities[i])) for i in order]


def _activation(record: dict[str, Any], classes: int) -> Callable[..., Tensor]:
    """Returns the function from logits (count, classes) to probabilities."""
    stated = record.get("problem_type")
    if stated not in (None, SEVERAL_LABELS, "single_label_classification"):
        raise ValueError(
            f"The model's record states {stated!r} as `problem_type`: its outputs are "
            "not logits of classes. Call model.predict for them; if they are logits, "
            "remove the field: model.record.pop('problem_type')."
        )
    several = stated == SEVERAL_LABELS or classes == 1
    return keras.ops.sigmoid if several else keras.ops.softmax


def _record(model: keras.Model) -> dict[str, Any]:
    """Returns the record of a model, after checking that it is a classifier."""
    record = found_record(model)
    if record is None:
        raise ValueError(
            "`model` has no record of its preprocessing. Received: "
            f"{type(model).__name__}. Pass a kerasvit model, such as the result of "
            "kerasvit.ViTB16(weights=...), from_pretrained or load_model, and for a "
            "trainer its trainer.model. keras.models.clone_model keeps the record if "
            "the clone computes the same function. If the record is right for another "
            "model, copy it: `clone.record = model.record`."
        )
    shape = model.outputs[0].shape
    if len(model.outputs) > 1 or len(shape) != 2:
        raise ValueError(
            "`model` must return logits of shape (batch, classes). Its outputs have "
            f"shapes {[output.shape for output in model.outputs]}."
        )
    if _kwargs(record).get("num_classes") == 0:
        raise ValueError(
            "`model` has no classes: it was built with num_classes=0 and returns "
            f"{shape[-1]} features. Build it with its head to classify; for features "
            "call model.predict."
        )
    return record


def _kwargs(record: dict[str, Any]) -> dict[str, Any]:
    return record.get("kwargs") or {}


def _names(record: dict[str, Any], classes: int) -> list[str]:
    labels = record.get("label_names")
    if labels is None:
        return [f"class {i}" for i in range(classes)]
    if labels == "imagenet1k":
        labels = imagenet_names()
    if not isinstance(labels, (list, tuple)):
        raise ValueError(
            "The record's `label_names` must be a list of names, 'imagenet1k' or None. "
            f"Received: {labels!r}."
        )
    if len(labels) != classes:
        raise ValueError(
            f"The model has {classes} classes and its record {len(labels)} label "
            "names: set model.record['label_names'] to the correct names, or to None."
        )
    return [str(name) for name in labels]


def _listed(images: Any) -> tuple[list, bool]:
    """Returns (list of images, whether a single image was passed)."""
    if isinstance(images, (str, bytes, PathLike, Image.Image)):
        return [images], True
    if _is_array(images):
        images = keras.ops.convert_to_numpy(images)
        if images.dtype.kind in "OSU":  # file names, or images of several sizes
            images = images.ravel().tolist()
        elif images.ndim != 4:
            return [images], True
    elif not isinstance(images, Iterable) or hasattr(images, "read"):
        return [images], True  # `read_image` raises an error for unsupported types
    images = list(images)
    if not images:
        raise ValueError("`images` is empty: there is nothing to classify.")
    return images, False


def _preprocessed(
    images: list, record: dict[str, Any], size: Shape
) -> list[np.ndarray]:
    """Returns the preprocessed images; errors state the number of the image."""
    config = record.get("preprocessing")
    built_in = _kwargs(record).get("normalization") is not None
    transform = Preprocessing.from_config(config) if config is not None else None
    if transform and None not in size:
        transform = transform.with_size(size)
    images = [keras.ops.convert_to_numpy(x) if _is_array(x) else x for x in images]
    floats = [isinstance(x, np.ndarray) and x.dtype.kind not in "iub" for x in images]
    if len(set(floats)) > 1:
        raise ValueError(
            "Arrays of floats must be preprocessed, so they cannot be mixed with other "
            f"images. Received: floats in image {floats.index(True)} but not in image "
            f"{floats.index(False)}. Pass them in separate calls, or all as uint8 or "
            "files."
        )
    results: list[np.ndarray] = []
    for i, image in enumerate(images):
        try:
            if floats[i]:
                results.append(_checked(image, transform, built_in, size))
            elif transform is not None:
                results.append(transform(image, normalize=not built_in))
            else:
                raise ValueError(_NO_TRANSFORM)
        except ValueError as error:
            if len(images) == 1:
                raise
            raise ValueError(f"Image {i} of {len(images)}: {error}") from error
    shapes = {image.shape for image in results}
    if len(shapes) > 1:
        raise ValueError(
            "Preprocessed images of one call must have the same size. Received: shapes "
            f"{sorted(shapes)}. Pass images of each size in a separate call."
        )
    return results


def _is_array(image: Any) -> bool:
    return hasattr(image, "__array__") and not isinstance(image, Image.Image)


def _checked(
    image: np.ndarray,
    transform: Preprocessing | None,
    built_in: bool,
    size: Shape,
) -> np.ndarray:
    """Returns an array of floats after checking its size and range."""
    sides = zip(size, image.shape, strict=False)
    wrong = [expected for expected, side in sides if expected not in (None, side)]
    channels = 3 if transform is None else transform.channels
    if image.ndim != 3 or image.shape[-1] != channels or wrong:
        raise ValueError(
            "An array of floats must be preprocessed and have shape "
            f"({size[0]}, {size[1]}, {channels}). Received: {image.shape}. Pass values "
            "0 to 255 as uint8 to have them resized and normalised."
        )
    if transform is not None:
        problem = input_problem(image, transform.mean, transform.std, built_in=built_in)
        if problem:
            raise ValueError(f"{problem} Or pass uint8, which is preprocessed here.")
    return image.astype("float32")
