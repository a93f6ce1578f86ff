"""The result of a check."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Result:
    """Errors over scale of a case's quantities, in the order of computation."""

    errors: dict
    tolerance: float

    @property
    def wrong(self):
        """The first quantity beyond the tolerance, or None."""
        # `not <=`, so that NaN is an error.
        wrong = [
            key for key, error in self.errors.items() if not error <= self.tolerance
        ]
        return wrong[0] if wrong else None

    def __str__(self):
        worst = max(self.errors, key=self.errors.get)
        text = f"worst {worst} {self.errors[worst]:.1e} of {self.tolerance:.0e} allowed"
        if self.wrong:
            text += f"; first wrong: {self.wrong} {self.errors[self.wrong]:.1e}"
        return text


def error(found, recorded):
    """Largest difference over the largest recorded value; inf for another shape."""
    found, recorded = np.asarray(found), np.asarray(recorded)
    if found.shape != recorded.shape or not np.isfinite(found).all():
        return float("inf")
    scale = np.abs(recorded).max() or 1.0
    return float(np.abs(found.astype("float64") - recorded).max() / scale)


def errors(found, recorded, names=None):
    """{name: error} of two dicts of arrays, in the order of the names."""
    return {name: error(found[name], recorded[name]) for name in names or recorded}
