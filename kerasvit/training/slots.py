"""Base of SAM methods that keep a vector from step to step."""

import keras

from .sam import SAM


class RememberingSAM(SAM):
    """A SAM trainer with a slot variable for every trainable variable.

    They are made by `compile`, as an optimizer's are, and saved with the trainer.
    """

    def compile(self, *arguments, **options):
        """As Keras's; slot variables begin with zeros, as an optimizer's do."""
        super().compile(*arguments, **options)
        known = getattr(self, "_remembered", {})
        with self.variables_scope():
            for variable in known.values():
                variable.assign(keras.ops.zeros_like(variable.value))
            fresh = {
                id(variable): _beside(variable)
                for variable in self.model.trainable_variables
                if id(variable) not in known
            }
        self._remembered = {**known, **fresh}

    def memory_of(self, variables):
        """Returns the slot variables of trainable variables."""
        remembered = getattr(self, "_remembered", {})
        return [remembered[id(v)] for v in variables if id(v) in remembered]

    def part_gradients(self, loss_and_gradients, weights, memory):
        """Returns the gradients of one part of the batch, of this step's kind."""
        if len(memory) != len(weights):
            raise ValueError(
                f"{type(self).__name__} remembers something for each weight that was "
                "trainable at `compile`, and others are now. Compile it again."
            )
        return super().part_gradients(loss_and_gradients, weights, memory)


def _beside(variable):
    # Over devices as its weight is: a `LayoutMap` knows the paths of weights only.
    distribution = keras.distribution.distribution()
    return keras.Variable(
        "zeros",
        shape=variable.shape,
        dtype=variable.dtype,
        trainable=False,
        name="memory",
        layout=distribution and distribution.get_variable_layout(variable),
    )
