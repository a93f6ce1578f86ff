"""TensorFlow layers that compute with values from a `StatelessScope`."""

import contextlib
import copy

import keras
import tensorflow as tf
from keras.src.backend.common import global_state

# What a layer's call leaves in Keras's global state for the layers inside it: the
# `training` argument, the dtype that variables are cast to.
_CONTEXTS = ("current_call_ctx", "autocast_scope")


class PassScope(keras.StatelessScope):
    """A `keras.StatelessScope` for `tf.recompute_grad` and `tf.function` as well.

    A `tf.function` in a layer is traced anew in each scope: its graph would keep the
    values of the first one.

    `keras.remat` is `tf.recompute_grad`, which differentiates by the arguments of its
    function and by the `tf.Variable`s that the function reads. It does not see tensors
    that a scope substitutes for variables: their gradient is None. It has no second
    derivatives either. In this scope the function's reads are noted, and gradients of
    any order are right; the function runs again from the state that it began with, so
    that it draws the same random numbers.

    Args:
        mapping: As for `keras.StatelessScope`.
        tape: The `tf.GradientTape` that records, or None if none does.
    """

    def __init__(self, mapping, tape):
        super().__init__(mapping, collect_losses=True)
        self.tape = tape
        self.read = set()

    def get_current_value(self, variable):
        """As in `keras.StatelessScope`; records which variables were read."""
        self.read.add(id(variable))
        return super().get_current_value(variable)

    def call(self, function, args, kwargs):
        """Calls a rematerialised function such that its results have gradients."""
        if self.tape is None:  # Inside another one, which will run this one again.
            return function(*args, **kwargs)
        before, contexts = dict(self.state_mapping), _contexts()
        results, read = self._first_run(function, args, kwargs)
        arguments = keras.tree.flatten((args, kwargs))
        float_indices = [i for i, value in enumerate(arguments) if _is_float(value)]
        names = [name for name in read if _is_float(before.get(name))]
        inputs = [arguments[i] for i in float_indices] + [
            before[name] for name in names
        ]

        def run_again(copies, tape):
            again = list(arguments)
            for i, value in zip(float_indices, copies, strict=False):
                again[i] = value
            new_args, new_kwargs = keras.tree.pack_sequence_as((args, kwargs), again)
            state = zip(names, copies[len(float_indices) :], strict=True)
            with PassScope((), tape) as scope, _restored(contexts):
                scope.state_mapping = {**before, **dict(state)}
                return _floats(function(*new_args, **new_kwargs))

        floats = iter(
            _differentiable(_floats(results), inputs, len(float_indices), run_again)
        )
        return keras.tree.map_structure(
            lambda value: next(floats) if _is_float(value) else value, results
        )

    def _first_run(self, function, args, kwargs):
        """Returns the results and the ids of the variables that were read."""
        tape, self.tape = self.tape, None
        others, self.read = self.read, set()
        try:
            # The tape would keep alive what is to be computed again.
            with tape.stop_recording():
                return function(*args, **kwargs), self.read
        finally:
            self.tape, self.read = tape, others | self.read


def _differentiable(results, inputs, arguments, run_again):
    """Returns the results with gradients by arguments and variables."""

    @tf.custom_gradient
    def known(*inputs):
        def gradients(*upstream):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                copies = [tf.identity(value) for value in inputs]
                tape.watch(copies)
                later = _later(copies[:arguments], upstream[0])
                again = run_again([*later, *copies[arguments:]], tape)
            found = tape.gradient(again, copies, output_gradients=upstream)
            return [g if g is None else tf.convert_to_tensor(g) for g in found]

        return [tf.identity(value) for value in results], gradients

    return known(*inputs) if results and inputs else results


def _later(values, upstream):
    """Delays a computation until the gradient is known.

    Else the compiler would find that the function runs twice on the same, and keep the
    results of the first time. `tf.recompute_grad` does it in this way.
    """
    if tf.executing_eagerly():
        return values
    some = tf.cast(tf.reduce_max(tf.reshape(upstream, [-1])[:1]), tf.bool)
    zero = tf.where(some == some, 0.0, float("nan"))
    return [value + tf.cast(zero, value.dtype) for value in values]


def _is_float(value):
    return tf.is_tensor(value) and value.dtype.is_floating


def _floats(results):
    return [value for value in keras.tree.flatten(results) if _is_float(value)]


def _contexts():
    # A copy, for the layers that are called next write into it.
    return [copy.copy(global_state.get_global_attribute(name)) for name in _CONTEXTS]


@contextlib.contextmanager
def _restored(contexts):
    """Restores the surrounding scopes for a function that runs again."""
    others = [global_state.get_global_attribute(name) for name in _CONTEXTS]
    for name, context in zip(_CONTEXTS, contexts, strict=True):
        global_state.set_global_attribute(name, context)
    try:
        yield
    finally:
        for name, context in zip(_CONTEXTS, others, strict=True):
            global_state.set_global_attribute(name, context)


def _is_rematerialised(function):
    decorator = getattr(function, "_tf_decorator", None)
    return getattr(decorator, "decorator_name", None) == "recompute_grad"


def _let_scopes_call(example, call_in):
    """Patches a class of TensorFlow functions to call an open `PassScope`.

    A layer may have made its function long before, so that only the class can be
    changed. Outside a `PassScope` calls are as before.

    Args:
        example: Such a function, an object of a class with a `__call__`.
        call_in: Function of the scope, the function and its arguments.
    """
    made = type(example)
    call_of_tensorflow = made.__call__

    def call(self, *args, **kwargs):
        scope = global_state.get_global_attribute("stateless_scope")
        if not isinstance(scope, PassScope):
            return call_of_tensorflow(self, *args, **kwargs)
        return call_in(scope, call_of_tensorflow, self, args, kwargs)

    made.__call__ = call


def _call_rematerialised(scope, call_of_tensorflow, function, args, kwargs):
    if not _is_rematerialised(function):  # tf.custom_gradient makes the same class.
        return call_of_tensorflow(function, *args, **kwargs)
    return scope.call(function.__wrapped__, args, kwargs)


def _call_traced(scope, call_of_tensorflow, function, args, kwargs):
    """Traces a `tf.function` again: a traced graph holds the values of its scope."""
    autograph = getattr(function, "_autograph", True)
    fresh = tf.function(function.python_function, autograph=autograph)
    return call_of_tensorflow(fresh, *args, **kwargs)


_let_scopes_call(tf.recompute_grad(tf.identity), _call_rematerialised)
_let_scopes_call(tf.function(tf.identity), _call_traced)
