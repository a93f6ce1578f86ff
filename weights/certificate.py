"""Reads and writes certificate.json, the record of a converted folder.

`weights.convert` records the source file, `weights.verify` adds the comparison with the
original, and `weights.publish` reads only this file. The card contains the same as
text.
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

from .card_sections import set_section
from .originals import SourceFile

CERTIFICATE = "certificate.json"
FORMAT_VERSION = 1
HEADING = "Parity certificate"
PASSED, FAILED, INCOMPLETE = "PASSED", "FAILED", "INCOMPLETE"
UNVERIFIED = "UNVERIFIED"  # converted and not yet compared
# Relative to the largest logit. Another order of float32 operations changes 1e-6.
ALLOWED = 1e-5
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
    """A comparison with the original on one backend.

    Attributes:
        name: Name of the comparison.
        backend: Keras backend, or "timm" if timm failed.
        relative: Largest absolute difference divided by `scale`; NaN if it could not be
            computed.
        scale: Largest absolute value of the original.
        allowed: Upper limit of `relative`.
        versions: {package: version} of the packages involved.
    """

    name: str
    backend: str
    relative: float
    scale: float
    allowed: float
    versions: dict

    @property
    def passed(self) -> bool:
        """Whether the difference is within the limit; False for NaN."""
        return self.relative <= self.allowed


@dataclass
class Certificate:
    """The source of a converted folder and the result of the comparison with it.

    Attributes:
        converted_from: The file that was converted.
        compared_with: The file that the folder was compared with; None before the
            comparison.
        checks: The comparisons.
        missing: One sentence per comparison that is required but was not possible.
        notes: Sentences about optional comparisons and other measurements.
        date: Date of the comparison, or of the conversion, such as "2026-01-31".
        files: {name: SHA-256} of the files for which the certificate is valid.
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
        """PASSED if all required comparisons were run and passed."""
        if self.compared_with is None:
            return UNVERIFIED
        if not all(check.passed for check in self.checks):
            return FAILED
        return INCOMPLETE if self.missing or not self.checks else PASSED


def write_certificate(folder: Path, certificate: Certificate) -> None:
    """Writes certificate.json, and the card's section if there was a comparison.

    Args:
        folder: Folder with config.json, model.safetensors and README.md.
        certificate: Certificate to write; its `files` are set here.
    """
    certificate.files = {name: file_hash(folder / name) for name in COVERED}
    if certificate.compared_with:
        set_section(folder / "README.md", HEADING, _section(certificate))
    text = json.dumps(_content(certificate), indent=1, allow_nan=False) + "\n"
    replace_file(folder / CERTIFICATE, text.encode())


def read_certificate(folder: Path) -> Certificate:
    """Returns the certificate of a folder with any verdict.

    Raises:
        ValueError: The certificate is missing, damaged or of another format version.
    """
    path = folder / CERTIFICATE
    advice = (
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
        return _parse(path, content)
    except CheckpointError as error:
        raise ValueError(f"{error} {advice}") from error


def check_certificate(folder: Path) -> Certificate:
    """Returns the certificate of a folder if it passed.

    Raises:
        ValueError: The certificate is missing or damaged, the folder did not pass, or
            its files changed after the comparison.
    """
    certificate = read_certificate(folder)
    verify = f"Run: python -m weights.verify {folder}"
    problems = {
        UNVERIFIED: "has no parity certificate: it was not compared with the original.",
        FAILED: "failed its comparison with the original.",
        INCOMPLETE: "was not compared with all that is required: "
        f"{' '.join(map(str, certificate.missing))}",
    }
    if certificate.verdict != PASSED:
        raise ValueError(f"{folder} {problems[certificate.verdict]} {verify}")
    for name in COVERED:
        if certificate.files.get(name) != file_hash(folder / name):
            raise ValueError(
                f"{folder / name} has changed since it was compared with the original. "
                f"{verify}"
            )
    return certificate


def _content(certificate: Certificate) -> dict[str, Any]:
    """Returns the JSON object of a certificate, with null for non-finite numbers."""
    content = dataclasses.asdict(certificate)
    for values, check in zip(content["checks"], certificate.checks, strict=True):
        numbers = {k: v for k, v in values.items() if isinstance(v, float)}
        values |= {k: v if math.isfinite(v) else None for k, v in numbers.items()}
        values["passed"] = check.passed
    head = {"format_version": FORMAT_VERSION, "verdict": certificate.verdict}
    return head | content


def _parse(path: Path, content: dict[str, Any]) -> Certificate:
    """Returns the certificate that a JSON object describes.

    Raises:
        CheckpointError: The object is no certificate or is inconsistent.
    """
    try:
        fields = {key: content[key] for key in get_type_hints(Certificate)}
        fields["converted_from"] = _from_fields(SourceFile, fields["converted_from"])
        if fields["compared_with"] is not None:
            fields["compared_with"] = _from_fields(SourceFile, fields["compared_with"])
        fields["checks"] = [_parse_check(values) for values in fields["checks"]]
        certificate = _from_fields(Certificate, fields)
        if _content(certificate) == content:
            return certificate
    except (LookupError, TypeError):  # `write_certificate` did not write it
        pass
    raise CheckpointError(f"{path} is damaged, or was changed by hand.")


def _parse_check(values: dict[str, Any]) -> Check:
    values = {k: math.nan if v is None else v for k, v in {**values}.items()}
    values.pop("passed")
    return _from_fields(Check, values)


def _from_fields(cls: type, values: dict[str, Any]) -> Any:
    """Returns an instance of a dataclass.

    Raises:
        LookupError: A value is missing.
        TypeError: A value does not have the type of its field.
    """
    for name, kind in get_type_hints(cls).items():
        origin = get_origin(kind)  # such as list for list[str]
        kind = kind if origin in (None, UnionType) else origin
        if not isinstance(values[name], kind):
            raise TypeError(name)
    return cls(**values)


def _section(certificate: Certificate) -> str:
    """Returns the card's section, a text for readers that no command parses."""
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
