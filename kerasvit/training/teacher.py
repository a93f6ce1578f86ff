"""Checks of a teacher, and its logits."""

from typing import Any

import keras
import numpy as np
from keras import ops

from kerasvit.types import Tensor

SMALLEST = float(np.finfo("float32").tiny)  # of probabilities, before their logarithm
SIDE = 224  # pixels of an image of noise, for inputs of any size


def check_teacher(teacher: Any, student: keras.Model) -> None:
    """Checks that a model can teach another one.

    Raises:
        ValueError: The teacher is not a built `keras.Model`, or has weights of the
            student, or one of them has several outputs, or their inputs or numbers of
            classes differ, as far as these are known without a call.
    """
    if not isinstance(teacher, keras.Model) or not teacher.built:
        raise ValueError(
            f"`teacher` must be a keras.Model with weights. Received: {teacher!r}."
        )
    if {id(v) for v in teacher.variables} & {id(v) for v in student.variables}:
        raise ValueError(
            "`teacher` must have its own weights, and has some of the student. Pass a "
            f"copy. Received: {teacher!r}."
        )
    _check_inputs(*(getattr(each, "input_shape", None) for each in (teacher, student)))
    stated = (getattr(teacher, "record", None) or {}).get("problem_type")
    if stated not in (None, "single_label_classification"):
        raise ValueError(
            "`teacher` must be a classifier of one label per image: distillation takes "
            f"a softmax of its logits. Received: {stated!r} as `problem_type` of its "
            "record."
        )
    classes = [_classes(each) for each in (teacher, student)]
    if None not in classes:
        check_classes(*classes)


def _check_inputs(teacher: Any, student: Any) -> None:
    """Checks the shapes of inputs that are known, and are one tensor."""
    if not isinstance(teacher, tuple) or not isinstance(student, tuple):
        return
    sides = zip(teacher, student, strict=False)
    differ = any(None not in pair and pair[0] != pair[1] for pair in sides)
    if len(teacher) != len(student) or differ:
        raise ValueError(
            "`teacher` must take the inputs of the student. Received: inputs "
            f"{teacher}, of the student {student}. Put layers before it that adapt "
            "them, such as keras.layers.Resizing."
        )


def check_classes(teacher: int | None, student: int | None) -> None:
    """Checks that the numbers of classes are equal.

    Raises:
        ValueError: They differ.
    """
    if student == 1:
        raise ValueError(
            "Student and teacher must have two classes or more: the softmax of one "
            "logit is 1. Received: 1 class."
        )
    if teacher != student:
        raise ValueError(
            "`teacher` must have the classes of the student. Received: a teacher with "
            f"{teacher} outputs and a student with {student}. Fine-tune the teacher "
            "on the student's classes first."
        )


def _classes(model: keras.Model) -> int | None:
    shape = getattr(model, "output_shape", None)  # a subclass has none
    if shape is not None and not isinstance(shape, tuple):
        raise ValueError(
            "Student and teacher must have one output, logits of shape (batch, "
            "classes); a model with a distillation token is passed as it is, without "
            f"`distillation_heads`. Received: {model!r} with outputs {shape}."
        )
    return shape[-1] if shape else None


def gives_probabilities(teacher: keras.Model, student: keras.Model) -> bool:
    """Returns whether a teacher returns probabilities: ≥ 0, and with the sum 1.

    It is called with two images of noise. Its last layer would not tell: a softmax may
    also be in the `call` of a subclass, or an operation of `keras.ops`.

    Raises:
        ValueError: The shapes of the inputs are not known, or are several.
    """
    shapes = (getattr(model, "input_shape", None) for model in (student, teacher))
    shape = next(filter(None, shapes), None)
    if not isinstance(shape, tuple):
        raise ValueError(
            "`probabilities` must be True or False: it is not known whether the "
            "teacher returns probabilities or logits, because the shape of one input "
            f"is needed to try it. Received: probabilities=None, shape {shape}."
        )
    noise = np.random.default_rng(0).normal(
        size=(2, *(side or SIDE for side in shape[1:]))
    )
    outputs = teacher(ops.convert_to_tensor(noise, "float32"), training=False)
    values = ops.convert_to_numpy(ops.cast(outputs, "float32"))
    # bfloat16 has 8 bits.
    return bool((values >= 0).all() and (abs(values.sum(-1) - 1) < 0.02).all())


def logits_of(outputs: Tensor, probabilities: bool) -> Tensor:
    """Returns logits, float32 (batch, classes), of a teacher's outputs."""
    outputs = ops.cast(outputs, "float32")
    return ops.log(ops.maximum(outputs, SMALLEST)) if probabilities else outputs
