"""A `StatelessScope` for rematerialised and traced functions of TensorFlow."""

import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from kerasvit.types import Gradients, Tensor

from ..keras_private import contexts_of_call, get_stateless_scope, in_contexts_of_call


class PassScope(keras.StatelessScope):
    """A `keras.StatelessScope` that supports `tf.recompute_grad` and `tf.function`.

    A `tf.function` in a layer is traced again in each scope, because a traced graph
    holds the values of the scope that it was traced in.

    `keras.remat` is `tf.recompute_grad`, which differentiates by the arguments of its
    function and by the `tf.Variable`s that the function reads. It gives no gradient
    (None) by tensors that a scope substitutes for variables, and no second derivatives.
    This scope records the variables that the function reads, and gives gradients of any
    order. For them the function runs again from its initial state, so that it draws the
    same random numbers.

    Args:
        mapping: As for `keras.StatelessScope`.
        tape: The recording `tf.GradientTape`, or None.
    """

    def __init__(self, mapping: Iterable, tape: tf.GradientTape | None) -> None:
        super().__init__(mapping, collect_losses=True)
        self.tape = tape
        self.read: set[int] = set()

    def __enter__(self) -> "PassScope":
        _count_open(1)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _count_open(-1)

    def get_current_value(self, variable: keras.Variable) -> Tensor | None:
        """Same as in `keras.StatelessScope`; records which variables were read."""
        self.read.add(id(variable))
        return super().get_current_value(variable)

    def call(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Calls a rematerialised function such that its results have gradients."""
        if self.tape is None:  # within a rematerialised function that will run again
            return function(*args, **kwargs)
        before, outside = dict(self.state_mapping), contexts_of_call()
        results, read = self._first_run(function, args, kwargs)
        arguments = keras.tree.flatten((args, kwargs))
        float_indices = [i for i, value in enumerate(arguments) if _is_float(value)]
        names = [name for name in read if _is_float(before.get(name))]
        inputs = [arguments[i] for i in float_indices] + [
            before[name] for name in names
        ]

        def run_again(copies: list[Tensor], tape: tf.GradientTape) -> list[Tensor]:
            again = list(arguments)
            for i, value in zip(float_indices, copies, strict=False):
                again[i] = value
            new_args, new_kwargs = keras.tree.pack_sequence_as((args, kwargs), again)
            state = zip(names, copies[len(float_indices) :], strict=True)
            with PassScope((), tape) as scope, in_contexts_of_call(outside):
                scope.state_mapping = {**before, **dict(state)}
                return _floats(function(*new_args, **new_kwargs))

        floats = iter(
            _differentiable(_floats(results), inputs, len(float_indices), run_again)
        )
        return keras.tree.map_structure(
            lambda value: next(floats) if _is_float(value) else value, results
        )

    def _first_run(
        self, function: Callable, args: tuple, kwargs: dict[str, Any]
    ) -> tuple[Any, set[int]]:
        """Returns the results and the ids of the variables that were read."""
        tape: Any = self.tape
        self.tape = None
        others, self.read = self.read, set()
        try:
            # A recording tape would keep the activations, which are recomputed.
            with tape.stop_recording():
                return function(*args, **kwargs), self.read
        finally:
            self.tape, self.read = tape, others | self.read


def _differentiable(
    results: list[Tensor],
    inputs: list[Tensor],
    arguments: int,
    run_again: Callable[[list[Tensor], tf.GradientTape], list[Tensor]],
) -> list[Tensor]:
    """Returns the results with gradients by arguments and variables.

    Args:
        results: Results of the first run.
        inputs: Arguments of the function, then the variables that it reads.
        arguments: Number of arguments among `inputs`.
        run_again: Function of inputs and a tape that computes the results again.
    """

    @tf.custom_gradient
    def with_gradients(*inputs: Tensor) -> tuple[list[Tensor], Callable]:
        def gradients(*upstream: Tensor) -> Gradients:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                copies = [tf.identity(value) for value in inputs]
                tape.watch(copies)
                delayed = _delayed(copies[:arguments], upstream[0])
                again = run_again([*delayed, *copies[arguments:]], tape)
            slopes = tape.gradient(again, copies, output_gradients=upstream)
            return [g if g is None else tf.convert_to_tensor(g) for g in slopes]

        return [tf.identity(value) for value in results], gradients

    return with_gradients(*inputs) if results and inputs else results


def _delayed(values: list[Tensor], upstream: Tensor) -> list[Tensor]:
    """Returns values that depend on the upstream gradient.

    Otherwise the compiler would merge the two equal runs of the function, and keep the
    results of the first run in memory. `tf.recompute_grad` uses the same method.
    """
    if tf.executing_eagerly():
        return values
    some = tf.cast(tf.reduce_max(tf.reshape(upstream, [-1])[:1]), tf.bool)
    zero = tf.where(some == some, 0.0, 1.0)  # never 1
    return [value + tf.cast(zero, value.dtype) for value in values]


def _is_float(value: Any) -> bool:
    return tf.is_tensor(value) and value.dtype.is_floating


def _floats(results: Any) -> list[Tensor]:
    return [value for value in keras.tree.flatten(results) if _is_float(value)]


def _is_rematerialised(function: Any) -> bool:
    decorator = getattr(function, "_tf_decorator", None)
    return getattr(decorator, "decorator_name", None) == "recompute_grad"


class _Patch(NamedTuple):
    """A `__call__` of a class of TensorFlow, and the one that asks the open scope."""

    owner: type
    original: Callable
    patched: Callable


def _patch(example: Any, call_in: Callable) -> _Patch:
    """Returns a patch of a class of functions, because layers may have made them.

    Args:
        example: Such a function, an object of a class with a `__call__`.
        call_in: Function of the scope, the original call, the function and its
            arguments.
    """
    function_type = type(example)
    original_call = function_type.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope = get_stateless_scope()
        if not isinstance(scope, PassScope):
            return original_call(self, *args, **kwargs)
        return call_in(scope, original_call, self, args, kwargs)

    return _Patch(function_type, original_call, call)


_open = [0]  # number of scopes that are open, in all threads
_lock = threading.Lock()


def _count_open(change: int) -> None:
    """Patches the classes for the first open scope, and undoes it after the last."""
    with _lock:
        _open[0] += change
        for owner, original, patched in _PATCHES:
            setattr(owner, "__call__", patched if _open[0] else original)  # noqa: B010


def _call_rematerialised(
    scope: PassScope, original_call: Callable, function: Any, args: tuple, kwargs: dict
) -> Any:
    if not _is_rematerialised(function):  # `tf.custom_gradient` has the same class
        return original_call(function, *args, **kwargs)
    return scope.call(function.__wrapped__, args, kwargs)


def _call_traced(
    scope: PassScope, original_call: Callable, function: Any, args: tuple, kwargs: dict
) -> Any:
    """Traces a `tf.function` again: a traced graph holds the values of its scope."""
    autograph = getattr(function, "_autograph", True)
    fresh = tf.function(function.python_function, autograph=autograph)
    return original_call(fresh, *args, **kwargs)


_PATCHES = (
    _patch(tf.recompute_grad(tf.identity), _call_rematerialised),
    _patch(tf.function(tf.identity), _call_traced),
)
