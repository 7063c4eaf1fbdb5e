"""Handlers of the pages that only read: budgets, rules, releases, the log, the login form.

The server runs these handlers in its thread pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dpolicy.errors import RequestRefused
from dpolicy.ledger.events import Event, from_bytes
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audits.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.spending.spending import Spending
from dpolicy.service.api.budgets import find_spending
from dpolicy.service.auth.redaction import redact_decision
from dpolicy.service.dashboard.pages.rendering import CONTENT_SECURITY_POLICY, render_page
from dpolicy.service.dashboard.views.log_page import (
    MAX_RECORDS_TO_VERIFY,
    build_log_page,
    select_log_records,
)
from dpolicy.service.dashboard.views.overview_page import FILTERS, build_overview_page
from dpolicy.service.dashboard.views.questions.last_release import add_last_release
from dpolicy.service.dashboard.views.questions.spent_page import FIELDS, build_spent_page
from dpolicy.service.dashboard.views.release_pages import (
    EventReader,
    build_release_list_page,
    build_release_page,
    find_releases,
)
from dpolicy.service.dashboard.views.rule_neighbours import neighbourhood_svg
from dpolicy.service.dashboard.views.rule_page import build_rule_page, find_rule
from dpolicy.service.dashboard.views.rule_status_row import RuleKey
from dpolicy.service.http.endpoint import build_api_request


def handle_overview(request: Request) -> Response:
    """Show all budgets, most used first."""
    filters, number = query_values(request, FILTERS), page_number(request)
    overview = decision_point_for(request).read_state(
        lambda state: build_overview_page(state, utc_today(), filters, number)
    )
    if overview is None:
        return render_page(request, "empty.html", None)
    return render_page(request, "overview.html", overview)


def handle_rule(request: Request) -> Response:
    """Show one rule of the active policy."""
    key, owner = _read_rule_key(request), visible_owner(request)
    point = decision_point_for(request)
    page = point.read_state(lambda state: build_rule_page(state, key, utc_today(), owner))
    if page is None:
        raise _rule_not_found(key)
    return render_page(request, "rule.html", add_last_release(point, page, owner))


def handle_rule_diagram(request: Request) -> Response:
    """Return the Hasse diagram of a rule and its neighbours as SVG."""
    policy, key = decision_point_for(request).policy, _read_rule_key(request)
    rule = find_rule(policy, key) if policy else None
    if policy is None or rule is None:
        raise _rule_not_found(key)
    section = policy.each_release if rule.each_release else policy.cumulative
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    svg = neighbourhood_svg(section, rule.number).encode("utf-8")
    return Response(svg, 200, headers, "image/svg+xml")


def handle_spent(request: Request) -> Response:
    """Show a question about spending as a form, and its answer."""
    policy = decision_point_for(request).policy
    if policy is None:
        return render_page(request, "empty.html", None)

    def answer(question: Mapping[str, Any]) -> Spending:
        return find_spending(build_api_request(request, question))

    page = build_spent_page(policy, query_values(request, FIELDS), answer)
    return render_page(request, "spent.html", page)


def handle_release_list(request: Request) -> Response:
    """Show the releases that match a search."""
    decision_point = decision_point_for(request)
    filters, number = query_values(request, ("q", "status")), page_number(request)
    owner = visible_owner(request)
    search_result = decision_point.read_state(
        lambda state: find_releases(state, filters, number, owner)
    )
    page = build_release_list_page(search_result, filters, _event_reader(decision_point))
    return render_page(request, "releases.html", page)


def handle_release(request: Request) -> Response:
    """Show one release with its decision."""
    decision_point, name = decision_point_for(request), request.path_params["release"]
    entry, expires = decision_point.read_entries(
        lambda state: (state.entries.get(name), state.open_reservations.get(name))
    )
    if entry is None:
        raise RequestRefused("not-found", f"there is no release `{name}`")
    reader = _event_reader(decision_point)
    page = build_release_page(name, entry, reader, expires, decision_point.add_advice)
    ensure_visible(request, page.row.by)
    if page.decision is not None:
        redacted = redact_decision(decision_point, page.decision, visible_owner(request))
        page = replace(page, decision=redacted)
    return render_page(request, "release.html", page)


def handle_log(request: Request) -> Response:
    """Show the ledger, newest record first; verify it if the query has `verify`."""
    decision_point = decision_point_for(request)
    head = decision_point.head
    pagination, start = select_log_records(page_number(request), head.sequence)
    audit = None
    if "verify" in request.query_params and head.sequence <= MAX_RECORDS_TO_VERIFY:
        audit = audit_ledger(MemoryStore(list(decision_point.records())))
    records = decision_point.records(start)
    page = build_log_page(records, pagination, head.digest.hex(), audit)
    return render_page(request, "log.html", page)


def handle_login_form(request: Request) -> Response:
    """Show the form in which a person enters a token."""
    next_ = request.query_params.get("next", "/")
    failed = "failed" in request.query_params
    return render_page(request, "login.html", None, next=next_, failed=failed)


def visible_owner(request: Request) -> str | None:
    """Return the caller's name if they may see only their own releases, else None."""
    principal = request.state.principal
    return principal.name if principal.only_analyst and not request.state.access.local else None


def ensure_visible(request: Request, owner: str) -> None:
    """Raise `RequestRefused` if the caller may not see releases of `owner`."""
    if visible_owner(request) not in (None, owner):
        raise RequestRefused("forbidden", "this release belongs to another person")


def decision_point_for(request: Request) -> DecisionPoint:
    """Return the decision point of the application."""
    decision_point: DecisionPoint = request.app.state.point
    return decision_point


def utc_today() -> date:
    """Return the current day in UTC."""
    return datetime.now(UTC).date()


def query_values(request: Request, keys: tuple[str, ...]) -> dict[str, str]:
    """Return the non-empty query parameters among `keys`, without surrounding white space."""
    values = {key: request.query_params.get(key, "").strip() for key in keys}
    return {key: value for key, value in values.items() if value}


def page_number(request: Request) -> int:
    """Return the query parameter `page`; 1 if it is not a number of at most eight digits."""
    text = request.query_params.get("page", "1")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 1


def _read_rule_key(request: Request) -> RuleKey:
    query = request.query_params
    each_release = query.get("section") == "each-release"
    return RuleKey(query.get("name", ""), query.get("unit", ""), each_release)


def _rule_not_found(key: RuleKey) -> RequestRefused:
    message = f"the active policy has no rule `{key.name}` for the unit `{key.unit}`"
    return RequestRefused("not-found", message)


def _event_reader(decision_point: DecisionPoint) -> EventReader:
    def read_event(sequence: int) -> Event:
        return from_bytes(next(iter(decision_point.records(sequence - 1))).payload)

    return read_event
