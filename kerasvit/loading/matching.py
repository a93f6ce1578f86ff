"""Comparison of a description with the numbers of the variants."""

from typing import Any

from kerasvit.checkpoints import printable

from .variant import VariantLike

# Arguments of which a model of a variant can have any value: sizes that its user
# chooses, and values that training uses or learns.
_FREE = ("image_size", "num_classes", "layer_scale", "stochastic_depth")


def fits(variant: VariantLike, values: dict[str, Any]) -> bool:
    """Returns whether the arguments that files state fit a variant.

    Numbers that the files do not state fit. An argument that replaces a default of the
    builder must be stated and equal; of `image_size`, `num_classes`, `layer_scale` and
    `stochastic_depth` any value fits.

    Args:
        variant: `Variant` to compare with.
        values: Arguments of its builder that the files state.
    """
    numbers = variant.numbers
    replaced = {k: v for k, v in variant.arguments.items() if k not in numbers}
    if any(values.get(key, number) != number for key, number in numbers.items()):
        return False
    for key, value in replaced.items():
        stated = values.get(key)
        if stated is None or (key not in _FREE and stated != value):
            return False
    return True


def explain_mismatch(
    variant: VariantLike, values: dict[str, Any], explicit: dict[str, Any]
) -> str:
    """Returns how the numbers of files differ from a variant; "" if they do not.

    Args:
        variant: `Variant` to compare with.
        values: Arguments of its builder that the files state.
        explicit: Arguments of the builder that the caller stated.
    """
    expected = {**variant.numbers, **explicit}
    # Files contain lists and no tuples.
    expected = {k: list(v) if isinstance(v, tuple) else v for k, v in expected.items()}
    wrong = [
        key for key in variant.numbers if key in values and values[key] != expected[key]
    ]
    if not wrong:
        return ""
    others = [each for each in variant.siblings if each is not variant]
    fitting = [str(other.name) for other in others if fits(other, values)]
    numbers = ", ".join(f"{key} {values[key]}, not {expected[key]}" for key in wrong)
    if fitting:
        names = " or ".join(fitting)
        it = f"holds weights of a {names}, not of {variant.label}: {numbers}. "
        return printable(f"{it}Build {names} with it.")
    return printable(f"does not hold weights of {variant.label}: {numbers}.")
