"""Distillation: training with the labels and with the outputs of a teacher."""

import types
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import number, number_of_each, one_of
from kerasvit.backend.keras_private import added_losses
from kerasvit.backend.train_step import Setting
from kerasvit.types import Tensor

from .sam import SAM

SMALLEST = float(np.finfo("float32").tiny)  # of probabilities, before their logarithm
SIDE = 224  # pixels of an image of noise, for inputs of any size


class Targets(NamedTuple):
    """What a student learns from a batch: (labels, logits of the teacher)."""

    labels: Any
    teacher: Tensor


class Divergence(keras.losses.Loss):
    """τ² · KL(ψ(Z_t / τ) ‖ ψ(Z_s / τ)) of logits: a sum over classes, per sample.

    Args:
        tau: Temperature τ, > 0.
    """

    def __init__(self, tau: float) -> None:
        super().__init__(name="divergence")
        self.tau = tau

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        teacher = ops.log_softmax(y_true / self.tau)
        student = ops.log_softmax(y_pred / self.tau)
        return self.tau**2 * ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)


@keras.saving.register_keras_serializable("kerasvit")
class DistillationTrainer(SAM):
    """Trains a model, the student, with labels and with a teacher's outputs.

    With Z_s and Z_t the logits of student and teacher, ψ the softmax and L the loss of
    `compile`, which is the cross-entropy of the labels y in the paper:

        hard:  (1 − alpha) · L(Z_s, y) + alpha · CE(ψ(Z_s), argmax Z_t)
        soft:  (1 − alpha) · L(Z_s, y) + alpha · tau² · KL(ψ(Z_t / tau) ‖ ψ(Z_s / tau))

    A student with a distillation token has two heads: the first learns the labels, the
    second, in place of Z_s in the last term, the teacher. These are the models whose
    last layer is the `keras.layers.Average` of two outputs, as that of
    `DistilledVisionTransformer` and of distilled PiTs. All results are those of the
    average, and the metrics too. With `training=True` a call returns both heads.

        trainer = kerasvit.DistillationTrainer(model, teacher, "hard", rho=0.05)
        trainer.compile(keras.optimizers.AdamW(1e-3), loss)     # fresh weights
        trainer.fit(x, y, epochs=10)    # then `model` has the trained weights

    It trains in the same way with SAM, in other trainers too, such as
    `kerasvit.GSAM(kerasvit.DistillationTrainer(model, teacher), ...)`. The teacher
    gets the batch of the student, as it is after augmentation, with `training=False`,
    once per step (once per micro-batch) whatever the number of SAM's passes, outside of
    their gradients. It is not trained and not changed, and no file of the trainer
    contains it: a trainer that was loaded evaluates without a teacher, and gets it with
    `set_teacher` to continue. Sample weights weight both terms; losses that layers
    add, such as regularisation, keep their weight 1. The loss in evaluation is L.

    `keras.distillation.Distiller` (Keras 3.15) does not suffice: it calls the teacher
    in `compute_loss`, so in each of SAM's passes and within their gradients; it knows
    no distillation token; it ignores sample weights and added losses; it refuses a
    teacher with inputs or outputs of another dtype; and it saves the teacher with the
    student.

    Shape: the student's inputs and outputs.

    Args:
        model: The student, a built `keras.Model` as for `SAM`, which returns logits.
        teacher: `keras.Model` that takes the inputs of the student and returns (batch,
            classes), the classes in the student's order.
        distill: "hard" or "soft". Hard labels of the teacher are not smoothed, as in
            the paper, whatever the label smoothing of L.
        alpha: Weight of the teacher, in [0, 1]. The paper has 0.5 for hard, 0.1 for
            soft.
        tau: Temperature of the soft distillation, > 0. The paper has 3; the default of
            the authors' code is 1.
        probabilities: Whether the teacher returns probabilities, as models of
            keras.applications do, and not logits. None: what its outputs for two images
            of noise are.
        rho: Radius of SAM, ≥ 0; 0 is plain training. A trainer around this one has its
            own, and rho is 0 here.
        name: Name of the trainer.
        options: `perturbation`, `micro_batches` and `every`, as for `SAM`.

    Raises:
        ValueError: As for `SAM`; a number is out of its range; the teacher is not a
            built `keras.Model`, or has another number of classes; it is not known what
            the teacher returns, as its inputs and the student's are not known.

    Reference: Touvron et al. 2021, arXiv 2012.12877, equations 2 and 3, and
    facebookresearch/deit losses.py. One difference to that file: there the divergence
    is divided by the number of classes as well (`numel`; both were tried, with similar
    results: issue 61), here it is that of equation 2, a mean over samples.
    """

    alpha = Setting(lambda _, value: number_of_each("alpha", value, 1, 0, 1)[0])
    tau = Setting(
        lambda _, value: number("tau", value, positive=True, meaning="the temperature")
    )

    def __init__(
        self,
        model: keras.Model,
        teacher: keras.Model | None,
        distill: str = "hard",
        *,
        alpha: float = 0.5,
        tau: float = 3.0,
        probabilities: bool | None = None,
        rho: Any = 0.0,
        name: str = "distillation",
        **options: Any,
    ) -> None:
        super().__init__(model, rho, name=name, **options)
        self.distill = one_of("distill", distill, ("hard", "soft"))
        self.alpha = alpha
        self.tau = tau
        self.probabilities = probabilities
        # Inside another object, because Keras tracks models that are attributes: it
        # would train and save the teacher.
        self._untracked = types.SimpleNamespace(teacher=None, heads=_two_heads(model))
        if teacher is not None:
            self.set_teacher(teacher)

    @property
    def teacher(self) -> keras.Model | None:
        """The teacher; None in a trainer that was loaded from a file."""
        return self._untracked.teacher

    def set_teacher(self, teacher: keras.Model) -> None:
        """Sets the teacher of a trainer that was loaded; call it before `fit`.

        Raises:
            ValueError: As for the constructor.
        """
        _check_teacher(teacher, self.model)
        if self.probabilities is None:
            self.probabilities = _gives_probabilities(teacher, self.model)
        before, self._untracked.teacher = self.teacher, teacher
        if before is not None:
            self.step_changed()

    def check_inside(self) -> None:
        """Raises a `ValueError` if this one has settings of the trainer around it."""
        self.check_plain()

    def models_beside(self) -> list[keras.Model]:
        """Returns the teacher, which a step computes with beside the student."""
        return [self.teacher] if self.teacher else []

    def step_constants(self) -> list[keras.Variable]:
        """Returns the variables of the teacher too, which a step only reads."""
        constants = super().step_constants()
        return [*constants, *self.teacher.variables] if self.teacher else constants

    def step_targets(self, x: Any, y: Any) -> Targets:
        """Returns the labels and the teacher's logits."""
        if self.teacher is None:
            raise ValueError(
                "The trainer has no teacher, because no file contains it. Call "
                "`set_teacher` before `fit`."
            )
        outputs = self.teacher(x, training=False)
        return Targets(y, _logits_of(outputs, bool(self.probabilities)))

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        heads = self._untracked.heads if training else None
        return self.called(heads or self.model, inputs, training)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        """Returns the weighted sum for the targets of a step, else L."""
        if not isinstance(y, Targets):
            y_pred = _average(y_pred)
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        first, second = y_pred if isinstance(y_pred, list) else (y_pred, y_pred)
        _check_classes(y.teacher.shape[-1], second.shape[-1])
        by_labels = super().compute_loss(x, y.labels, first, sample_weight, training)
        by_teacher = self._teacher_loss(y.teacher, second, sample_weight)
        # `by_labels` contains the added losses.
        by_teacher += added_losses(self.model)
        return (1 - self.alpha) * by_labels + self.alpha * by_teacher

    def _teacher_loss(self, teacher: Tensor, student: Tensor, weight: Any) -> Tensor:
        if self.distill == "soft":
            return Divergence(self.tau)(teacher, student, weight)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return loss(ops.argmax(teacher, axis=-1), student, weight)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Computes the metrics of the average of two heads."""
        return super().compute_metrics(x, y, _average(y_pred), sample_weight)

    def settings(self) -> dict[str, Any]:
        """Returns the constructor's arguments without model and teacher."""
        names = ("distill", "alpha", "tau", "probabilities")
        return {**super().settings(), **{name: getattr(self, name) for name in names}}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> SAM:
        """Builds the trainer and its model, without the teacher."""
        return super().from_config({**config, "teacher": None}, custom_objects)


def _two_heads(model: keras.Model) -> keras.Model | None:
    """Returns a model with the two outputs whose average a model returns, or None."""
    last = model.layers[-1] if model.layers else None
    if not isinstance(last, keras.layers.Average) or len(last.input) != 2:
        return None
    return keras.Model(model.input, list(last.input), name=f"{model.name}_heads")


def _average(outputs: Any) -> Any:
    return sum(outputs) / 2 if isinstance(outputs, list) else outputs


def _check_teacher(teacher: Any, student: keras.Model) -> None:
    """Raises a `ValueError` if a model cannot teach another one.

    Inputs and numbers of classes are compared as far as they are known without a call.
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
        _check_classes(*classes)


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


def _check_classes(teacher: int | None, student: int | None) -> None:
    """Raises a `ValueError` unless the numbers of classes are equal."""
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


def _gives_probabilities(teacher: keras.Model, student: keras.Model) -> bool:
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


def _logits_of(outputs: Tensor, probabilities: bool) -> Tensor:
    """Returns logits, float32 (batch, classes), of a teacher's outputs."""
    outputs = ops.cast(outputs, "float32")
    return ops.log(ops.maximum(outputs, SMALLEST)) if probabilities else outputs
