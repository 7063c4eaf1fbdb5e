"""A value and a template → a page, or the same value as JSON for programs.

Templates escape whatever they show. A page may load nothing but our own style and pictures, run no
script, and be framed by nobody: so it needs no network and trusts no text that came from outside.
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

from dpolicy.service.auth.principal import Role
from dpolicy.service.dashboard.pages.charts import bar, block_chart, burndown_chart, sparkline
from dpolicy.service.dashboard.views.rule_status_row import NOTION_SYMBOLS, RuleKey

STATIC = Path(__file__).parent / "static"

#: What a page may do: show itself, its style and its pictures, and send forms back to us.
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
    """What a page shows."""

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""


def render_page(
    request: Request, template: str, value: PageContent | None, status: int = 200, **more: Any
) -> Response:
    """A value as a page, or as JSON if that is asked for."""
    if wants_json(request):
        plain = {} if value is None else value.as_json()
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
        return Response(text.encode("utf-8"), status, media_type="application/json")
    principal = getattr(request.state, "principal", None)
    html = _TEMPLATES.get_template(template).render(
        it=value,
        principal=principal,
        roles={str(role) for role in principal.roles} if principal else set(),
        local=request.state.access.local,
        path=request.url.path,
        json_address=_json_address(request),
        today=datetime.now(UTC).date(),
        **more,
    )
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    return Response(html.encode("utf-8"), status, headers, "text/html; charset=utf-8")


def wants_json(request: Request) -> bool:
    """Whether a program asks: it says so in the address or accepts JSON and no page."""
    if request.query_params.get("format") == "json":
        return True
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def has_role(request: Request, role: Role) -> bool:
    """Whether whoever asks has a role."""
    return role in request.state.principal.roles


def _json_address(request: Request) -> str:
    asked = [(key, value) for key, value in request.query_params.multi_items() if key != "format"]
    return f"{request.url.path}?{urlencode([*asked, ('format', 'json')])}"


def rule_url(rule: RuleKey) -> str:
    """Where the page of a rule is."""
    asked = {"name": rule.name, "unit": rule.unit}
    if rule.each_release:
        asked["section"] = "each-release"
    return f"/rule?{urlencode(asked)}"


def _rule_said(rule: Any) -> str:
    """The same for a rule that a reason or a difference names."""
    name = rule.rule if hasattr(rule, "rule") else rule.name
    return rule_url(RuleKey(name, rule.unit, rule.each_release))


def _with_query(query: Mapping[str, str], **more: str | int | None) -> str:
    """A query with some of it changed; None takes a key out."""
    merged = {**query, **more}
    return "?" + urlencode({key: value for key, value in merged.items() if value not in (None, "")})


def format_percent(share: float | None) -> str:
    """A share for people; one decimal where that matters."""
    if share is None:
        return "–"
    if share == float("inf"):
        return "∞"
    return f"{100 * share:.1f} %" if 0.9 <= share < 1.1 else f"{100 * share:.0f} %"


def format_amount(value: float | None) -> str:
    """A loss for people."""
    return "∞" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def format_amounts(displayed_loss: Mapping[str, Any] | str) -> str:
    """A budget or a loss with its notions; δ only where it is all there is to say."""
    if isinstance(displayed_loss, str):
        return displayed_loss
    told = [(key, value) for key, value in displayed_loss.items() if key != "delta"]
    return ", ".join(f"{NOTION_SYMBOLS.get(key, key)} {_one(value)}" for key, value in told)


def _one(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{order}: {number:g}" for order, number in value.items())
    return format_amount(value)


def format_location(at: Mapping[str, str | int]) -> str:
    """A place for people."""
    return " · ".join(str(value) for value in at.values())


def format_selection(selected: Any) -> str:
    """What a mechanism reads: values, a range, or several of them."""
    match selected:
        case {"from": first, "to": last}:
            return f"{first} to {last}" if first != last else str(first)
        case Mapping():
            return ", ".join(
                f"{name} {format_selection(value)}" for name, value in selected.items()
            )
        case [*several]:
            joint = "; or " if several and isinstance(several[0], Mapping) else ", "
            return joint.join(format_selection(one) for one in several)
    return str(selected)


def format_day(when: date | str | None) -> str:
    """A day for people."""
    if when is None:
        return ""
    told = datetime.fromisoformat(when).date() if isinstance(when, str) else when
    return f"{told.day} {told:%b %Y}"


def format_time(when: str) -> str:
    """A time for people, in UTC."""
    told = datetime.fromisoformat(when)
    return f"{told.day} {told:%b %Y, %H:%M}"


def usage_level(share: float | None, holds: bool = True) -> str:
    """How worrying a share is, in one word."""
    if not holds or (share is not None and share > 1):
        return "broken"
    if share is None or share < 0.7:
        return "calm"
    return "warm" if share < 0.9 else "tight"


def _environment() -> Environment:
    templates = Environment(
        loader=PackageLoader("dpolicy.service.dashboard.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(
        percent=format_percent,
        amount=format_amount,
        amounts=format_amounts,
        place=format_location,
        selection=format_selection,
        day=format_day,
        moment=format_time,
    )
    templates.filters["segment"] = lambda text: quote(text, safe="")
    templates.globals.update(
        bar=lambda *told: Markup(bar(*told)),
        sparkline=lambda told: Markup(sparkline(told)),
        burndown_chart=lambda *told: Markup(burndown_chart(*told)),
        block_chart=lambda told: Markup(block_chart(told)),
        level=usage_level,
        rule_address=rule_url,
        rule_said=_rule_said,
        with_query=_with_query,
    )
    return templates


_TEMPLATES = _environment()
