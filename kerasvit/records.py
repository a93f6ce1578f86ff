"""Finds the record of a model."""

# An attribute of the output tensor of an `ImageModel`, which keeps the model that the
# tensor was made for.
OWNER = "_kerasvit_model"


def found_record(model) -> dict | None:
    """Returns the record of a model, or None.

    `keras.Model(m.input, m.output)` is a plain functional model over the same graph as
    the `ImageModel` m, so it has m's record. A model between other tensors of m has
    none: it computes something else.
    """
    record = getattr(model, "record", None)
    if record is not None:
        return record if isinstance(record, dict) else None
    outputs, inputs = (getattr(model, key, None) for key in ("outputs", "inputs"))
    if not isinstance(outputs, list) or len(outputs) != 1:
        return None
    owner = getattr(outputs[0], OWNER, None)
    if owner is None or len(inputs) != 1 or inputs[0] is not owner.inputs[0]:
        return None
    record = owner.record
    return record if isinstance(record, dict) else None
