"""Plots of the benchmarks' page, as SVG files.

The same figures give the same bytes. Grounds are transparent and all inks of a middle brightness,
so that one file can be read on a light page and on a dark one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

INK, GRID, LIMIT = "#7e8691", "#7e869140", "#d9772b"
OURS, PEER = "#3f87d9", "#9a8fb8"
SERIES = ("#3f87d9", "#2ba58c", "#9a8fb8", "#c2708f")
STYLE = {
    "svg.hashsalt": "tidegate",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.titlesize": 11.5,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Bar:
    """One figure, or a range of them. limit: what is guarded, drawn as a tick, if anything is."""

    name: str
    value: float
    limit: float | None = None
    ours: bool = True
    until: float | None = None


@dataclass(frozen=True)
class Panel:
    """Bars below each other. base: where bars begin on a logarithmic axis, if not at its end.

    linear: the axis begins at 0.
    """

    title: str
    label: str
    bars: Sequence[Bar]
    base: float | None = None
    linear: bool = False


def panels(file: Path, shown: Sequence[Panel]) -> None:
    """Panels below each other, each as high as its bars need."""
    heights = [len(panel.bars) + 1.6 for panel in shown]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 0.34 * sum(heights) + 0.3), layout="constrained")
        grid = figure.add_gridspec(len(shown), 1, height_ratios=heights)
        for row, panel in enumerate(shown):
            draw(figure.add_subplot(grid[row]), panel)
        save(figure, file)


def draw(axes: Axes, panel: Panel) -> None:
    places = range(len(panel.bars))
    ends = [end for bar in panel.bars for end in (bar.value, bar.until, bar.limit) if end]
    low, high = (0, 1.25 * max(ends)) if panel.linear else (min(ends) / 1.6, 2.2 * max(ends))
    begin = low if panel.base is None else panel.base
    for place, bar in zip(places, panel.bars, strict=True):
        left, right = sorted((begin, bar.value) if bar.until is None else (bar.value, bar.until))
        color = OURS if bar.ours else PEER
        axes.barh(place, right - left, left=left, height=0.62, color=color)
        told = short(bar.value) + ("" if bar.until is None else f" – {short(bar.until)}")
        limit = bar.limit or 0
        # Beside the tick rather than under it.
        edge = limit if right < limit < (1.3 if panel.linear else 3) * right else right
        axes.annotate(
            told, (edge, place), (5, 0), textcoords="offset points", va="center", fontsize=9.5
        )
        if bar.limit is not None:
            axes.plot([bar.limit] * 2, [place - 0.4, place + 0.4], color=LIMIT, linewidth=2.4)
    if panel.base is not None:
        axes.axvline(panel.base, color=INK, linewidth=1.2)
    axes.set_xscale("linear" if panel.linear else "log")
    axes.set_xlim(low, high)
    axes.set_yticks(places, [bar.name for bar in panel.bars])
    axes.invert_yaxis()
    axes.set_title(panel.title, loc="left", color=INK)
    axes.set_xlabel(panel.label)
    dress(axes, axes.xaxis)


def groups(file: Path, label: str, names: Sequence[str], series: dict[str, list[float]]) -> None:
    """Bars side by side for each name, on a logarithmic axis; NaN draws none."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 3.6), layout="constrained")
        axes = figure.add_subplot()
        width = 0.8 / len(series)
        for number, ((name, values), color) in enumerate(zip(series.items(), SERIES, strict=False)):
            places = [
                place + (number - (len(series) - 1) / 2) * width for place in range(len(names))
            ]
            axes.bar(places, values, width=width, color=color, label=name)
        axes.set_yscale("log")
        axes.margins(x=0.01)
        axes.set_xticks(range(len(names)), names, fontsize=9)
        axes.set_ylabel(label)
        figure.legend(loc="outside upper left", ncols=len(series), labelcolor=INK)
        dress(axes, axes.yaxis)
        save(figure, file)


def dress(axes: Axes, scale: mpl.axis.Axis) -> None:
    """Numbers in full along the scale, a light grid, and no box."""
    scale.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    scale.set_minor_formatter(NullFormatter())
    axes.grid(axis=scale.axis_name, color=GRID)
    axes.set_axisbelow(True)
    axes.patch.set_alpha(0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(which="both", length=0)


def short(value: float) -> str:
    """Two digits or three, with k and M for thousands and millions."""
    for unit, factor in (("M", 1e6), ("k", 1e4)):
        if abs(value) >= factor:
            return f"{value / (1e3 if unit == 'k' else factor):.3g} {unit}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def save(figure: Figure, file: Path) -> None:
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
