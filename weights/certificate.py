"""The certificate of a converted folder: what was compared, and how it went."""

import datetime
from dataclasses import dataclass, field
from pathlib import Path

from kerasvit.hub.hashes import file_hash

from .sections import section, set_section

HEADING = "Parity certificate"
PASSED, FAILED, INCOMPLETE = "**PASSED**", "**FAILED**", "**INCOMPLETE**"
ALLOWED = 1e-5  # of the largest logit; float32 computed in another order is 1e-6
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


@dataclass
class Report:
    """What was found of a folder beside its original.

    Attributes:
        original: Which file that was, in words.
        checks: Of `Check`.
        missing: Sentences: what should have been compared, and why it was not.
        notes: Sentences: what there was not to compare, or was measured besides.
    """

    original: str
    checks: list[Check] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """PASSED, where all comparisons were made and passed."""
        if not all(check.passed for check in self.checks):
            return FAILED
        return INCOMPLETE if self.missing or not self.checks else PASSED


def write_certificate(folder, report: Report):
    """Puts the certificate into the card of a folder.

    Args:
        folder: With config.json, model.safetensors and README.md.
        report: What it is to say.
    """
    folder = Path(folder)
    rows = [COLUMNS, ["---"] * len(COLUMNS), *map(_row, report.checks)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    files = "\n".join(f"- {name}: `{file_hash(folder / name)}`" for name in COVERED)
    parts = [
        f"{report.verdict}: this model beside the original, by "
        f"`python -m weights.verify`. The original: {report.original}.",
        table,
        *report.missing,
        *report.notes,
        f"It is for these files alone (SHA-256):\n\n{files}",
    ]
    set_section(folder / "README.md", HEADING, "\n\n".join(parts))


def check_certificate(folder):
    """Raises a `ValueError` unless a folder has a certificate that it passed."""
    folder = Path(folder)
    text = section(folder / "README.md", HEADING)
    verify = f"Run: python -m weights.verify {folder}"
    if FAILED in text:
        raise ValueError(f"{folder} failed its comparison with the original. {verify}")
    if INCOMPLETE in text:
        raise ValueError(
            f"{folder} was not compared with all that it should be: its card says why. "
            f"{verify}"
        )
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
