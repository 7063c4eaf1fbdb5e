"""Numbers → small drawings: SVG made here, so that pages need no script and print as they look.

Every drawing stands beside the numbers it shows or carries them as its label. Colours come from the
style sheet by class, and nothing is told by colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from html import escape

from dpolicy.service.dashboard.views.burndown import Burndown, MonthlySpending
from dpolicy.service.dashboard.views.time_blocks import BlockUsage

#: The width and height of the burn-down, and its margins: left, top, right, bottom.
_WIDTH, _HEIGHT = 1080.0, 280.0
_LEFT, _TOP, _RIGHT, _BOTTOM = 44.0, 18.0, 20.0, 34.0
#: The months that a projection shows at most.
_AHEAD = 12

Dot = tuple[float, float]
AxisScale = Callable[[float], float]


def bar(share: float | None, kind: str) -> str:
    """How full a budget is; the number stands beside it."""
    filled = 0.0 if share is None else max(0.0, min(1.0, share)) * 100
    mark = '<rect class="over" x="96" width="4" height="8"/>' if kind == "broken" else ""
    return (
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="8" rx="1.5"/>'
        f'<rect class="fill {kind}" width="{filled:.2f}" height="8" rx="1.5"/>{mark}</svg>'
    )


def sparkline(burndown: Burndown | None) -> str:
    """The share that was used, month by month, up to the whole budget."""
    months = [month for month in (burndown.months if burndown else ()) if month.share is not None]
    if len(months) < 2:
        return ""
    wide, high = 96.0, 26.0
    shares = [min(1.0, month.share or 0.0) for month in months]
    dots = [
        (n * wide / (len(shares) - 1), 2 + (high - 4) * (1 - share))
        for n, share in enumerate(shares)
    ]
    first, last = months[0], months[-1]
    label = (
        f"{first.month:%B %Y} {100 * (first.share or 0):.0f} per cent, "
        f"{last.month:%B %Y} {100 * (last.share or 0):.0f} per cent"
    )
    return (
        f'<svg class="spark" viewBox="0 0 {wide:g} {high:g}" role="img" '
        f'aria-label="{escape(label, quote=True)}"><path class="limit" d="M0 2H{wide:g}"/>'
        f'<path class="area" d="{_path(dots)}V{high:g}H0Z"/><path class="line" d="{_path(dots)}"/>'
        "</svg>"
    )


def burndown_chart(burndown: Burndown, today: date) -> str:
    """What was spent up to each month as a share of the budget, and how it would go on."""
    months = [month for month in burndown.months if month.share is not None]
    if len(months) < 2:
        return ""
    ahead = _months_ahead(burndown.exhausted, today)
    count = len(months) + ahead
    top = max(1.0, *(month.share or 0.0 for month in months)) * 1.08

    def x(position: float) -> float:
        return _LEFT + position * (_WIDTH - _LEFT - _RIGHT) / max(1, count - 1)

    def y(share: float) -> float:
        return _TOP + (1 - share / top) * (_HEIGHT - _TOP - _BOTTOM)

    dots = [(x(n), y(month.share or 0.0)) for n, month in enumerate(months)]
    parts = [*_grid(y), _area(dots, y(0)), f'<path class="line" d="{_path(dots)}"/>']
    parts += [_dot(spot, month) for spot, month in zip(dots, months, strict=True)]
    if burndown.exhausted is not None and ahead:
        reached = (x(len(months) - 1 + _months_between(today, burndown.exhausted)), y(1.0))
        parts.append(f'<path class="ahead" d="{_path([dots[-1], reached])}"/>')
        parts.append(f'<circle class="gone" cx="{reached[0]:.1f}" cy="{reached[1]:.1f}" r="5"/>')
    parts += _months_axis(months, ahead, x)
    label = _label(months, burndown.exhausted)
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" '
        f'aria-label="{escape(label, quote=True)}">{"".join(parts)}</svg>'
    )


def block_chart(blocks: Sequence[BlockUsage]) -> str:
    """How full each block of time is: a bar each, under the line of the whole budget."""
    top = max(1.0, *(block.share for block in blocks)) * 1.08
    step = (_WIDTH - _LEFT - _RIGHT) / len(blocks)

    def y(share: float) -> float:
        return _TOP + (1 - share / top) * (_HEIGHT - _TOP - _BOTTOM)

    parts = _grid(y)
    every = max(1, len(blocks) // 12)
    for number, block in enumerate(blocks):
        x, wide = _LEFT + number * step + 0.18 * step, 0.64 * step
        shape = f'x="{x:.1f}" y="{y(block.share):.1f}" width="{wide:.1f}" rx="3"'
        told = escape(f"{block.name}: {100 * block.share:.1f} %")
        high = y(0) - y(block.share)
        kind = "broken" if block.share > 1 else "tight" if block.share >= 0.9 else "calm"
        parts.append(
            f'<rect class="fill {kind}" {shape} height="{high:.1f}"><title>{told}</title></rect>'
        )
        if number % every == 0:
            parts.append(
                f'<text class="tick" x="{x + wide / 2:.1f}" y="{_HEIGHT - 10:g}" '
                f'text-anchor="middle">{escape(block.name)}</text>'
            )
    fullest = max(blocks, key=lambda block: block.share)
    label = f"The fullest of {len(blocks)} is {fullest.name}: {100 * fullest.share:.0f} per cent."
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" '
        f'aria-label="{escape(label, quote=True)}">{"".join(parts)}</svg>'
    )


def _months_ahead(exhausted: date | None, today: date) -> int:
    if exhausted is None:
        return 0
    months = _months_between(today, exhausted)
    return 0 if months > _AHEAD else max(1, round(months + 0.5))


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
    lines.append(
        f'<text class="tick strong" x="{_LEFT + 6:g}" y="{y(1.0) - 5:.1f}">the whole budget</text>'
    )
    return lines


def _area(dots: Sequence[Dot], ground: float) -> str:
    end = f"V{ground:.1f}H{dots[0][0]:.1f}Z"
    return f'<path class="area" d="{_path(dots)}{end}"/>'


def _dot(spot: Dot, month: MonthlySpending) -> str:
    told = f"{month.month:%B %Y}: {100 * (month.share or 0):.1f} %, {month.releases} releases"
    return (
        f'<circle class="dot" cx="{spot[0]:.1f}" cy="{spot[1]:.1f}" r="3">'
        f"<title>{escape(told)}</title></circle>"
    )


def _months_axis(months: Sequence[MonthlySpending], ahead: int, x: AxisScale) -> list[str]:
    every = [month.month for month in months]
    while len(every) < len(months) + ahead:
        last = every[-1]
        every.append(date(last.year + last.month // 12, last.month % 12 + 1, 1))
    step = max(1, len(every) // 8)
    return [
        f'<text class="tick" x="{x(n):.1f}" y="{_HEIGHT - 10:g}" text-anchor="middle">'
        f"{month:%b}{f' {month:%Y}' if n == 0 or month.month == 1 else ''}</text>"
        for n, month in enumerate(every)
        if n % step == 0
    ]


def _label(months: Sequence[MonthlySpending], exhausted: date | None) -> str:
    first, last = months[0], months[-1]
    told = (
        f"From {first.month:%B %Y} to {last.month:%B %Y} the share of the budget that is used "
        f"went from {100 * (first.share or 0):.0f} to {100 * (last.share or 0):.0f} per cent."
    )
    if exhausted is None:
        return told
    return f"{told} At the same pace it is used up about {exhausted.day} {exhausted:%B %Y}."


def _path(dots: Sequence[Dot]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in dots)
