"""Bars → figures 3 and 4 of the paper, ours with the published values marked, as PNG and SVG.

Solid bars keep the scenario's policy, hatched ones spend more than it allows; dashes are its
budgets; a utility that was reached by spending more is lighter. A red line across a bar is what the
paper reports, and a triangle what another strategy reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dpolicy.errors import OperationRejected
from dpolicy.evaluation.comparison import MILLION, UTILITY, Bar
from dpolicy.evaluation.experiment import SYSTEMS

#: The whole of a bar of S1: everything a user spent. As in the paper, only `standard` has its line.
TOTAL = "total"

#: Measures of a scenario, the largest scope first: it is drawn behind the others.
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
KEPT, BROKEN, PAPER = "#8a8a8a", "#d9d9d9", "#c0392b"

#: Bars stand next to each other; systems are this far apart.
GAP = 1.2
FORMATS = ("png", "svg")


def draw(bars: Sequence[Bar], directory: Path) -> list[Path]:
    """Write the figures that the bars are enough for. Raises `Misused` without matplotlib."""
    if find_spec("matplotlib") is None:
        raise OperationRejected("figures need matplotlib: pip install 'dpolicy[plot]'")
    there = [name for name in STACKS if any(bar.scenario == name for bar in bars)]
    written = _figure(bars, [(name, STACKS[name]) for name in there], directory / "figure-3")
    if "S2" in there:
        written += _figure(bars, [("S2", (ATTRIBUTE,))], directory / "figure-4")
    return written


def _figure(
    bars: Sequence[Bar], panels: Sequence[tuple[str, tuple[str, ...]]], stem: Path
) -> list[Path]:
    plot = _matplotlib()
    width = 1.2 + 4.4 * len(panels)
    figure, axes = plot.subplots(
        2, len(panels), figsize=(width, 6.2), squeeze=False, layout="constrained"
    )
    for column, (name, measures) in enumerate(panels):
        its = [bar for bar in bars if bar.scenario == name]
        _privacy(axes[0][column], its, measures)
        title = (
            TITLES[name]
            if measures != (ATTRIBUTE,)
            else "S2: scope\ncostliest attribute of high risk"
        )
        axes[0][column].set_title(title, fontsize=11)
        _utility(axes[1][column], its, measures)
    axes[0][0].set_ylabel("privacy cost ε (accounting value)")
    axes[1][0].set_ylabel("utility, millions")
    _legend(figure, bars, wide=len(panels) > 1)
    paths = [stem.with_suffix(f".{kind}") for kind in FORMATS]
    for path in paths:
        figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
    plot.close(figure)
    return paths


def _matplotlib() -> Any:
    """The drawing library, set up for files: no window, the same bytes for the same figure."""
    library = import_module("matplotlib")
    library.use("Agg")
    library.rcParams.update({"svg.hashsalt": "dpolicy", "hatch.linewidth": 0.8, "font.size": 9})
    return import_module("matplotlib.pyplot")


def _privacy(axis: Any, bars: Sequence[Bar], measures: tuple[str, ...]) -> None:
    totals, first = _totals(bars), _first(bars)
    for shade, measure in zip(SHADES[len(measures)], measures, strict=True):
        for bar in (b for b in bars if b.measure == measure and b.strategy == first):
            x = _x(bar, totals)
            hatch = "////" if bar.exceeds and measure != TOTAL else None
            axis.bar(x, bar.value, 0.8, color=shade, hatch=hatch, edgecolor="white", linewidth=0.4)
            if bar.budget is not None and measure != TOTAL:
                axis.hlines(
                    bar.budget, x - 0.5, x + 0.5, colors="black", linestyles=(0, (2, 1.5)), lw=1
                )
            _published(axis, x, bar.paper, 1)
        axis.bar(0, 0, color=shade, label=LABELS[measure])
    _spread(axis, [b for b in bars if b.measure == measures[-1] and b.strategy == first], totals, 1)
    axis.legend(fontsize=8, loc="upper left", frameon=False)
    _ticks(axis, totals)


def _utility(axis: Any, bars: Sequence[Bar], measures: tuple[str, ...]) -> None:
    totals, first = _totals(bars), _first(bars)
    broken = {(b.system, b.total) for b in bars if b.measure in measures and b.exceeds}
    for bar in (b for b in bars if b.measure == UTILITY):
        x = _x(bar, totals)
        if bar.strategy != first:
            axis.plot(x, bar.value / MILLION, marker="^", color="black", markersize=4, lw=0)
            continue
        color = BROKEN if (bar.system, bar.total) in broken else KEPT
        axis.bar(x, bar.value / MILLION, 0.8, color=color)
        _published(axis, x, bar.paper, MILLION)
    _spread(
        axis, [b for b in bars if b.measure == UTILITY and b.strategy == first], totals, MILLION
    )
    axis.set_ylim(0, 10)
    _ticks(axis, totals)


def _spread(axis: Any, bars: Sequence[Bar], totals: Sequence[int], unit: float) -> None:
    """The ends of several seeds."""
    for bar in bars:
        if len(bar.values) > 1:
            ends = min(bar.values) / unit, max(bar.values) / unit
            axis.vlines(_x(bar, totals), *ends, colors="black", lw=1)


def _published(axis: Any, x: float, value: float | None, unit: float) -> None:
    if value is not None:
        axis.hlines(value / unit, x - 0.46, x + 0.46, colors=PAPER, lw=1.8)


def _totals(bars: Sequence[Bar]) -> list[int]:
    return sorted({bar.total for bar in bars})


def _first(bars: Sequence[Bar]) -> str:
    return bars[0].strategy


def _x(bar: Bar, totals: Sequence[int]) -> float:
    return totals.index(bar.total) + SYSTEMS.index(bar.system) * (len(totals) + GAP)


def _ticks(axis: Any, totals: Sequence[int]) -> None:
    """Total budgets below the bars, and below them the systems."""
    step = len(totals) + GAP
    places = [n + s * step for s in range(len(SYSTEMS)) for n in range(len(totals))]
    axis.set_xticks(places, [str(total) for total in totals] * len(SYSTEMS))
    for number, system in enumerate(SYSTEMS):
        middle = (len(totals) - 1) / 2 + number * step
        shown = f"$\\epsilon_t$\n{system}"
        axis.annotate(
            shown,
            (middle, 0),
            (0, -16),
            ("data", "axes fraction"),
            "offset points",
            ha="center",
            va="top",
        )
    axis.tick_params(axis="x", length=0)
    axis.spines[["top", "right"]].set_visible(False)


def _legend(figure: Any, bars: Sequence[Bar], *, wide: bool) -> None:
    patches, lines = import_module("matplotlib.patches"), import_module("matplotlib.lines")
    strategies = list(dict.fromkeys(bar.strategy for bar in bars))
    handles = [
        lines.Line2D([], [], color=PAPER, lw=1.8, label="published"),
        lines.Line2D([], [], color="black", lw=1, ls=(0, (2, 1.5)), label="budget of the policy"),
        patches.Patch(facecolor=DARK, hatch="////", edgecolor="white", label="above its budget"),
        patches.Patch(color=KEPT, label=f"utility with `{strategies[0]}`"),
        patches.Patch(color=BROKEN, label="reached above a budget"),
    ]
    handles += [
        lines.Line2D([], [], color="black", marker="^", lw=0, markersize=4, label=f"with `{other}`")
        for other in strategies[1:]
    ]
    columns = len(handles) if wide else 2
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
