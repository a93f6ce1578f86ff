"""certificate.json of a converted folder: its origin and the comparison with it.

`weights.convert` writes which file the folder was made from, `weights.verify` how the
comparison with the original ended, and `weights.publish` decides by this file alone.
The card holds the same for people.
"""

import dataclasses
import datetime
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, get_origin, get_type_hints

from kerasvit.checkpoints import CheckpointError, read_json, replace_file
from kerasvit.hub.hashes import file_hash

from .originals import SourceFile
from .sections import set_section

CERTIFICATE = "certificate.json"
FORMAT_VERSION = 1
HEADING = "Parity certificate"
PASSED, FAILED, INCOMPLETE = "PASSED", "FAILED", "INCOMPLETE"
UNVERIFIED = "UNVERIFIED"  # converted and not yet compared
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
        relative: Largest difference over the largest value of the original; NaN where
            it could not be computed.
        scale: That value.
        allowed: The most that `relative` may be.
        versions: {package: version} of the packages that it depends on.
    """

    name: str
    backend: str
    relative: float
    scale: float
    allowed: float
    versions: dict

    @property
    def passed(self) -> bool:
        """Whether it is within what is allowed; NaN is not."""
        return self.relative <= self.allowed


@dataclass
class Certificate:
    """Which file a folder was made from, and how the comparison with it ended.

    Attributes:
        converted_from: `SourceFile` that the folder was made from.
        compared_with: `SourceFile` that it was compared with; None: not compared.
        checks: Of `Check`.
        missing: Sentences: what should have been compared, and why it was not.
        notes: Sentences: what there was not to compare, or was measured besides.
        date: Of the comparison, or of the conversion, as 2026-01-31.
        files: {name: SHA-256} of the files that it is valid for.
    """

    converted_from: SourceFile
    compared_with: SourceFile | None = None
    checks: list[Check] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    date: str = field(default_factory=lambda: str(datetime.date.today()))
    files: dict[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """PASSED, where all comparisons were made and passed."""
        if self.compared_with is None:
            return UNVERIFIED
        if not all(check.passed for check in self.checks):
            return FAILED
        return INCOMPLETE if self.missing or not self.checks else PASSED


def write_certificate(folder: Path, certificate: Certificate) -> None:
    """Writes certificate.json, after the card's section of a comparison.

    Args:
        folder: With config.json, model.safetensors and README.md.
        certificate: Its `files` are filled in.
    """
    certificate.files = {name: file_hash(folder / name) for name in COVERED}
    if certificate.compared_with:
        set_section(folder / "README.md", HEADING, _section(certificate))
    text = json.dumps(_content(certificate), indent=1, allow_nan=False) + "\n"
    replace_file(folder / CERTIFICATE, text.encode())


def read_certificate(folder: Path) -> Certificate:
    """Returns the certificate of a folder, whatever its verdict.

    Raises:
        ValueError: There is none, or it is damaged or of another format.
    """
    path = folder / CERTIFICATE
    anew = (
        f"Run: python -m weights.convert MODEL/TAG --out {folder}, then python -m "
        f"weights.verify {folder}"
    )
    try:
        content = read_json(path)
        if not content:
            raise CheckpointError(f"{folder} has no {CERTIFICATE}.")
        if content.get("format_version") != FORMAT_VERSION:
            raise CheckpointError(
                f"{path} must have format_version {FORMAT_VERSION}. Received: "
                f"{content.get('format_version')!r:.50}."
            )
        return _certificate(path, content)
    except CheckpointError as error:
        raise ValueError(f"{error} {anew}") from error


def check_certificate(folder: Path) -> Certificate:
    """Returns the certificate of a folder that passed.

    Raises:
        ValueError: There is none, or it is damaged, or the folder did not pass, or has
            changed since.
    """
    certificate = read_certificate(folder)
    verify = f"Run: python -m weights.verify {folder}"
    wrong = {
        UNVERIFIED: "has no parity certificate: it was not compared with the original.",
        FAILED: "failed its comparison with the original.",
        INCOMPLETE: "was not compared with all that it should be: "
        f"{' '.join(map(str, certificate.missing))}",
    }
    if certificate.verdict != PASSED:
        raise ValueError(f"{folder} {wrong[certificate.verdict]} {verify}")
    for name in COVERED:
        if certificate.files.get(name) != file_hash(folder / name):
            raise ValueError(
                f"{folder / name} has changed since it was compared with the original. "
                f"{verify}"
            )
    return certificate


def _content(certificate: Certificate) -> dict[str, Any]:
    """Returns the JSON object of a certificate; a number that is not finite is null."""
    content = dataclasses.asdict(certificate)
    for values, check in zip(content["checks"], certificate.checks, strict=True):
        numbers = {k: v for k, v in values.items() if isinstance(v, float)}
        values |= {k: v if math.isfinite(v) else None for k, v in numbers.items()}
        values["passed"] = check.passed
    head = {"format_version": FORMAT_VERSION, "verdict": certificate.verdict}
    return head | content


def _certificate(path: Path, content: dict[str, Any]) -> Certificate:
    """Returns the certificate of a JSON object.

    Raises:
        CheckpointError: It is not the content of one, or contradicts itself.
    """
    try:
        fields = {key: content[key] for key in get_type_hints(Certificate)}
        fields["converted_from"] = _made(SourceFile, fields["converted_from"])
        if fields["compared_with"] is not None:
            fields["compared_with"] = _made(SourceFile, fields["compared_with"])
        fields["checks"] = [_check(values) for values in fields["checks"]]
        certificate = _made(Certificate, fields)
        if _content(certificate) == content:
            return certificate
    except (LookupError, TypeError):  # of a kind that was not written here
        pass
    raise CheckpointError(f"{path} is damaged, or was changed by hand.")


def _check(values: dict[str, Any]) -> Check:
    values = {k: math.nan if v is None else v for k, v in {**values}.items()}
    values.pop("passed")
    return _made(Check, values)


def _made(cls: type, values: dict[str, Any]) -> Any:
    """Returns an object of a dataclass.

    Raises:
        TypeError: A value is not of the field's type, or is missing.
    """
    for name, kind in get_type_hints(cls).items():
        origin = get_origin(kind)  # list of list[str]
        kind = kind if origin in (None, UnionType) else origin
        if not isinstance(values[name], kind):
            raise TypeError(name)
    return cls(**values)


def _section(certificate: Certificate) -> str:
    """Returns the card's section, which people read and nothing else does."""
    rows = [_row(check, certificate.date) for check in certificate.checks]
    table = "\n".join(
        f"| {' | '.join(row)} |" for row in [COLUMNS, ["---"] * len(COLUMNS), *rows]
    )
    files = [f"- {name}: `{digest}`" for name, digest in certificate.files.items()]
    parts = [
        f"**{certificate.verdict}**: this model beside the original, by "
        f"`python -m weights.verify`. The original: {certificate.compared_with}.",
        table,
        *certificate.missing,
        *certificate.notes,
        "It is for these files alone (SHA-256):\n\n" + "\n".join(files),
    ]
    return "\n\n".join(parts)


def _row(check: Check, date: str) -> tuple[str, ...]:
    return (
        check.name,
        check.backend,
        f"{check.relative * check.scale:.1e}",
        f"{check.relative:.1e}",
        f"{check.allowed:.0e}",
        "passed" if check.passed else f"**{FAILED}**",
        date,
        ", ".join(f"{name} {version}" for name, version in check.versions.items()),
    )
