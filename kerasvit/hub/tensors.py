"""`ModelTensors`: the tensors of a model in the format of a file."""

from collections.abc import Callable
from typing import Any

import keras
import ml_dtypes  # noqa: F401  (NumPy learns the name bfloat16 from it)
import numpy as np

from kerasvit.arguments import one_of
from kerasvit.checkpoints import KeyMap


class ModelTensors:
    """Mapping from names in a file to arrays of a model, converted when read.

    Args:
        weights: Variables of a model, or objects with `path`, `shape` and `dtype` that
            `numpy.asarray` converts.
        key_map: `KeyMap` from the names to the variables' paths.
        dtype: Dtype of all arrays but integers; None for that of the variables.

    Attributes:
        outlines: {name: (NumPy's name of the dtype, shape)}.

    Raises:
        ValueError: The dtype is not supported, or a variable has no name.
    """

    def __init__(self, weights: list[Any], key_map: KeyMap, dtype: str | None = None):
        self._key_map = key_map
        self._dtype = None if dtype is None else dtype_of(dtype)
        self._variables: dict[str, list[Any]] = {}
        for variable in weights:
            name: Any = key_map.name(variable.path)  # None: `write` raises
            self._variables.setdefault(name, []).append(variable)
        self.outlines = {name: self._outline(name) for name in self._variables}

    @property
    def dtypes(self) -> list[str]:
        """Names of the arrays' dtypes, sorted."""
        return sorted({dtype for dtype, _ in self.outlines.values()})

    def __getitem__(self, name: str) -> np.ndarray:
        """Returns the array with a name.

        Raises:
            ValueError: The array contains values that are not finite.
        """
        array = self._written(name, values_of)
        with np.errstate(over="ignore"):  # reported below
            cast = array.astype(self._target(array.dtype), copy=False)
        if wrong := np.size(cast) - np.count_nonzero(np.isfinite(cast)):
            reason = "the model is damaged; use earlier weights"
            if np.isfinite(array).all():
                reason = f"{cast.dtype.name} cannot hold them; save as float32"
            raise ValueError(
                f"{name} has {wrong} of {cast.size} weights that are not finite: "
                f"{reason}. Nothing was written."
            )
        return cast

    def _outline(self, name: str) -> tuple[str, tuple[int, ...]]:
        array = self._written(name, _zeros)
        return str(self._target(array.dtype)), array.shape

    def _target(self, dtype: np.dtype) -> np.dtype:
        """Returns the dtype of an array in the file; quantised kernels keep theirs."""
        return dtype if self._dtype is None or dtype.kind in "iu" else self._dtype

    def _written(self, name: str, values: Callable[[Any], np.ndarray]) -> np.ndarray:
        arrays = {v.path: values(v) for v in self._variables[name]}
        (array,) = self._key_map.write(arrays).values()
        return array


def dtype_of(name: str) -> np.dtype:
    """Returns the NumPy dtype to store tensors in.

    Raises:
        ArgumentError: The dtype is not supported.
    """
    return np.dtype(one_of("dtype", name, ("float32", "float16", "bfloat16")))


def values_of(variable: Any) -> np.ndarray:
    """Returns the values of a variable, or of an object like one, as an array."""
    if not isinstance(variable, keras.Variable):
        return np.asarray(variable)
    if keras.backend.backend() == "jax":
        # JAX caches the host copy of an accelerator's array as long as the array
        # exists. The array is copied first, so that the cache is freed at once.
        variable = keras.ops.copy(variable)
    return keras.ops.convert_to_numpy(variable)


def _zeros(variable: Any) -> np.ndarray:
    """Returns a zero-memory array of the variable's shape and dtype."""
    dtype = np.dtype(keras.backend.standardize_dtype(variable.dtype))
    return np.broadcast_to(np.zeros((), dtype), tuple(variable.shape))
