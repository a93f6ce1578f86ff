"""The tensors of a model in a file's format, converted one at a time."""

import keras
import ml_dtypes
import numpy as np


class ModelTensors:
    """Maps names in a file to arrays of a model, each converted when it is read.

    Args:
        model: `keras.Model`.
        key_map: `KeyMap` from the names to the model's variable paths.
        dtype: Of all arrays; None: that of the variables.

    Attributes:
        outlines: {name: (NumPy's name of the dtype, shape)}.

    Raises:
        ValueError: There is no such dtype, or no name for a variable.
    """

    def __init__(self, model, key_map, dtype=None):
        self._key_map = key_map
        self._dtype = dtype_of(dtype) if dtype is not None else None
        self._variables = {}
        for variable in model.weights:
            name = key_map.name(variable.path)
            self._variables.setdefault(name, []).append(variable)
        self.outlines = {name: self._outline(name) for name in self._variables}

    @property
    def dtypes(self) -> list[str]:
        """Names of the arrays' dtypes, sorted."""
        return sorted({dtype for dtype, _ in self.outlines.values()})

    def __getitem__(self, name):
        """Returns the array of a name.

        Raises:
            ValueError: Not all of its values are finite.
        """
        array = self._written(name, _values)
        with np.errstate(over="ignore"):  # `_check_finite` reports it
            cast = array if self._dtype is None else array.astype(self._dtype)
        _check_finite(name, cast, array)
        return cast

    def _outline(self, name):
        array = self._written(name, _zeros)
        return str(np.dtype(self._dtype or array.dtype)), array.shape

    def _written(self, name, values):
        arrays = {v.path: values(v) for v in self._variables[name]}
        (array,) = self._key_map.write(arrays).values()
        return array


def dtype_of(name):
    """Returns the NumPy dtype to store tensors in.

    Raises:
        ValueError: It is none.
    """
    known = {
        "float32": np.float32,
        "float16": np.float16,
        "bfloat16": ml_dtypes.bfloat16,
    }
    if name not in known:
        raise ValueError(
            f"`dtype` must be one of {', '.join(known)}. Received: {name!r}."
        )
    return known[name]


def _values(variable):
    # JAX keeps the copy that it makes of an accelerator's array, as long as there is
    # the array: it is made of one that is gone at once.
    return keras.ops.convert_to_numpy(keras.ops.copy(variable))


def _zeros(variable):
    """An array without memory, of the same shape and dtype."""
    dtype = np.dtype(keras.backend.standardize_dtype(variable.dtype))
    return np.broadcast_to(np.zeros((), dtype), tuple(variable.shape))


def _check_finite(name, cast, array):
    wrong = np.size(cast) - np.count_nonzero(np.isfinite(cast))
    if not wrong:
        return
    if np.isfinite(array).all():
        meant = f"{cast.dtype.name} cannot hold them; save as float32"
    else:
        meant = "the model is spoilt; take weights of before"
    raise ValueError(
        f"{name} has {wrong} of {cast.size} weights that are not finite: {meant}. "
        "Nothing was written."
    )
