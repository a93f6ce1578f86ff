"""Draws figures of matplotlib as SVG that takes the colours of the page.

Text and axes have the colour of the page's text, and models the colours `--model-0` and
`--model-1` of its style sheet, so that a figure fits the light and the dark page.
"""

import dataclasses
import html
import io
import re
from collections.abc import Callable, Iterable, Sequence

import matplotlib
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Stand-ins in the file of matplotlib, which `svg` replaces.
INK = "#010203"
MODELS = ("#0072b2", "#d55e00")  # Okabe and Ito 2008, "Color Universal Design"
STYLES = (("-", "o"), ("--", "s"))
MAP = "cividis"
WIDTH, HEIGHT = 4.6, 3.3  # inches: readable on a telephone
SETTINGS = {
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.15,
    "grid.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure of the page.

    Attributes:
        svg: `<svg>` element.
        caption: What it shows.
    """

    svg: str
    caption: str


def picture(caption: str, draw: Callable, width=WIDTH, height=HEIGHT) -> Picture:
    """Returns a picture.

    Args:
        caption: What it shows.
        draw: Function that draws into a `matplotlib.figure.Figure`.
        width, height: Size in inches.
    """
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": caption}):
        figure = Figure((width, height), layout="constrained")
        draw(figure)
        return Picture(_svg(figure, caption), caption)


def _svg(figure, caption):
    file = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(file, format="svg", transparent=True, metadata=nothing, dpi=100)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.S)
    size = figure.get_size_inches()[0] * 96
    text = re.sub(
        r'<svg ([^>]*?)width="[^"]*"([^>]*?)height="[^"]*"|'
        r'<svg ([^>]*?)height="[^"]*"([^>]*?)width="[^"]*"',
        rf'<svg role="img" aria-label="{html.escape(caption)}" '
        rf'style="max-width:{size:.0f}px" \1\2\3\4',
        text,
        count=1,
    )
    text = text.replace(INK, "currentColor")
    for i, color in enumerate(MODELS):
        text = text.replace(color, f"var(--model-{i})")
    text = re.sub(r"(\d+\.\d{3})\d+", r"\1", text)  # of a point
    return re.sub(r"\n\s*", "\n", text)


def lines(
    caption: str,
    series: dict[str, list[tuple]],
    xlabel: str,
    ylabel: str,
    *,
    log: bool = False,
    zero: bool = False,
    points: bool = False,
    ends: Sequence[str] = (),
    levels: dict[str, float] | None = None,
) -> Picture:
    """Draws lines of one or two models in one pair of axes.

    Args:
        caption: What the picture shows.
        series: {name of the model: [(x, y) of each line]}; "" for both models.
        xlabel, ylabel: Quantities with their units.
        log: Whether the vertical axis is logarithmic.
        zero: Whether the vertical axis begins at 0.
        points: Whether the points are not joined; those of two models lie side by side.
        ends: Names of the lines of each model, which get darker.
        levels: {name of the model: a number to compare with, a dotted line}.
    """

    def draw(figure):
        axis = figure.subplots()
        for i, (name, pairs) in enumerate(series.items()):
            color = MODELS[i] if name else INK
            for j, (x, y) in enumerate(pairs):
                style = _style(i, len(x), points)
                if ends:
                    style["alpha"] = 0.4 + 0.6 * j / max(len(pairs) - 1, 1)
                if points and len(series) > 1:
                    x = np.asarray(x) + 0.24 * (i - 0.5)
                names = [f"{name}, {end}" for end in ends] or [name]
                label = names[j] if j < len(names) else None
                axis.plot(x, y, label=label, color=color, **style)
            if levels:
                axis.axhline(levels[name], color=color, linestyle=":", linewidth=1.3)
        axis.set(xlabel=xlabel, ylabel=ylabel)
        every = np.concatenate([x for pairs in series.values() for x, _ in pairs])
        if (every % 1 == 0).all():
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        if log:
            axis.set_yscale("log")
        elif zero:
            axis.set_ylim(bottom=0)
        if len(series) > 1 or ends:
            axis.legend()

    return picture(caption, draw)


def in_columns(groups: Iterable[Sequence]) -> list[tuple]:
    """Returns points (x, y) for `lines`, with those of the first group at x = 1."""
    return [([i] * len(each), each) for i, each in enumerate(groups, 1)]


def _style(model, count, points):
    line, marker = STYLES[model]
    style = {"linestyle": "" if points else line}
    return style | ({"marker": marker} if points or count <= 30 else {})


def by_depth(caption: str, values: dict[str, Sequence], ylabel: str, **options):
    """Draws numbers by depth, of layers 1, 2, …, or on [0, 1] if models differ.

    Args:
        caption, ylabel, options: As for `lines`.
        values: {name of the model: numbers from the first layer to the last}.
    """
    same = len({len(each) for each in values.values()}) == 1
    xlabel = "block" if same else "depth, from the first block (0) to the last (1)"
    series = {
        name: [(depths(len(each), same), np.asarray(each))]
        for name, each in values.items()
    }
    return lines(caption, series, xlabel, ylabel, **options)


def depths(count: int, same: bool = True) -> np.ndarray:
    """Returns positions of layers along the axis of the depth."""
    return np.arange(1, count + 1) if same else np.linspace(0, 1, count)


def maps(
    caption: str,
    rows: dict[str, list],
    label: str,
    *,
    titles: Sequence[str] = (),
    extent: tuple | None = None,
    axes: tuple[str, str] = ("pixels", "pixels"),
    span: tuple[float, float] | None = None,
    norm: Normalize | None = None,
) -> Picture:
    """Draws maps on one colour scale: a row per name.

    Args:
        caption: What the picture shows.
        rows: {label of the row: arrays (h, w), or (h, w, 3) with values in [0, 1]}.
        label: Quantity of the colour scale with its unit; "": no scale.
        titles: Titles of the columns.
        extent: (left, right, bottom, top) of the maps, in the units of `axes`.
        axes: Labels of the axes.
        span: Ends of the colour scale; None: those of all maps.
        norm: Scale in place of a linear one.
    """
    plain = [each for row in rows.values() for each in row if np.ndim(each) == 2]
    if norm is None and plain:
        low, high = span or (min(map(np.min, plain)), max(map(np.max, plain)))
        norm = Normalize(low, high)
    columns = max(map(len, rows.values()))

    def draw(figure):
        grid = figure.subplots(
            len(rows), columns, squeeze=False, sharex=True, sharey=True
        )
        for cells, (name, row) in zip(grid, rows.items(), strict=True):
            cells[0].set_ylabel(name, fontsize=8)
            for axis, each in zip(cells, row, strict=False):
                axis.grid(False)
                options = {"extent": extent, "interpolation": "nearest"}
                drawn = axis.imshow(each, MAP, norm=norm, **options)
                axis.tick_params(labelsize=7)
                if np.ndim(each) == 2:
                    image = drawn
            for axis in cells[len(row) :]:
                axis.set_axis_off()
        for axis, title in zip(grid[0], titles, strict=False):
            axis.set_title(title, fontsize=8)
        for axis in grid.flat:
            axis.xaxis.set_major_locator(MaxNLocator(3, integer=True))
            axis.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        figure.supxlabel(axes[0], fontsize=9)
        figure.supylabel(axes[1], fontsize=9)
        if label:
            figure.colorbar(image, ax=grid, label=label, shrink=0.9)

    side = (WIDTH - 1.2) / columns
    return picture(caption, draw, height=max(1.9, side * len(rows) + 0.8))
