"""The table of `weights.first_contact`, as text and in Markdown."""

from collections.abc import Sequence
from pathlib import Path

from ..card_sections import write_text
from .results import Result, is_within

NAME = "table.md"
HEAD = ("name", "pinned", "loaded", "equal", "photographs", "top-1 %", "seconds")


def text(results: Sequence[Result]) -> str:
    """Returns a table with a row per result, in aligned columns."""
    rows = [HEAD, *(_row(result, most=1) for result in results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def problems(results: Sequence[Result]) -> list[str]:
    """Returns one line per failed name: what is wrong, and what to do."""
    return [
        f"{result.name}: {result.failure['kind']}: {result.failure['message']}"
        for result in results
        if result.failure
    ]


def summary(results: Sequence[Result], beyond: Sequence[str]) -> str:
    """Returns the last line: how many names passed, failed and were not reached.

    Args:
        results: The results of the names that were reached.
        beyond: Names that the budget did not reach.
    """
    failed = [result for result in results if not result.passed]
    kinds = [result.failure["kind"] for result in failed if result.failure]
    counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds)))
    alone = sum(_is_not_compared(result) for result in results if result.passed)
    return (
        f"{len(results) - len(failed)} passed"
        + (f" ({alone} without a comparison)" if alone else "")
        + f", {len(failed)} failed"
        + (f" ({counted})" if counted else "")
        + f", {len(beyond)} not reached."
    )


def _is_not_compared(result: Result) -> bool:
    return all(each["note"] is not None for each in result.comparisons)


def write(out: Path, results: Sequence[Result], beyond: Sequence[str]) -> Path:
    """Writes the table with the five classes of each photograph, and returns its path.

    Args:
        out: The command's `--out`.
        results: The results of the names that were reached.
        beyond: Names that the budget did not reach.
    """
    rows = [HEAD, ["---"] * len(HEAD), *(_row(result, most=5) for result in results)]
    parts = [
        "# First contact with the published files",
        "\n".join(f"| {' | '.join(map(_escaped, row))} |" for row in rows),
        summary(results, beyond),
    ]
    if lines := [*problems(results), *(f"{name}: not reached" for name in beyond)]:
        parts.append("\n".join(f"- {line}" for line in lines))
    path = out / NAME
    write_text(path, "\n\n".join(parts) + "\n")
    return path


def _row(result: Result, most: int) -> tuple[str, ...]:
    photographs = [
        ", ".join(
            label.split(",")[0] + (f" {100 * share:.1f} %" if most > 1 else "")
            for label, share in classes[:most]
        )
        for classes in result.photographs.values()
    ]
    return (
        result.name,
        "yes" if result.pins else "no",
        "yes" if result.loaded else "no",
        _equal(result),
        ("; " if most > 1 else " / ").join(photographs),
        _top1(result),
        f"{result.seconds:.0f}",
    )


def _equal(result: Result) -> str:
    """Returns the error of each comparison, or that it was not made."""
    return "; ".join(
        f"{each['reference']}: {_error(each)}" for each in result.comparisons
    )


def _error(comparison: dict) -> str:
    if comparison["note"] is not None:
        return "not compared"
    return f"{comparison['error']:.0e}" if is_within(comparison) else "DIFFERS"


def _top1(result: Result) -> str:
    """Returns the measured accuracy, the published one in parentheses, and ReaL."""
    if result.top1 is None:
        return "–"
    percent, published = result.top1["percent"], result.top1["published"]
    real = result.top1["real_percent"]
    return (
        f"{percent:.2f}"
        + ("" if published is None else f" ({published:.2f})")
        + ("" if real is None else f", ReaL {real:.2f}")
    )


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")
