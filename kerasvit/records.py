"""Access to the record of a model."""

from typing import Any

from .arguments import ArgumentError

# Attribute of the output tensor of an `ImageModel` that refers to the model.
OWNER = "_kerasvit_model"
# `problem_type` of the record, in transformers' words.
SEVERAL_LABELS = "multi_label_classification"


def table_size(kwargs: dict[str, Any]) -> list[int] | None:
    """Returns (height, width) of the images for which a model's variables are.

    It is the image size; of a model for images of any size, that of its position table,
    or None if it has none.

    Args:
        kwargs: Arguments of the builder, as in a record.
    """
    resampling, size = kwargs.get("resampling"), kwargs["image_size"]
    return size if None not in size else (resampling or {}).get("image_size")


def check_one_label(model: Any) -> None:
    """Raises for a model whose largest output is not the class of an image.

    These are models of several labels, of one logit, and regressions, as far as the
    outputs and the record state it.

    Args:
        model: Functional `keras.Model` with one output (batch, classes).

    Raises:
        ArgumentError: The model is one of these.
    """
    classes = model.outputs[0].shape[-1]
    stated = (found_record(model) or {}).get("problem_type")
    if classes == 1 or stated not in (None, "single_label_classification"):
        raise ArgumentError(
            "`model` must be a classifier of one label per image, with two classes or "
            f"more. Received: {classes} outputs, and {stated!r} as `problem_type` of "
            "the record.",
            "model",
        )


def found_record(model: Any) -> dict[str, Any] | None:
    """Returns the record of a model, or None.

    `keras.Model(m.input, m.output)` is a plain functional model of the same graph as
    the `ImageModel` m, so the function returns m's record for it. Models between other
    tensors of m compute another function and have no record.
    """
    record = getattr(model, "record", None)
    if record is not None:
        return record if isinstance(record, dict) else None
    outputs: Any = getattr(model, "outputs", None)
    inputs: Any = getattr(model, "inputs", None)
    if not isinstance(outputs, list) or len(outputs) != 1:
        return None
    owner = getattr(outputs[0], OWNER, None)
    if owner is None or len(inputs) != 1 or inputs[0] is not owner.inputs[0]:
        return None
    record = owner.record
    return record if isinstance(record, dict) else None
