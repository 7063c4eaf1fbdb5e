"""Charts as SVG, created on the server, so that pages need no script and print as displayed.

Every chart is next to the numbers it shows or has them in its label. Colours come from the style
sheet by class, and no information is given by colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from html import escape
from math import isinf

from dpolicy.privacy.number_text import format_share
from dpolicy.service.dashboard.views.burndown import Burndown, MonthlySpending
from dpolicy.service.dashboard.views.time_blocks import BlockUsage

#: Size of a chart, and its margins: left, top, right, bottom.
_WIDTH, _HEIGHT = 1080.0, 280.0
_LEFT, _TOP, _RIGHT, _BOTTOM = 44.0, 18.0, 20.0, 34.0
#: Largest number of months of a projection; a longer one is not drawn.
_MAX_MONTHS_AHEAD = 12

Position = tuple[float, float]
AxisScale = Callable[[float], float]


def usage_level(share: float | None, holds: bool = True) -> str:
    """Return the CSS class of a used share: low, medium (70 %), tight (90 %) or exceeded."""
    if not holds or (share is not None and share > 1):
        return "exceeded"
    if share is None or share < 0.7:
        return "low"
    return "medium" if share < 0.9 else "tight"


def bar(share: float | None, level: str) -> str:
    """Draw the used share of a budget; `level` is its CSS class."""
    filled = 0.0 if share is None else max(0.0, min(1.0, share)) * 100
    mark = '<rect class="over" x="96" width="4" height="8"/>' if level == "exceeded" else ""
    return (
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="8" rx="1.5"/>'
        f'<rect class="fill {level}" width="{filled:.2f}" height="8" rx="1.5"/>{mark}</svg>'
    )


def sparkline(burndown: Burndown | None) -> str:
    """Draw the used share by month, of ε or of stated δ; empty with fewer than two months."""
    months = burndown.months if burndown else ()
    months = tuple(month for month in months if month.used_share is not None)
    if len(months) < 2:
        return ""
    width, height = 96.0, 26.0
    shares = [min(1.0, month.used_share or 0.0) for month in months]
    dots = [
        (n * width / (len(shares) - 1), 2 + (height - 4) * (1 - share))
        for n, share in enumerate(shares)
    ]
    first, last = months[0], months[-1]
    label = (
        f"{first.month:%B %Y} {format_share(first.used_share)}, "
        f"{last.month:%B %Y} {format_share(last.used_share)}"
    )
    return (
        f'<svg class="spark" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(label, quote=True)}"><path class="limit" d="M0 2H{width:g}"/>'
        f'<path class="area" d="{_path(dots)}V{height:g}H0Z"/>'
        f'<path class="line" d="{_path(dots)}"/></svg>'
    )


def burndown_chart(burndown: Burndown, today: date) -> str:
    """Draw the used share by month and its projection; empty with fewer than two months.

    A second line has the share of stated δ, if a release states one. The projection starts at the
    line that is exhausted first.
    """
    months = [month for month in burndown.months if month.share is not None]
    if len(months) < 2:
        return ""
    ahead = _months_ahead(burndown.exhaustion_date, today)
    count = len(months) + ahead
    shares = [_drawn(month.share) for month in months]
    delta_shares = [_drawn(month.delta_share) for month in months]
    top = max(1.0, *shares, *delta_shares) * 1.08

    def x(position: float) -> float:
        return _LEFT + position * (_WIDTH - _LEFT - _RIGHT) / max(1, count - 1)

    def y(share: float) -> float:
        return _TOP + (1 - share / top) * (_HEIGHT - _TOP - _BOTTOM)

    dots = [(x(n), y(share)) for n, share in enumerate(shares)]
    delta_dots = [(x(n), y(share)) for n, share in enumerate(delta_shares)]
    parts = [*_grid(y), _area(dots, y(0)), f'<path class="line" d="{_path(dots)}"/>']
    if burndown.has_stated_delta:
        parts.append(f'<path class="line delta" d="{_path(delta_dots)}"/>')
        parts.append(_line_label(delta_dots[-1], "δ"))
    parts += [_month_dot(dot, month) for dot, month in zip(dots, months, strict=True)]
    if burndown.exhaustion_date is not None and ahead > 0:
        end = (x(len(months) - 1 + _months_between(today, burndown.exhaustion_date)), y(1.0))
        start = delta_dots[-1] if burndown.exhausted_quantity == "delta" else dots[-1]
        parts.append(f'<path class="ahead" d="{_path([start, end])}"/>')
        parts.append(f'<circle class="exhausted" cx="{end[0]:.1f}" cy="{end[1]:.1f}" r="5"/>')
    parts += _months_axis(months, ahead, x)
    label = _burndown_label(months, burndown)
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" '
        f'aria-label="{escape(label, quote=True)}">{"".join(parts)}</svg>'
    )


def block_chart(blocks: Sequence[BlockUsage]) -> str:
    """Draw one bar per block, with its used share of the budget."""
    top = max(1.0, *(_drawn(block.share) for block in blocks)) * 1.08
    step = (_WIDTH - _LEFT - _RIGHT) / len(blocks)

    def y(share: float) -> float:
        return _TOP + (1 - share / top) * (_HEIGHT - _TOP - _BOTTOM)

    parts = _grid(y)
    blocks_per_tick = max(1, len(blocks) // 12)
    for number, block in enumerate(blocks):
        x, width = _LEFT + number * step + 0.18 * step, 0.64 * step
        parts.append(_block_bar(block, x, width, y))
        if number % blocks_per_tick == 0:
            parts.append(
                f'<text class="tick" x="{x + width / 2:.1f}" y="{_HEIGHT - 10:g}" '
                f'text-anchor="middle">{escape(block.name)}</text>'
            )
    fullest = max(blocks, key=lambda block: block.share)
    label = (
        f"{len(blocks)} blocks; the most used is {fullest.name} with "
        f"{format_share(fullest.share)} of the budget."
    )
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" '
        f'aria-label="{escape(label, quote=True)}">{"".join(parts)}</svg>'
    )


def _block_bar(block: BlockUsage, x: float, width: float, y: AxisScale) -> str:
    share = _drawn(block.share)
    top, height = y(share), y(0) - y(share)
    level = usage_level(block.share)
    title = escape(f"{block.name}: {format_share(block.share)}")
    return (
        f'<rect class="fill {level}" x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" rx="3" '
        f'height="{height:.1f}"><title>{title}</title></rect>'
    )


def has_projection(burndown: Burndown, today: date) -> bool:
    """Return whether the burn-down chart has a projection."""
    return _months_ahead(burndown.exhaustion_date, today) > 0


def _months_ahead(exhaustion_date: date | None, today: date) -> int:
    """Return the number of months that the projection adds to the chart; 0 without one.

    A rule that is already exceeded has no projection.
    """
    if exhaustion_date is None or exhaustion_date <= today:
        return 0
    months = _months_between(today, exhaustion_date)
    return 0 if months > _MAX_MONTHS_AHEAD else max(1, round(months + 0.5))


def _months_between(first: date, last: date) -> float:
    return (last - first).days / 30.44


def _grid(y: AxisScale) -> list[str]:
    lines = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        kind = "limit" if share == 1 else "grid"
        height = y(share)
        lines.append(f'<path class="{kind}" d="M{_LEFT:g} {height:.1f}H{_WIDTH - _RIGHT:g}"/>')
        lines.append(
            f'<text class="tick" x="{_LEFT - 8:g}" y="{height + 4:.1f}" text-anchor="end">'
            f"{100 * share:.0f} %</text>"
        )
    lines.append(f'<text class="tick strong" x="{_LEFT + 6:g}" y="{y(1.0) - 5:.1f}">budget</text>')
    return lines


def _area(dots: Sequence[Position], baseline: float) -> str:
    end = f"V{baseline:.1f}H{dots[0][0]:.1f}Z"
    return f'<path class="area" d="{_path(dots)}{end}"/>'


def _month_dot(dot: Position, month: MonthlySpending) -> str:
    title = f"{month.month:%B %Y}: {format_share(month.share or 0)}, {month.releases} releases"
    return (
        f'<circle class="dot" cx="{dot[0]:.1f}" cy="{dot[1]:.1f}" r="3">'
        f"<title>{escape(title)}</title></circle>"
    )


def _months_axis(months: Sequence[MonthlySpending], ahead: int, x: AxisScale) -> list[str]:
    dates = [month.month for month in months]
    while len(dates) < len(months) + ahead:
        last = dates[-1]
        dates.append(date(last.year + last.month // 12, last.month % 12 + 1, 1))
    step = max(1, len(dates) // 8)
    return [
        f'<text class="tick" x="{x(n):.1f}" y="{_HEIGHT - 10:g}" text-anchor="middle">'
        f"{month:%b}{f' {month:%Y}' if n == 0 or month.month == 1 else ''}</text>"
        for n, month in enumerate(dates)
        if n % step == 0
    ]


def _drawn(share: float | None) -> float:
    """Return a share as drawn: an infinite share is twice the budget."""
    return 0.0 if share is None else 2.0 if isinf(share) else share


def _line_label(end: Position, text: str) -> str:
    """Return the name of a line, above its last point."""
    return (
        f'<text class="tick strong" x="{end[0] - 4:.1f}" y="{end[1] - 8:.1f}" '
        f'text-anchor="end">{escape(text)}</text>'
    )


def _burndown_label(months: Sequence[MonthlySpending], burndown: Burndown) -> str:
    first, last, exhaustion_date = months[0], months[-1], burndown.exhaustion_date
    label = (
        f"Used share of the budget: {format_share(first.share)} in {first.month:%B %Y}, "
        f"{format_share(last.share)} in {last.month:%B %Y}."
    )
    if burndown.has_stated_delta:
        label += f" Stated δ: {format_share(last.delta_share)} of their part in {last.month:%B %Y}."
    if exhaustion_date is None:
        return label
    return f"{label} Estimated to be exhausted on {exhaustion_date.day} {exhaustion_date:%B %Y}."


def _path(dots: Sequence[Position]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in dots)
