"""Rendering of a page: HTML from a template, or JSON from the same value.

Templates escape all values. A page loads only the dashboard's own style sheet and images, runs no
script and cannot be framed, so it needs no network and text from outside cannot run in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from dpolicy.privacy.number_text import (
    DIGITS,
    format_down,
    format_share,
    format_up,
    format_up_within,
)
from dpolicy.releases.decision import DisplayedLoss, Reason
from dpolicy.releases.texts.amount_text import loss_amounts
from dpolicy.releases.texts.denial_text import flatten_parameters
from dpolicy.releases.texts.stated_delta import delta_help, delta_numbers, reason_delta_text
from dpolicy.service.auth.principal import Role
from dpolicy.service.dashboard.pages.charts import (
    bar,
    block_chart,
    burndown_chart,
    has_projection,
    sparkline,
    usage_level,
)
from dpolicy.service.dashboard.views.questions.risk_sentences import (
    assumption_sentence,
    belief_sentence,
    detection_sentence,
)
from dpolicy.service.dashboard.views.rule_status_row import NOTION_SYMBOLS, RuleKey

STATIC = Path(__file__).parent / "static"

#: Pages load styles and images and send forms only from and to this server.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "img-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)


class PageContent(Protocol):
    """Value that a page renders."""

    def as_json(self) -> dict[str, Any]:
        """Return the JSON form."""


def render_page(
    request: Request, template: str, value: PageContent | None, status: int = 200, **extra: Any
) -> Response:
    """Render a value as HTML, or as JSON if the request asks for it; `extra` is for HTML only."""
    if wants_json(request):
        content = {} if value is None else value.as_json()
        text = json.dumps(content, ensure_ascii=False, allow_nan=False)
        return Response(text.encode("utf-8"), status, media_type="application/json")
    principal = getattr(request.state, "principal", None)
    html = _TEMPLATES.get_template(template).render(
        page=value,
        principal=principal,
        roles={str(role) for role in principal.roles} if principal else set(),
        local=request.state.access.local,
        path=request.url.path,
        json_url=_json_url(request),
        today=datetime.now(UTC).date(),
        **extra,
    )
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    return Response(html.encode("utf-8"), status, headers, "text/html; charset=utf-8")


def wants_json(request: Request) -> bool:
    """Return whether the query has `format=json`, or `Accept` has JSON and not HTML."""
    if request.query_params.get("format") == "json":
        return True
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def has_role(request: Request, role: Role) -> bool:
    """Return whether the caller has a role."""
    return role in request.state.principal.roles


def _json_url(request: Request) -> str:
    query = [(key, value) for key, value in request.query_params.multi_items() if key != "format"]
    return f"{request.url.path}?{urlencode([*query, ('format', 'json')])}"


def rule_url(rule: RuleKey) -> str:
    """Return the URL of the page of a rule."""
    query = {"name": rule.name, "unit": rule.unit}
    if rule.each_release:
        query["section"] = "each-release"
    return f"/rule?{urlencode(query)}"


def _reason_url(reason: Reason) -> str:
    """Return the URL of the rule of a reason."""
    return rule_url(RuleKey(reason.rule, reason.unit, reason.each_release))


def _with_query(query: Mapping[str, str], **changes: str | int | None) -> str:
    """Return a query string with some parameters changed; None removes a parameter."""
    merged = {**query, **changes}
    return "?" + urlencode({key: value for key, value in merged.items() if value not in (None, "")})


def format_amount(value: float | None, limit: float | None = None) -> str:
    """Format one number of a loss, rounded up, but not above a limit that it is within.

    A loss of None is infinite, and a limit of None is none.
    """
    if value is None:
        return "∞"
    return format_up(value) if limit is None else format_up_within(value, limit)


def format_remainder(value: float | None) -> str:
    """Format what is left of a budget, rounded down; None is infinite."""
    return "∞" if value is None else format_down(value, DIGITS)


def format_amounts(
    displayed_loss: DisplayedLoss, budget: Mapping[str, Any] | str = "unlimited"
) -> str:
    """Format a loss with the symbols of its notions, without δ; `budget` has their limits."""
    return ", ".join(
        f"{NOTION_SYMBOLS.get(notion, notion)} {amount}"
        for notion, amount in loss_amounts(displayed_loss, budget).items()
    )


def format_limits(budget: Mapping[str, Any] | str) -> str:
    """Format a budget with the symbol of its notion, rounded down and without δ."""
    if isinstance(budget, str):
        return budget
    if "renyi" in budget:
        orders = budget["renyi"].items()
        return "renyi " + ", ".join(f"{order}: {format_down(limit)}" for order, limit in orders)
    return ", ".join(
        f"{NOTION_SYMBOLS.get(notion, notion)} {format_down(limit)}"
        for notion, limit in budget.items()
        if notion != "delta"
    )


def format_location(location: Mapping[str, str | int]) -> str:
    """Format a location; the empty location gives an empty text."""
    return " · ".join(str(value) for value in location.values())


def format_location_range(first: Mapping[str, str | int], last: Mapping[str, str | int]) -> str:
    """Format a box of locations; each dimension is one value or a range."""
    ranges = {**first, **last}
    for name in first.keys() & last.keys():
        if first[name] != last[name]:
            ranges[name] = f"{first[name]} to {last[name]}"
    return format_location(ranges)


def format_selection(selected: Any) -> str:
    """Format the values, ranges or alternatives that a mechanism selects."""
    match selected:
        case {"from": first, "to": last}:
            return f"{first} to {last}" if first != last else str(first)
        case Mapping():
            return ", ".join(
                f"{name} {format_selection(value)}" for name, value in selected.items()
            )
        case [*items]:
            separator = "; or " if items and isinstance(items[0], Mapping) else ", "
            return separator.join(format_selection(item) for item in items)
    return str(selected)


def format_day(day: date | str | None) -> str:
    """Format a day, or the day of a timestamp."""
    if day is None:
        return ""
    parsed = datetime.fromisoformat(day).date() if isinstance(day, str) else day
    return f"{parsed.day} {parsed:%b %Y}"


def format_time(timestamp: str) -> str:
    """Format a timestamp to the minute, in its own time zone; the ledger uses UTC."""
    parsed = datetime.fromisoformat(timestamp)
    return f"{parsed.day} {parsed:%b %Y, %H:%M}"


def _environment() -> Environment:
    templates = Environment(
        loader=PackageLoader("dpolicy.service.dashboard.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        percent=format_share,
        flat=flatten_parameters,
        amount=format_amount,
        amounts=format_amounts,
        limit=format_down,
        limits=format_limits,
        remainder=format_remainder,
        stated_delta=format_up,
        location=format_location,
        selection=format_selection,
        day=format_day,
        time=format_time,
    )
    templates.filters["segment"] = lambda text: quote(text, safe="")
    templates.globals.update(
        bar=lambda share, level: Markup(bar(share, level)),
        sparkline=lambda burndown: Markup(sparkline(burndown)),
        burndown_chart=lambda burndown, today: Markup(burndown_chart(burndown, today)),
        block_chart=lambda blocks: Markup(block_chart(blocks)),
        has_projection=has_projection,
        usage_level=usage_level,
        location_range=format_location_range,
        delta_numbers=delta_numbers,
        delta_text=reason_delta_text,
        delta_help=delta_help,
        rule_url=rule_url,
        reason_url=_reason_url,
        with_query=_with_query,
        belief_sentence=belief_sentence,
        detection_sentence=detection_sentence,
        assumption_sentence=assumption_sentence,
    )
    return templates


_TEMPLATES = _environment()
