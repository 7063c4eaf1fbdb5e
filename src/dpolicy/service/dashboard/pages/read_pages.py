"""Pages that only read: budgets, a rule, releases, the log. They run in threads of the server."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

from starlette.requests import Request
from starlette.responses import Response

from dpolicy.errors import RequestRefused
from dpolicy.ledger.events import Event, from_bytes
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.audit import audit_ledger
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.service.auth.redaction import redact_decision
from dpolicy.service.dashboard.pages.rendering import CONTENT_SECURITY_POLICY, render_page
from dpolicy.service.dashboard.views.log_page import MAX_RECORDS_TO_VERIFY, log_page, log_span
from dpolicy.service.dashboard.views.overview_page import FILTERS, overview_page
from dpolicy.service.dashboard.views.release_pages import (
    ReadEvent,
    find_releases,
    release_page,
    releases_page,
)
from dpolicy.service.dashboard.views.rule_neighbours import neighbourhood_svg
from dpolicy.service.dashboard.views.rule_page import find_rule, rule_page
from dpolicy.service.dashboard.views.rule_status_row import RuleKey


def overview_route(request: Request) -> Response:
    """Every budget, the tightest first."""
    point, wanted = decision_point_for(request), query_values(request, FILTERS)
    number = page_number(request)
    shown = point.read_state(lambda state: overview_page(state, utc_today(), wanted, number))
    if shown is None:
        return render_page(request, "empty.html", None)
    return render_page(request, "overview.html", shown)


def rule_route(request: Request) -> Response:
    """One rule."""
    wanted = _rule_name(request)
    own = visible_owner(request)
    shown = decision_point_for(request).read_state(
        lambda state: rule_page(state, wanted, utc_today(), own)
    )
    if shown is None:
        raise RequestRefused("not-found", f"the policy in force has no rule {wanted.name}")
    return render_page(request, "rule.html", shown)


def rule_diagram_route(request: Request) -> Response:
    """The place of a rule in the Hasse diagram, as a picture."""
    policy, wanted = decision_point_for(request).policy, _rule_name(request)
    found = find_rule(policy, wanted) if policy else None
    if policy is None or found is None:
        raise RequestRefused("not-found", f"the policy in force has no rule {wanted.name}")
    section = policy.each_release if found.each_release else policy.cumulative
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    drawn = neighbourhood_svg(section, found.number).encode("utf-8")
    return Response(drawn, 200, headers, "image/svg+xml")


def release_list_route(request: Request) -> Response:
    """The releases that somebody looks for."""
    point, wanted = decision_point_for(request), query_values(request, ("q", "status"))
    number = page_number(request)
    own = visible_owner(request)
    found = point.read_state(lambda state: find_releases(state, wanted, number, own))
    return render_page(request, "releases.html", releases_page(found, wanted, _reader(point)))


def release_route(request: Request) -> Response:
    """One release with its decision."""
    point, name = decision_point_for(request), request.path_params["release"]
    found = point.read_state(
        lambda state: (state.entries.get(name), state.open_reservations.get(name))
    )
    entry, expires = found
    if entry is None:
        raise RequestRefused("not-found", f"there is no release {name}")
    shown = release_page(name, entry, _reader(point), expires)
    ensure_visible(request, shown.line.by)
    if shown.decision is not None:
        seen = redact_decision(point, shown.decision, visible_owner(request))
        shown = replace(shown, decision=seen)
    return render_page(request, "release.html", shown)


def log_route(request: Request) -> Response:
    """The ledger, newest first; verified if that is asked for."""
    point = decision_point_for(request)
    head = point.head
    shown, behind = log_span(page_number(request), head.sequence)
    audit = None
    if "verify" in request.query_params and head.sequence <= MAX_RECORDS_TO_VERIFY:
        audit = audit_ledger(MemoryStore(list(point.records())))
    records = point.records(behind)
    return render_page(request, "log.html", log_page(records, shown, head.digest.hex(), audit))


def login_form_route(request: Request) -> Response:
    """The form in which a token is typed."""
    next_ = request.query_params.get("next", "/")
    failed = "failed" in request.query_params
    return render_page(request, "login.html", None, next=next_, failed=failed)


def visible_owner(request: Request) -> str | None:
    """The name of somebody who sees only their own releases; None for all others."""
    principal = request.state.principal
    return principal.name if principal.only_analyst and not request.state.access.local else None


def ensure_visible(request: Request, owner: str) -> None:
    """Raise `Refused` if a release is another person's, for somebody who sees only their own."""
    if visible_owner(request) not in (None, owner):
        raise RequestRefused("forbidden", "this is another person's release")


def decision_point_for(request: Request) -> DecisionPoint:
    """The decision point that is served."""
    point: DecisionPoint = request.app.state.point
    return point


def utc_today() -> date:
    """The day on this machine's clock, in UTC."""
    return datetime.now(UTC).date()


def query_values(request: Request, keys: tuple[str, ...]) -> dict[str, str]:
    """What the address asks for."""
    said = {key: request.query_params.get(key, "").strip() for key in keys}
    return {key: value for key, value in said.items() if value}


def page_number(request: Request) -> int:
    """Which page of a list; the first if the address says something else than a number."""
    said = request.query_params.get("page", "1")
    return int(said) if said.isascii() and said.isdigit() and len(said) < 9 else 1


def _rule_name(request: Request) -> RuleKey:
    said = request.query_params
    each_release = said.get("section") == "each-release"
    return RuleKey(said.get("name", ""), said.get("unit", ""), each_release)


def _reader(point: DecisionPoint) -> ReadEvent:
    def read(sequence: int) -> Event:
        return from_bytes(next(iter(point.records(sequence - 1))).payload)

    return read
