"""The certificate of a converted folder: what was compared, and how it went."""

import datetime
from dataclasses import dataclass
from pathlib import Path

from kerasvit.hub.hashes import file_hash

from .sections import section, set_section

HEADING = "Parity certificate"
PASSED, FAILED = "**PASSED**", "**FAILED**"
COVERED = ("model.safetensors", "config.json")
COLUMNS = (
    "check",
    "backend",
    "largest difference",
    "of the scale",
    "allowed",
    "outcome",
    "date",
    "versions",
)


@dataclass(frozen=True)
class Check:
    """One comparison with the original, on one backend.

    Attributes:
        name: What was compared.
        backend: Of Keras.
        relative: Largest difference over the largest value of the original.
        scale: That value.
        allowed: The most that `relative` may be.
        versions: Of the packages that it depends on.
    """

    name: str
    backend: str
    relative: float
    scale: float
    allowed: float
    versions: str

    @property
    def passed(self) -> bool:
        """Whether it is within what is allowed; NaN is not."""
        return self.relative <= self.allowed


def write_certificate(folder, checks, notes) -> bool:
    """Puts the certificate into the card of a folder.

    Args:
        folder: With config.json, model.safetensors and README.md.
        checks: Of `Check`, at least one.
        notes: Sentences: what was not compared and why, or measured besides.

    Returns:
        Whether all checks passed.
    """
    folder = Path(folder)
    passed = bool(checks) and all(check.passed for check in checks)
    rows = [COLUMNS, ["---"] * len(COLUMNS), *map(_row, checks)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    files = "\n".join(f"- {name}: `{file_hash(folder / name)}`" for name in COVERED)
    parts = [
        f"{PASSED if passed else FAILED}: this model beside the original, by "
        "`python -m weights.verify`.",
        table,
        *notes,
        f"It is for these files alone (SHA-256):\n\n{files}",
    ]
    set_section(folder / "README.md", HEADING, "\n\n".join(parts))
    return passed


def check_certificate(folder):
    """Raises a `ValueError` unless a folder has a certificate that it passed."""
    folder = Path(folder)
    text = section(folder / "README.md", HEADING)
    verify = f"Run: python -m weights.verify {folder}"
    if FAILED in text:
        raise ValueError(f"{folder} failed its comparison with the original. {verify}")
    if PASSED not in text:
        raise ValueError(f"{folder} has no parity certificate in its card. {verify}")
    for name in COVERED:
        if f"{name}: `{file_hash(folder / name)}`" not in text:
            raise ValueError(
                f"{folder / name} has changed since it was compared with the original. "
                f"{verify}"
            )


def _row(check):
    return (
        check.name,
        check.backend,
        f"{check.relative * check.scale:.1e}",
        f"{check.relative:.1e}",
        f"{check.allowed:.0e}",
        "passed" if check.passed else FAILED,
        str(datetime.date.today()),
        check.versions,
    )
