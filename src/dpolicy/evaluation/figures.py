"""Figures 3 and 4 of the paper with our results and the published values, as PNG and SVG.

Solid bars are within the policy of the scenario; hatched bars exceed a budget. Dashed lines are the
budgets. The bar of a utility that was reached by exceeding a budget is lighter. A red line across a
bar is the published value; a triangle is the result of another strategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dpolicy.errors import OperationRejected
from dpolicy.evaluation.comparison import MILLION, UTILITY, ComparedValue
from dpolicy.evaluation.experiment import SYSTEMS

#: Measure of S1: total spending of a user. As in the paper, only `standard` has a budget line.
TOTAL = "total"

#: Measures of a scenario; the largest scope comes first and is drawn behind the others.
STACKS = {"S1": (TOTAL, "standard"), "S2": ("weak", "strong", "member"), "S3": ("month",)}
ATTRIBUTE = "attribute"

LABELS = {
    "standard": "standard",
    TOTAL: "with black-box",
    "member": "members",
    "strong": "and strong ties",
    "weak": "and weak ties",
    "month": "user-month",
    ATTRIBUTE: "attribute",
}
TITLES = {
    "S1": "S1: context\nall users",
    "S2": "S2: scope\ncostliest category of high risk",
    "S3": "S3: privacy unit\ncostliest user-month",
}
DARK, MIDDLE, LIGHT = "#1f4e79", "#6fa8d6", "#c3ddf0"
SHADES = {1: (DARK,), 2: (LIGHT, DARK), 3: (LIGHT, MIDDLE, DARK)}
WITHIN_COLOR, EXCEEDED_COLOR, PUBLISHED_COLOR = "#8a8a8a", "#d9d9d9", "#c0392b"

#: Horizontal gap between the bars of two systems.
SYSTEM_GAP = 1.2
FORMATS = ("png", "svg")


def draw(bars: Sequence[ComparedValue], directory: Path) -> list[Path]:
    """Write the figures for which there are values; return their paths.

    Raise `OperationRejected` if matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise OperationRejected("figures need matplotlib: pip install 'dpolicy[plot]'")
    present = [name for name in STACKS if any(bar.scenario == name for bar in bars)]
    written = _draw_figure(bars, [(name, STACKS[name]) for name in present], directory / "figure-3")
    if "S2" in present:
        written += _draw_figure(bars, [("S2", (ATTRIBUTE,))], directory / "figure-4")
    return written


def _draw_figure(
    bars: Sequence[ComparedValue], panels: Sequence[tuple[str, tuple[str, ...]]], stem: Path
) -> list[Path]:
    plot = _load_pyplot()
    width = 1.2 + 4.4 * len(panels)
    figure, axes = plot.subplots(
        2, len(panels), figsize=(width, 6.2), squeeze=False, layout="constrained"
    )
    for column, (name, measures) in enumerate(panels):
        panel_bars = [bar for bar in bars if bar.scenario == name]
        _draw_spending(axes[0][column], panel_bars, measures)
        title = (
            TITLES[name]
            if measures != (ATTRIBUTE,)
            else "S2: scope\ncostliest attribute of high risk"
        )
        axes[0][column].set_title(title, fontsize=11)
        _draw_utility(axes[1][column], panel_bars, measures)
    axes[0][0].set_ylabel("privacy cost ε (accounting value)")
    axes[1][0].set_ylabel("utility, millions")
    _draw_legend(figure, bars, wide=len(panels) > 1)
    paths = [stem.with_suffix(f".{kind}") for kind in FORMATS]
    for path in paths:
        figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
    plot.close(figure)
    return paths


def _load_pyplot() -> Any:
    """Load matplotlib for files: no window, and the same bytes for the same figure."""
    library = import_module("matplotlib")
    library.use("Agg")
    library.rcParams.update({"svg.hashsalt": "dpolicy", "hatch.linewidth": 0.8, "font.size": 9})
    return import_module("matplotlib.pyplot")


