"""Which models can be differentiated at all."""

import keras


def check_built(model):
    """Finds what has no weights to differentiate by.

    Raises:
        ValueError: `model` is not a `keras.Model`, or is not built.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(
            "`model` must be a keras.Model: functional, Sequential or a subclass. "
            f"Received: model={model!r}."
        )
    # `build` of a subclass without a `build` of its own sets `built` and no more.
    empty = not model.variables and not all(part.built for part in model.layers)
    if not model.built or empty:
        raise ValueError(
            "`model` has no variables yet. Call it once on a batch, "
            f"or `model.build(input_shape)`, first. Received: model={model!r}."
        )
