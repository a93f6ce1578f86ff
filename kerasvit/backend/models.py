"""What our models have beside Keras's: values that stay, clones and integer kernels."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import keras

from .keras_private import layers_in, present_values
from .threads import using

_like: Any = functools.wraps  # its types would be those of calls of `keras.Model`


@contextlib.contextmanager
def _kept(model: Any) -> Iterator[None]:
    """Context that gives values back to variables that have none at its end.

    Keras on JAX takes the values of all variables out of the model while it runs, so
    that other threads must wait, and gives them back at the end, but not after an error
    in tracing.
    """
    if keras.backend.backend() != "jax":
        yield
        return
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    variables += model.metrics_variables
    if model.compiled and model.optimizer is not None:
        variables += model.optimizer.variables
    with using(variables, alone=True):
        values = present_values(variables)
        try:
            yield
        finally:
            now = present_values(variables)
            for variable, before, value in zip(variables, values, now, strict=True):
                lost = value is None and before is not None
                if lost and not before.is_deleted():
                    variable.assign(before)


class KeepsValues:
    """Base before `keras.Model`: its variables keep their values in a failed call."""

    # `keras.Model` is no base of this class: Keras would make it functional, and so
    # break its other subclasses.

    @_like(keras.Model.evaluate)
    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        with _kept(self):
            return super().evaluate(*args, **kwargs)  # type: ignore[misc]

    @_like(keras.Model.fit)
    def fit(self, *args: Any, **kwargs: Any) -> Any:
        with _kept(self):
            return super().fit(*args, **kwargs)  # type: ignore[misc]

    @_like(keras.Model.predict)
    def predict(self, *args: Any, **kwargs: Any) -> Any:
        with _kept(self):
            return super().predict(*args, **kwargs)  # type: ignore[misc]


Base: Any = KeepsValues
if keras.backend.backend() == "torch":  # where calls take no values
    from .torch.compile import CompiledModel

    Base = CompiledModel
elif keras.backend.backend() == "openvino":
    from .openvino import InferenceModel

    Base = InferenceModel

_ORIGINAL = "_kerasvit_original"  # attribute of an output tensor of a clone


class ClonableModel(Base, keras.Model):
    """A functional model whose clones can find it."""

    def _run_through_graph(self, *args: Any, **kwargs: Any) -> Any:
        # keras.models.clone_model calls this method and builds a model of the result.
        outputs = super()._run_through_graph(*args, **kwargs)
        for output in keras.tree.flatten(outputs):
            if isinstance(output, keras.KerasTensor):
                setattr(output, _ORIGINAL, self)
        return outputs

    def pop_original(self) -> Any:
        """Returns the model that this one was cloned from, or None; then forgets it."""
        found = [vars(output).pop(_ORIGINAL, None) for output in self.outputs]
        return found[0]


def integer_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """Returns the layers that are quantised, without those of float8."""
    modes = (None, "float8")
    return [x for x in layers_in(model) if x.quantization_mode not in modes]


def check_no_integers_trained(model: keras.Model) -> None:
    """Checks that training a model would not leave out its quantised kernels.

    Raises:
        ValueError: A quantised layer is not frozen.
    """
    layers = [layer for layer in integer_layers(model) if layer.trainable]
    if layers:
        raise ValueError(
            f"{model.name} cannot be trained: the kernels of {len(layers)} layers, "
            f"such as {layers[0].path}, are {layers[0].quantization_mode}, and "
            "integers have no gradient. Train the model before `quantize`. To train "
            "its other layers only, set `trainable = False` on the quantised ones."
        )
