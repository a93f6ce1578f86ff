"""Base of SAM methods that store a vector from step to step."""

from typing import Any

import keras

from kerasvit.types import Gradients, LossAndGradients, Tensor

from .sam import SAM


class SlotSAM(SAM):
    """SAM trainer with a slot variable for every trainable variable.

    `compile` creates the slot variables, and they are saved with the trainer.
    """

    def compile(self, *arguments: Any, **options: Any) -> None:
        """Compiles as Keras does, and sets all slot variables to zero."""
        super().compile(*arguments, **options)
        slots = getattr(self, "_slots", {})
        with self.variables_scope():
            for variable in slots.values():
                variable.assign(keras.ops.zeros_like(variable.value))
            new = {
                id(variable): _slot_of(variable)
                for variable in self.model.trainable_variables
                if id(variable) not in slots
            }
        self._slots = {**slots, **new}

    def slots_of(self, variables: list[keras.Variable]) -> list[keras.Variable]:
        """Returns the slot variables of trainable variables."""
        slots = getattr(self, "_slots", {})
        return [slots[id(v)] for v in variables if id(v) in slots]

    def selected_gradients(
        self,
        loss_and_gradients: LossAndGradients,
        weights: list[Tensor],
        slots: list[Tensor],
    ) -> tuple[Gradients, list[Tensor]]:
        """Returns the gradients of one micro-batch for the present kind of step."""
        own = self.slots_of(self.trainable_variables)
        if len(own) != len(weights):
            raise ValueError(
                f"{type(self).__name__} has a slot variable for each weight that was "
                "trainable at `compile`, and other weights are trainable now. Compile "
                f"it again. Received: {len(weights)} weights, {len(own)} slots."
            )
        return super().selected_gradients(loss_and_gradients, weights, slots)


def _slot_of(variable: keras.Variable) -> keras.Variable:
    # A slot has the layout of its weight over devices; a `LayoutMap` knows the paths of
    # weights only.
    distribution = keras.distribution.distribution()
    return keras.Variable(
        "zeros",
        shape=variable.shape,
        dtype=variable.dtype,
        trainable=False,
        name="slot",
        layout=distribution and distribution.get_variable_layout(variable),
    )
