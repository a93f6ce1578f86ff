"""SAM that remembers a vector from step to step."""

import keras

from .sam import SAM


class RememberingSAM(SAM):
    """A trainer with a variable of its own beside every trainable one.

    They are made by `compile`, as an optimizer's are, and saved with the trainer.
    """

    def compile(self, *arguments, **options):
        """Keras's; then what is remembered starts from zero, as an optimizer's does."""
        super().compile(*arguments, **options)
        self.batches = 0  # what is left of a period would go by what is forgotten
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

    def compile_from_config(self, config):
        """As Keras's, which asks who has a `compile` to have this, too."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def memory_of(self, variables):
        """What is remembered beside these weights."""
        remembered = getattr(self, "_remembered", {})
        return [remembered[id(v)] for v in variables if id(v) in remembered]


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
