"""The mean loss of a model over samples, at any values of its weights."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import check_built, integer
from kerasvit.backend import gradients_at, value_at
from kerasvit.backend.forward import constants
from kerasvit.backend.keras_private import in_variable_dtype
from kerasvit.backend.models import integer_layers
from kerasvit.patterns import found_in
from kerasvit.types import Tensor

Loss: TypeAlias = keras.losses.Loss | Callable[..., Any] | str | None


def chosen_variables(
    model: keras.Model, pattern: str | None = None
) -> list[keras.Variable]:
    """Returns the trainable variables whose path a regular expression matches.

    Args:
        model: Built `keras.Model`.
        pattern: Regular expression that is searched in the path; None selects all.

    Raises:
        ValueError: No variable matches, or `model` is not a built `keras.Model`, or its
            weights are integers, or the variables are not all of one floating dtype of
            32 bits or more.
    """
    check_built(model)
    if integers := [layer.name for layer in integer_layers(model)]:
        raise ValueError(
            "`model` must have weights of floating point numbers: a loss has no "
            f"derivatives by integers. Received: {len(integers)} quantised layers, "
            f"{integers[:3]}. Pass the model as it was before `quantize`."
        )
    # The gradient of a float8 layer's scale is its next value, and no derivative.
    trainable = [v for v in model.trainable_variables if not v.overwrite_with_gradient]
    if not trainable:
        raise ValueError(
            "`model` must have trainable variables, by which the loss is "
            "differentiated. Set `trainable = True` on a layer. Received: "
            f"model={model!r}."
        )
    paths = [variable.path for variable in trainable]
    search = found_in("variables", pattern or "", paths, "a trainable variable")
    chosen = [variable for variable in trainable if search(variable.path)]
    dtypes = {variable.dtype for variable in chosen}
    if len(dtypes) > 1 or not dtypes <= {"float32", "float64"}:
        raise ValueError(
            "The variables must be float32, or all float64: with fewer bits, second "
            f"derivatives are lost in rounding. Received: {sorted(dtypes)}. Build the "
            "model with the policy float32 or mixed_bfloat16 and set its weights."
        )
    return chosen


def inner_model(model: keras.Model) -> keras.Model:
    """Returns the model that a trainer, such as `SAM`, trains; or the model itself."""
    while isinstance(getattr(model, "model", None), keras.Model):
        model = model.model
    return model


class MeanLoss:
    """The mean loss of a batch, as a function of targets and outputs.

    Args:
        model: Built `keras.Model`.
        loss: `keras.losses.Loss`, its name, or a function of targets and outputs that
            returns one loss per sample or their mean. None: the loss that `model` is
            compiled with.

    Raises:
        ValueError: There is no loss, or a sum, or several losses. A call raises it if
            the loss is not a tensor.
    """

    def __init__(self, model: keras.Model, loss: Any = None) -> None:
        if loss is None:
            loss = model.loss
        if isinstance(loss, str):
            loss = keras.losses.get(loss)
        if not callable(loss):
            raise ValueError(
                "`loss` must be a keras.losses.Loss, the name of one, or a function of "
                "targets and outputs (of all outputs, for a model with several); "
                "without it, `model` must be compiled with one loss. Received: "
                f"{loss!r}."
            )
        if getattr(loss, "reduction", None) == "sum":
            raise ValueError(
                "`loss` must be the mean over the samples, for any number of them. "
                f'Received: {loss!r} with reduction="sum". Take '
                'reduction="sum_over_batch_size", and multiply by the number of '
                "samples."
            )
        self._model = model
        self._loss = loss
        self._classes: int | None = None  # unknown before the first batch

    def __call__(self, y: Any, y_pred: Any) -> Tensor:
        value = self._loss(y, y_pred)
        if not keras.ops.is_tensor(value) or "float" not in ops.dtype(value):
            raise ValueError(
                "`loss` must return a tensor: one loss per sample, or their mean. "
                f"Received: {value!r} from {self._loss!r}."
            )
        return ops.mean(value)

    def checked(self, data: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """Yields batches (x, y), after checking class indices y of a sparse loss.

        Without the check JAX gives a label beyond the classes the loss 0. Samples of
        the `ignore_class` of the loss are left out, so that the mean over all batches
        is one over the others, for any size of the batches.

        Raises:
            ValueError: A label is not in [0, classes), for outputs (N, classes), and
                not the `ignore_class` of the loss; or the loss has one, and the
                outputs have another shape; or there are no samples.
        """
        sparse = isinstance(self._loss, keras.losses.SparseCategoricalCrossentropy)
        sparse |= self._loss is keras.losses.sparse_categorical_crossentropy
        samples = 0
        for x, y in data:
            if sparse:
                if self._classes is None:
                    self._classes = _classes(self._model, x)
                ignored = getattr(self._loss, "ignore_class", None)
                _check_labels(y, self._classes, ignored)
                if ignored is not None:
                    x, y = _without(x, y, ignored)
            if length(x):
                samples += length(x)
                yield x, y
        if not samples:
            raise ValueError("There must be at least one sample. Received: none.")


class LossAt:
    """The mean loss of a model, and its gradient, at given values of its variables.

    The model runs with `training=False` and in the dtype of its variables, and none is
    changed, see `Hessian`.

    Args:
        model: Built `keras.Model`.
        variables: The variables whose values are given; others have their own.
        loss: As for `MeanLoss`.

    Attributes:
        name: What tells the loss from others, in any process.
    """

    def __init__(
        self, model: keras.Model, variables: list[keras.Variable], loss: Loss
    ) -> None:
        self.model = model
        self.variables = variables
        self._loss = MeanLoss(model, loss)
        self.name = _name(model.loss if loss is None else loss)
        given = {id(variable) for variable in variables}
        self._others = [v for v in model.variables if id(v) not in given]

        def function(x: Any, y: Any) -> Tensor:
            return self._loss(y, model(x, training=False))

        everything = [*variables, *self._others]
        self._value = value_at(everything, function)
        self._gradients = gradients_at(everything, function, len(variables))

    def values(self) -> list[Tensor]:
        """Returns the present values of the variables."""
        return constants(self.variables)

    def value(self, values: list[Tensor], data: Iterable[tuple[Any, Any]]) -> float:
        """Returns the mean loss over batches: one forward pass for each.

        It may be infinite or NaN.
        """
        total, samples = 0.0, 0
        with in_variable_dtype(self.model):
            values = [*values, *constants(self._others)]
            for x, y in self._loss.checked(data):
                total += float(self._value(values, x, y)) * length(x)
                samples += length(x)
        return total / samples

    def gradients(
        self, values: list[Tensor], data: Iterable[tuple[Any, Any]]
    ) -> tuple[float, list[Tensor]]:
        """Returns the mean loss over batches and its gradients.

        Raises:
            ValueError: One of them is not finite, or there is no batch.
        """
        total, samples = 0.0, 0
        sums: list[Tensor] = []
        with in_variable_dtype(self.model):
            values = [*values, *constants(self._others)]
            for x, y in self._loss.checked(data):
                loss, found = self._gradients(values, x, y)
                terms = [gradient * length(x) for gradient in found]
                sums = [*map(ops.add, sums, terms)] if sums else terms
                total += float(loss) * length(x)
                samples += length(x)
        squares = sum(float(ops.sum(ops.square(each))) for each in sums)
        check_finite(np.array(total), np.array(squares), np.zeros(0))
        return total / samples, [each / samples for each in sums]


def norm(tensors: list[Tensor]) -> float:
    """Returns the Euclidean norm of all entries of several tensors."""
    return float(np.sqrt(sum(float(ops.sum(ops.square(each))) for each in tensors)))


def _name(loss: Any) -> str:
    """Returns the name of a loss with its settings; of a function, its name."""
    if isinstance(loss, str):
        return loss
    name = getattr(loss, "__qualname__", type(loss).__qualname__)
    settings = loss.get_config() if isinstance(loss, keras.losses.Loss) else ""
    return f"{name} {settings}"


def batches(
    x: Any, y: Any = None, batch_size: int = 32
) -> Callable[[], Iterable[tuple[Any, Any]]]:
    """Returns a function that iterates over all batches from the beginning.

    Args:
        x: Array (N, ...), or a list or dictionary of arrays; or an iterable of batches.
        y: Likewise; None if `x` is an iterable of batches.
        batch_size: Number of samples per batch, for arrays; ≥ 1.

    Returns:
        Function without arguments that yields (x, y) as tensors; floating ones have
        Keras's default dtype, as in `fit`.

    Raises:
        ValueError: The lengths differ, or the batches can be iterated only once. The
            returned function raises it for a batch that is not a pair.
    """
    if y is None:
        once = not isinstance(x, Iterable) or isinstance(x, Iterator)
        if once or hasattr(x, "shape"):
            raise ValueError(
                "Without `y`, `x` must be an iterable of batches (x, y) that can be "
                "iterated several times, such as a tf.data.Dataset or a list. "
                f"Received: {type(x).__name__}. A generator yields its batches once: "
                "make a list of it."
            )
        return lambda: (_pair(batch) for batch in x)
    integer("batch_size", batch_size, 1)
    arrays = keras.tree.flatten((x, y))
    if not all(len(getattr(array, "shape", ())) for array in arrays):
        raise ValueError(
            "`x` and `y` must be arrays (N, ...), or lists or dictionaries of arrays. "
            f"Received: {[type(array).__name__ for array in arrays[:3]]}. "
            "Convert lists of numbers with numpy.asarray."
        )
    lengths = {len(array) for array in arrays}
    if len(lengths) > 1:
        raise ValueError(
            "`x` and `y` must have the same number of samples. "
            f"Received: {sorted(lengths)}."
        )

    def cut() -> Iterator[tuple[Any, Any]]:
        for start in range(0, max(lengths), batch_size):
            part = [array[start : start + batch_size] for array in arrays]
            yield keras.tree.pack_sequence_as((x, y), [*map(_tensor, part)])

    return cut


def length(x: Any) -> int:
    """Returns the number of samples in a batch."""
    return int(keras.tree.flatten(x)[0].shape[0])


def _classes(model: keras.Model, x: Any) -> int:
    """Returns K of the outputs (N, K); 0 for outputs of another form."""
    outputs = getattr(inner_model(model), "outputs", None)  # not of a subclass
    if not outputs:
        first = keras.tree.map_structure(lambda array: array[:1], x)
        outputs = keras.tree.flatten(model(first, training=False))
    shapes = [tuple(output.shape) for output in outputs]
    return shapes[0][1] if [*map(len, shapes)] == [2] else 0


def _without(x: Any, y: Any, ignored: int) -> tuple[Any, Any]:
    """Returns the samples of a batch whose label is another one."""
    kept = np.flatnonzero(ops.convert_to_numpy(y).ravel() != ignored)
    return keras.tree.map_structure(lambda a: ops.take(a, kept, axis=0), (x, y))


def _check_labels(y: Any, classes: int, ignored: int | None) -> None:
    labels = ops.convert_to_numpy(y)
    if ignored is not None and not classes:
        raise ValueError(
            "A loss with `ignore_class` needs outputs (N, classes): the mean over "
            "batches is not known for others. Leave the ignored samples out."
        )
    wrong = ~((labels >= 0) & (labels < classes) | (labels == ignored))
    if classes and wrong.any():
        raise ValueError(
            f"Labels must be in [0, {classes - 1}], for the {classes} classes of the "
            f"model. Received: the label {labels[wrong][0]}. Check `y`, or take a "
            "model with as many classes as the data."
        )


def check_finite(loss: np.ndarray, gradient: np.ndarray, product: np.ndarray) -> None:
    """Raises a `ValueError` unless the loss and its derivatives are finite."""
    arrays = {"loss": loss, "gradient": gradient, "second derivatives": product}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(
                f"The {name} of the model must be finite. Received: Inf or NaN. Check "
                "the samples and the weights for Inf and NaN, and whether the loss "
                "takes logarithms of probabilities: compute it from logits instead."
            )


def _pair(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise ValueError(
            "A batch must be a pair (x, y): sample weights are not supported. "
            f"Received: {type(batch).__name__}"
            + (f" of {len(batch)}." if hasattr(batch, "__len__") else ".")
        )
    return keras.tree.map_structure(_tensor, tuple(batch))


def _tensor(value: Any) -> Tensor:
    # A tensor of another library, such as tf.data yields, is converted as an array.
    is_tensor = ops.is_tensor(value)
    tensor = ops.convert_to_tensor(value if is_tensor else np.asarray(value))
    if "float" in keras.backend.standardize_dtype(tensor.dtype):
        tensor = ops.cast(tensor, keras.config.floatx())
    return tensor
