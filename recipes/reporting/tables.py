"""Tables of the page, in HTML and LaTeX."""

import dataclasses
import html
from collections.abc import Sequence

MISSING = "–"
SOURCE = "arXiv 2106.01548 on ImageNet"  # of the rows of a paper


@dataclasses.dataclass(frozen=True)
class Table:
    """A table: a row per model.

    Attributes:
        caption: What it shows.
        head: Headings of the columns.
        rows: Cells: the first is a name, others are numbers, texts or None.
        cited: Rows of a paper, beside them.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence]
    cited: Sequence[Sequence] = ()


def number(value) -> str:
    """Returns a number with four significant digits, or a text as it is."""
    if value is None:
        return MISSING
    if isinstance(value, (str, int)):
        return f"{value:,}" if isinstance(value, int) else value
    if value == float("inf"):
        return "∞"
    if value and not 1e-3 <= abs(value) < 1e6:
        digits, power = f"{value:.3e}".split("e")
        raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{digits} · 10{raised}".replace("-", "−")
    decimals = max(0, 4 - len(str(int(abs(value))))) if abs(value) >= 1 else 4
    return f"{value:,.{decimals}f}".replace("-", "−")


def to_html(table: Table, marks: Sequence[str] = ()) -> str:
    """Returns a `<figure>` with the table, in which numbers are on the right.

    Args:
        table: The table.
        marks: HTML before the names of the first rows.
    """
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in table.head)
    marks = [*marks, *[""] * (len(table.rows) - len(marks))]
    body = "".join(map(_row, table.rows, marks))
    cited = (_row(row, "", ' class="cited"') for row in map(_printed, table.cited))
    caption = table.caption + (f". Grey: {SOURCE}" if table.cited else "")
    return (
        f"<figure><figcaption>{html.escape(caption)}</figcaption>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}{''.join(cited)}</tbody></table></div></figure>"
    )


def _row(row, mark, kind=""):
    name, *cells = (html.escape(number(cell)) for cell in row)
    cells = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr{kind}><th scope="row">{mark}{name}</th>{cells}</tr>'


def _printed(row):
    """Returns the cells as the paper has them, with no digits more or less."""
    return [cell if cell is None else str(cell) for cell in row]


def to_latex(table: Table) -> str:
    """Returns the rows in LaTeX, for a `tabular` with as many columns."""
    cited = [[f"{name}, {SOURCE}", *rest] for name, *rest in map(_printed, table.cited)]
    rows = [table.head, *table.rows, *cited]
    return "\n".join(" & ".join(map(_latex, row)) + r" \\" for row in rows)


def _latex(cell):
    text = number(cell)
    for mark in "%_#&$":
        text = text.replace(mark, rf"\{mark}")
    if "· 10" in text:
        digits, power = text.split(" · 10")
        power = power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
        return rf"${digits} \cdot 10^{{{power}}}$".replace("−", "-")
    for sign, command in SYMBOLS.items():
        text = text.replace(sign, command)
    return text


SYMBOLS = {
    "−": "$-$",
    "∞": r"$\infty$",
    MISSING: "--",
    "‖": r"$\|$",
    "λ": r"$\lambda$",
    "κ": r"$\kappa$",
    "ρ": r"$\rho$",
    "ε": r"$\varepsilon$",
    "±": r"$\pm$",
    "₁": "$_1$",
    "₂": "$_2$",
}
