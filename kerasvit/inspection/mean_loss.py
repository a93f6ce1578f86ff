"""The mean loss of a model over samples."""

import difflib
import re
from collections.abc import Iterable, Iterator

import keras
import numpy as np
from keras import ops

from kerasvit.arguments import check_built, integer


def chosen_variables(model, pattern=None):
    """The trainable variables of a model in whose path a regular expression is found.

    Args:
        model: Built `keras.Model`.
        pattern: Regular expression; None: all.

    Raises:
        ValueError: There are none, or `model` is no built `keras.Model`, or the
            variables are not all of one floating dtype of 32 bits or more.
    """
    check_built(model)
    # The gradient of a float8 layer's scale is its next value, and no derivative.
    trainable = [v for v in model.trainable_variables if not v.overwrite_with_gradient]
    if not trainable:
        raise ValueError(
            "`model` must have trainable variables, to differentiate by. Set "
            f"`trainable = True` on a layer. Received: model={model!r}."
        )
    try:
        chosen = [v for v in trainable if re.search(pattern or "", v.path)]
    except re.error as error:
        raise ValueError(
            f"`variables` must be a regular expression. Received: {pattern!r}: {error}."
        ) from error
    if not chosen:
        paths = [variable.path for variable in trainable]
        near = difflib.get_close_matches(pattern, paths, n=3, cutoff=0.3) or paths[:3]
        raise ValueError(
            "`variables` must be a regular expression that is found in the path of a "
            f"trainable variable. Received: {pattern!r}. Paths are like {near}."
        )
    dtypes = {variable.dtype for variable in chosen}
    if len(dtypes) > 1 or not dtypes <= {"float32", "float64"}:
        raise ValueError(
            "The variables must be float32, or all float64: second derivatives are "
            f"lost in the rounding of less. Received: {sorted(dtypes)}. Build the "
            "model with the policy float32 or mixed_bfloat16 and set its weights."
        )
    return chosen


def mean_loss(model, loss=None):
    """The mean loss of a batch, as a function of targets and outputs.

    Args:
        model: `keras.Model`.
        loss: `keras.losses.Loss`, its name, or a function of targets and outputs that
            returns one loss a sample or their mean; None: what `model` is compiled
            with.

    Raises:
        ValueError: There is no loss, or one that sums, or several. In the function:
            it returned no tensor.
    """
    if loss is None:
        loss = model.loss
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    if not callable(loss):
        raise ValueError(
            "`loss` must be a keras.losses.Loss, the name of one, or a function of "
            "targets and outputs, if need be of all outputs of the model at once; "
            "without it, `model` must be compiled with one. Received: "
            f"{loss!r}."
        )
    if getattr(loss, "reduction", None) == "sum":
        raise ValueError(
            "`loss` must be the mean over the samples, for any number of them. "
            f'Received: {loss!r} with reduction="sum". Take '
            'reduction="sum_over_batch_size", and multiply by the number of samples.'
        )

    def of_batch(y, y_pred):
        value = loss(y, y_pred)
        if not keras.ops.is_tensor(value) or "float" not in ops.dtype(value):
            raise ValueError(
                "`loss` must return a tensor: one loss a sample, or their mean. "
                f"Received: {value!r} from {loss!r}."
            )
        return ops.mean(value)

    return of_batch


def batches(x, y=None, batch_size=32):
    """A function that goes through all batches, each time anew.

    Args:
        x: Array (N, ...), or a list or dictionary of such; or an iterable of batches.
        y: Likewise; None where `x` has the batches.
        batch_size: Samples a batch, for arrays; ≥ 1.

    Returns:
        Function without arguments that yields (x, y) as tensors, floating ones of
        Keras's default dtype as in `fit`.

    Raises:
        ValueError: The lengths differ, or the batches can be gone through but once. In
            the function: a batch is no pair.
    """
    if y is None:
        once = not isinstance(x, Iterable) or isinstance(x, Iterator)
        if once or hasattr(x, "shape"):
            raise ValueError(
                "Without `y`, `x` must be an iterable of batches (x, y) that can be "
                "gone through again and again, such as a tf.data.Dataset or a list. "
                f"Received: {type(x).__name__}. A generator gives its batches once; "
                "make a list of it."
            )
        return lambda: (_pair(batch) for batch in x)
    integer("batch_size", batch_size, 1)
    arrays = keras.tree.flatten((x, y))
    if not all(len(getattr(array, "shape", ())) for array in arrays):
        raise ValueError(
            "`x` and `y` must be arrays (N, ...), or lists or dictionaries of arrays. "
            f"Received: {[type(array).__name__ for array in arrays[:3]]}. "
            "numpy.asarray makes an array of a list of numbers."
        )
    lengths = {len(array) for array in arrays}
    if len(lengths) > 1:
        raise ValueError(
            "`x` and `y` must have the same number of samples. "
            f"Received: {sorted(lengths)}."
        )

    def cut():
        for start in range(0, max(lengths), batch_size):
            part = [array[start : start + batch_size] for array in arrays]
            yield keras.tree.pack_sequence_as((x, y), [*map(_tensor, part)])

    return cut


def length(x):
    """The number of samples in a batch."""
    return int(keras.tree.flatten(x)[0].shape[0])


def check_finite(loss, gradient, product):
    """Whether what was computed is finite.

    Raises:
        ValueError: It is not.
    """
    arrays = {"loss": loss, "gradient": gradient, "second derivatives": product}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(
                f"The {name} of the model must be finite. Received: Inf or NaN. Look "
                "for them in the samples and in the weights, and in a loss that takes "
                "the logarithm of probabilities where it should be given logits."
            )


def _pair(batch):
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise ValueError(
            "A batch must be a pair (x, y): sample weights are not supported. "
            f"Received: {type(batch).__name__}"
            + (f" of {len(batch)}." if hasattr(batch, "__len__") else ".")
        )
    return keras.tree.map_structure(_tensor, tuple(batch))


def _tensor(value):
    # Another library's tensor, as tf.data gives them, is an array to this backend.
    own = ops.is_tensor(value)
    tensor = ops.convert_to_tensor(value if own else np.asarray(value))
    if "float" in keras.backend.standardize_dtype(tensor.dtype):
        tensor = ops.cast(tensor, keras.config.floatx())
    return tensor