def _draw_spending(axis: Any, bars: Sequence[ComparedValue], measures: tuple[str, ...]) -> None:
    totals, first = _totals(bars), _main_strategy(bars)
    for shade, measure in zip(SHADES[len(measures)], measures, strict=True):
        for bar in (b for b in bars if b.measure == measure and b.strategy == first):
            x = _x_position(bar, totals)
            hatch = "////" if bar.exceeds and measure != TOTAL else None
            axis.bar(x, bar.value, 0.8, color=shade, hatch=hatch, edgecolor="white", linewidth=0.4)
            if bar.budget is not None and measure != TOTAL:
                axis.hlines(
                    bar.budget, x - 0.5, x + 0.5, colors="black", linestyles=(0, (2, 1.5)), lw=1
                )
            _draw_published(axis, x, bar.paper, 1)
        axis.bar(0, 0, color=shade, label=LABELS[measure])
    _draw_range(
        axis, [b for b in bars if b.measure == measures[-1] and b.strategy == first], totals, 1
    )
    axis.legend(fontsize=8, loc="upper left", frameon=False)
    _label_axis(axis, totals)


def _draw_utility(axis: Any, bars: Sequence[ComparedValue], measures: tuple[str, ...]) -> None:
    totals, first = _totals(bars), _main_strategy(bars)
    exceeded = {(b.system, b.total) for b in bars if b.measure in measures and b.exceeds}
    for bar in (b for b in bars if b.measure == UTILITY):
        x = _x_position(bar, totals)
        if bar.strategy != first:
            axis.plot(x, bar.value / MILLION, marker="^", color="black", markersize=4, lw=0)
            continue
        color = EXCEEDED_COLOR if (bar.system, bar.total) in exceeded else WITHIN_COLOR
        axis.bar(x, bar.value / MILLION, 0.8, color=color)
        _draw_published(axis, x, bar.paper, MILLION)
    _draw_range(
        axis, [b for b in bars if b.measure == UTILITY and b.strategy == first], totals, MILLION
    )
    axis.set_ylim(0, 10)
    _label_axis(axis, totals)


def _draw_range(
    axis: Any, bars: Sequence[ComparedValue], totals: Sequence[int], unit: float
) -> None:
    """Draw the range over several seeds."""
    for bar in bars:
        if len(bar.values) > 1:
            low, high = min(bar.values) / unit, max(bar.values) / unit
            axis.vlines(_x_position(bar, totals), low, high, colors="black", lw=1)


def _draw_published(axis: Any, x: float, value: float | None, unit: float) -> None:
    if value is not None:
        axis.hlines(value / unit, x - 0.46, x + 0.46, colors=PUBLISHED_COLOR, lw=1.8)


def _totals(bars: Sequence[ComparedValue]) -> list[int]:
    return sorted({bar.total for bar in bars})


def _main_strategy(bars: Sequence[ComparedValue]) -> str:
    return bars[0].strategy


def _x_position(bar: ComparedValue, totals: Sequence[int]) -> float:
    return totals.index(bar.total) + SYSTEMS.index(bar.system) * (len(totals) + SYSTEM_GAP)


def _label_axis(axis: Any, totals: Sequence[int]) -> None:
    """Label the bars with the total budgets and, below them, the systems."""
    step = len(totals) + SYSTEM_GAP
    positions = [n + s * step for s in range(len(SYSTEMS)) for n in range(len(totals))]
    axis.set_xticks(positions, [str(total) for total in totals] * len(SYSTEMS))
    for number, system in enumerate(SYSTEMS):
        middle = (len(totals) - 1) / 2 + number * step
        label = f"$\\epsilon_t$\n{system}"
        axis.annotate(
            label,
            (middle, 0),
            (0, -16),
            ("data", "axes fraction"),
            "offset points",
            ha="center",
            va="top",
        )
    axis.tick_params(axis="x", length=0)
    axis.spines[["top", "right"]].set_visible(False)


def _draw_legend(figure: Any, bars: Sequence[ComparedValue], *, wide: bool) -> None:
    patches, lines = import_module("matplotlib.patches"), import_module("matplotlib.lines")
    strategies = list(dict.fromkeys(bar.strategy for bar in bars))
    handles = [
        lines.Line2D([], [], color=PUBLISHED_COLOR, lw=1.8, label="published"),
        lines.Line2D([], [], color="black", lw=1, ls=(0, (2, 1.5)), label="budget of the policy"),
        patches.Patch(facecolor=DARK, hatch="////", edgecolor="white", label="above its budget"),
        patches.Patch(color=WITHIN_COLOR, label=f"utility with `{strategies[0]}`"),
        patches.Patch(color=EXCEEDED_COLOR, label="reached above a budget"),
    ]
    handles += [
        lines.Line2D([], [], color="black", marker="^", lw=0, markersize=4, label=f"with `{other}`")
        for other in strategies[1:]
    ]
    columns = len(handles) if wide else 2
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
