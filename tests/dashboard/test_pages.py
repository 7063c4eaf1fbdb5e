"""Tests of the pages over HTTP: JSON form, no foreign content, escaping, roles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest
from tests.dashboard.conftest import NOW, Fetch, send_request
from tests.pdp.builders import GLOBAL, ZIP, body, mechanism, policy

from dpolicy.demo.demo_server import PAGES, serve_in_thread
from dpolicy.demo.sample_ledger import candidate_text, policy_text, round_text
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp import request_evaluation
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.privacy.number_text import format_share
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.service.app import create_app
from dpolicy.service.auth.access_rules import AccessRules, AccessToken, hash_token, local_access
from dpolicy.service.auth.principal import Principal, Role
from dpolicy.service.dashboard.pages.charts import burndown_chart, has_projection
from dpolicy.service.dashboard.pages.page_routes import PAGES as TABLE
from dpolicy.service.dashboard.pages.page_routes import PageRoute
from dpolicy.service.dashboard.pages.rendering import (
    format_amounts,
    format_limits,
    format_location_range,
    format_remainder,
)
from dpolicy.service.dashboard.pagination import PER_PAGE
from dpolicy.service.dashboard.views import approvals_page
from dpolicy.service.dashboard.views.burndown import Burndown, MonthlySpending

PATHS = [path.removesuffix("?verify=1") for path in PAGES if not path.startswith("/static")]
HTML = [path for path in PATHS if ".svg" not in path]


class PageParser(HTMLParser):
    """Parser that collects the tags and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("path", HTML)
def test_pages_load_no_foreign_content_and_run_no_script(fetch: Fetch, path: str) -> None:
    answer = fetch(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    rules = answer.headers["content-security-policy"].split("; ")
    assert "default-src 'none'" in rules and not any("script" in rule for rule in rules)
    assert not any("unsafe" in rule for rule in rules)
    for tag, attributes in PageParser(answer.text).tags:
        assert tag not in {"script", "iframe", "object", "embed", "style", "base"}
        assert not any(name == "style" or name.startswith("on") for name in attributes)
        for name in ("src", "href", "action"):
            assert re.match(r"(/(?!/)|\?|#|$)", attributes.get(name) or ""), attributes


def test_the_style_sheet_loads_nothing(fetch: Fetch) -> None:
    text = fetch("/static/style.css").text
    assert "url(" not in text and "@import" not in text
    assert "prefers-color-scheme: dark" in text and ":focus-visible" in text


@pytest.mark.parametrize("path", [path for path in HTML if path != "/login"])
def test_every_page_has_a_json_form(fetch: Fetch, path: str) -> None:
    url = f"{path}{'&' if '?' in path else '?'}format=json"
    by_query, by_header = fetch(url), fetch(path, accept="application/json")
    assert by_query.headers["content-type"] == "application/json"
    assert by_query.json == by_header.json and by_query.json
    assert "text/html" in fetch(path, accept="text/html,application/json").headers["content-type"]


def test_a_page_and_its_json_form_have_the_same_values(fetch: Fetch) -> None:
    payload = fetch("/", accept="application/json").json
    text = " ".join("".join(PageParser(fetch("/").text).texts).split())
    for scope in payload["scopes"]:
        assert scope["scope"] in text
        for rule in scope["rules"]:
            assert format_share(rule["share"]) in text
    assert payload["rules"]["kept"] == 39 and "39 of 71 rules" in text


def test_a_denied_release_has_reasons_and_counter_offers(fetch: Fetch) -> None:
    release = fetch("/releases/home-zone-heat-map", accept="application/json").json
    assert release["status"] == "denied"
    exceeded = [r["rule"] for r in release["decision"]["reasons"] if not r["holds"]]
    assert "attribute[home-zone] × standard" in exceeded
    page = fetch("/releases/home-zone-heat-map").text
    factor = next(o["factor"] for o in release["decision"]["would-fit"] if "factor" in o)
    assert f"factor={factor}" in page and "attribute=home-zone" in page


def test_counter_offers_have_concrete_values(fetch: Fetch) -> None:
    release = fetch("/releases/home-zone-heat-map", accept="application/json").json
    offer = next(o for o in release["decision"]["would-fit"] if "factor" in o)
    ((name, values),) = offer["mechanisms"].items()
    ((key, value),) = values.items()
    assert f"<code>{name}</code> {key} {value}" in fetch("/releases/home-zone-heat-map").text
    body = {**release["body"], "release": "home-zone-again"}
    answer = fetch("/check", [("text", json.dumps(body))])
    assert f"<code>{name}</code> {key} " in answer.text


def test_a_counter_offer_can_be_tried(fetch: Fetch) -> None:
    release = fetch("/releases/home-zone-heat-map", accept="application/json").json
    factor = next(o["factor"] for o in release["decision"]["would-fit"] if "factor" in o)
    for offer, expected in ((f"factor={factor}", "allow"), ("factor=1.01", "deny")):
        form = fetch(f"/check?release=home-zone-heat-map&{offer}")
        text = re.search(r"<textarea[^>]*>(.*?)</textarea>", form.text, re.DOTALL)
        assert text is not None
        fields = [("text", text[1].replace("&#39;", "'"))]
        answer = fetch("/check", fields, accept="application/json")
        assert answer.json["decision"]["decision"] == expected
    before = fetch("/log", accept="application/json").json["total"]
    assert fetch("/log", accept="application/json").json["total"] == before


@pytest.mark.parametrize("factor", ["abc", "1/0", "0", "-1", "1e401", "1" * 61, "", "[1]", "nan"])
def test_an_invalid_factor_is_refused(fetch: Fetch, factor: str) -> None:
    """A factor is checked before it is computed: a power of ten with a million digits is slow."""
    answer = fetch(f"/check?release=home-zone-heat-map&factor={factor}")
    assert answer.status == 400 and "factor" in answer.text


@pytest.mark.parametrize("factor", ["1e400", "1e-400", "1.5"])
def test_a_factor_within_the_limits_is_accepted(fetch: Fetch, factor: str) -> None:
    assert fetch(f"/check?release=home-zone-heat-map&factor={factor}").status == 200


def test_invalid_texts_are_reported_with_their_position(fetch: Fetch) -> None:
    for path, text in (("/check", "release: x\nmechanisms: 7\n"), ("/rounds", "- {release: [}")):
        answer = fetch(path, [("text", text), ("strategy", "efficient")])
        assert answer.status == 200 and 'class="diagnostic"' in answer.text
    text = "dpolicy: 1\npolicies: [{kind: x}]"
    answer = fetch("/policy", [("file", "policy.yaml"), ("text", text)])
    assert answer.status == 200 and "error P" in answer.text
    assert "Preview of your changes" in answer.text and "Activate" not in answer.text


def test_a_round_lists_selected_and_other_candidates(fetch: Fetch) -> None:
    fields = [("text", round_text(NOW.date())), ("strategy", "efficient")]
    result = fetch("/rounds", fields, accept="application/json").json["round"]
    feasible = {candidate["feasible-alone"] for candidate in result["not-selected"]}
    assert result["selected"] and feasible == {True, False}
    wrong = fetch("/rounds", [("text", "[]"), ("strategy", "no such")])
    assert wrong.status == 200 and "unknown strategy" in wrong.text
    line = "- {release: r%d, mechanisms: [{mechanism: {kind: gaussian, sigma: 9}}]}\n"
    many = "".join(line % number for number in range(201))
    assert "at most 200 candidates" in fetch("/rounds", [("text", many)]).text


def test_a_preview_groups_many_changed_rules(fetch: Fetch) -> None:
    looser = candidate_text().replace("delta: 1e-", "delta: 2e-")
    answer = fetch("/policy", [("file", "policy.yaml"), ("text", looser)])
    assert '<th scope="col" class="number">Count</th>' in answer.text
    assert "groups of changed rules" not in answer.text
    few = fetch("/policy", [("file", "policy.yaml"), ("text", candidate_text())])
    assert '<th scope="col" class="number">Count</th>' not in few.text


def test_a_policy_needs_a_reason_and_every_conflict_accepted(
    fetch_own: Fetch,
) -> None:
    text = [("file", "policy.yaml"), ("text", candidate_text())]
    conflict = ("accept", "attribute[home-zone] × standard")
    for fields in (text, [*text, conflict], [*text, ("because", "tighter")]):
        answer = fetch_own("/policy/apply", fields)
        assert "The policy was not activated" in answer.text
    answer = fetch_own("/policy/apply", [*text, conflict, ("because", "tighter")])
    assert "is active since record" in answer.text
    assert "home-zone: {epsilon: 2.5}" in fetch_own("/policy").text
    total = fetch_own("/log", accept="application/json").json["total"]
    assert f"All {total} records verified" in fetch_own("/log?verify=1").text
    first = fetch_own("/", accept="application/json").json["scopes"][0]["rules"][0]
    assert (first["rule"], first["holds"]) == ("attribute[home-zone] × standard", False)


def test_a_pending_proposal_can_be_approved(fetch_own: Fetch) -> None:
    (proposal,) = fetch_own("/approvals", accept="application/json").json["pending"]
    assert proposal["current-decision"]["decision"] == "allow"
    answer = fetch_own(
        f"/approvals/{proposal['number']}", [("answer", "approve"), ("because", "fine")]
    )
    assert "is stored in record" in answer.text and "No open proposals" in answer.text
    release = fetch_own("/releases/student-travel-index", accept="application/json").json
    assert release["status"] == "allowed"
    repeated = fetch_own(f"/approvals/{proposal['number']}", [("answer", "approve")])
    assert "is already approved" in repeated.text


def test_only_proposals_on_the_page_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[str] = []

    def evaluate(state: LedgerState, release: Release) -> Decision:
        evaluated.append(release.id)
        return request_evaluation.evaluate_release(state, release)

    monkeypatch.setattr(approvals_page, "evaluate_release", evaluate)
    point = DecisionPoint(MemoryStore())
    point.apply(policy(GLOBAL))
    for n in range(PER_PAGE + 2):
        point.propose(body(f"r{n}", mechanism((), epsilon=1)), by="ana")
    first = approvals_page.build_approvals_page(point)
    assert len(first.pending) == PER_PAGE and evaluated == [f"r{n}" for n in range(PER_PAGE)]
    with serve_in_thread(create_app(point, local_access), 0) as (url, _):
        page = send_request(f"{url}/approvals", None, {"Accept": "text/html"}).text
        assert 'href="/approvals?page=2"' in page and "Page 1 of 2" in page
        second = send_request(f"{url}/approvals?page=2&format=json", None, {}).json
    assert [proposal["about"] for proposal in second["pending"]] == [
        f"r{PER_PAGE}",
        f"r{PER_PAGE + 1}",
    ]
    assert (second["page"], second["pages"], second["total"]) == (2, 2, PER_PAGE + 2)


def test_an_analyst_does_not_see_other_spenders_on_the_approvals_page() -> None:
    point = DecisionPoint(MemoryStore())
    point.apply(policy(GLOBAL))
    for by in ("ana", "ben"):
        point.submit({**body(f"of-{by}", mechanism((), epsilon="0.5")), "by": by}, by=by)
    point.propose({**body("more", mechanism((), epsilon=5)), "by": "ana"}, by="ana")
    for owner, names in ((None, {"of-ana", "of-ben"}), ("ana", {"of-ana"})):
        (pending,) = approvals_page.build_approvals_page(point, visible_owner=owner).pending
        assert pending.decision is not None
        assert set(pending.decision.reasons[0].spenders) == names


def test_a_cross_origin_form_is_refused(fetch: Fetch) -> None:
    text = [("file", "policy.yaml"), ("text", policy_text()), ("because", "x")]
    answer = fetch("/policy/apply", text, Origin="http://evil.example")
    assert answer.status == 403


@pytest.mark.parametrize(
    "path",
    ["/rule?name=no&unit=rider", "/rule.svg?name=no&unit=no", "/releases/no", "/check?release=no"],
)
def test_unknown_rules_and_releases(fetch: Fetch, path: str) -> None:
    answer = fetch(path)
    assert answer.status == 404 and "Request failed" in answer.text
    assert fetch(path, accept="application/json").json["code"] == "not-found"


def test_per_release_and_implied_rules_have_pages(fetch: Fetch) -> None:
    per_release = fetch("/rule?name=release-cap&unit=rider&section=each-release")
    assert per_release.status == 200 and "Per-release rule" in per_release.text
    diagram = fetch("/rule.svg?name=release-cap&unit=rider&section=each-release")
    assert diagram.headers["content-type"].startswith("image/svg+xml")
    implied = fetch("/rule?name=category%5Btravel%2C+weak%5D+%C3%97+any&unit=rider")
    assert implied.status == 200 and "is implied and not checked separately" in implied.text


def test_a_denial_links_to_the_try_page() -> None:
    team = "  - {name: t, kind: custom, when: 'labels.team == \"ads\"', unit: user,"
    team += " budget: {epsilon: 9}}\n"
    point = DecisionPoint(MemoryStore())
    point.apply(policy(GLOBAL, team))
    assert not point.submit(body("label", mechanism((), epsilon="0.5"))).allowed
    stated = {**mechanism((), epsilon="0.1", delta="5e-8"), "labels": {"team": "maps"}}
    assert not point.submit(body("delta", stated)).allowed
    with serve_in_thread(create_app(point, local_access), 0) as (url, _):
        for name in ("label", "delta"):
            text = send_request(f"{url}/releases/{name}", None, {"Accept": "text/html"}).text
            assert "neither more noise" not in text and f"/check?release={name}" in text
            assert ("Rules that would be exceeded" in text) == (name == "delta")
            path = f"{url}/check?release={name}"
            assert send_request(path, None, {"Accept": "text/html"}).status == 200


@pytest.mark.parametrize("query", ["page=0", "page=99999999999", "page=x", "page=-1", "q=%00%ff"])
def test_odd_queries(fetch: Fetch, query: str) -> None:
    for path in ("/", "/releases", "/log"):
        assert fetch(f"{path}?{query}").status == 200


NASTY = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


def test_user_text_is_escaped() -> None:
    point = DecisionPoint(MemoryStore())
    point.apply(policy(GLOBAL), by=NASTY, because=NASTY)
    point.import_past({**body("a", mechanism((), epsilon=9)), "by": "ana"}, NASTY, by=NASTY)
    point.propose_policy(policy(ZIP % "{epsilon: 20}"), (), by=NASTY, because=NASTY)
    with serve_in_thread(create_app(point, local_access), 0) as (url, _):
        for path in ("/", "/releases", "/releases/a", "/log", "/approvals", f"/?q={NASTY[2:10]}"):
            text = send_request(f"{url}{path}", None, {"Accept": "text/html"}).text
            assert "<script>" not in text and "onerror=alert(1)>" not in text.replace("&gt;", "")
        fields = [("file", NASTY), ("text", NASTY), ("strategy", "efficient")]
        for path in ("/policy", "/check", "/rounds"):
            text = send_request(f"{url}{path}", fields, {"Accept": "text/html"}).text
            assert "<script>" not in text and "alert(1)" in text


def test_pages_display_the_own_date_and_author_of_an_imported_release() -> None:
    point = DecisionPoint(MemoryStore())
    point.apply(policy(GLOBAL))
    past = {**body("old", mechanism((), epsilon=1)), "by": "epi"}
    point.import_past(past, by="otto", released="2019-02-28")
    with serve_in_thread(create_app(point, local_access), 0) as (url, _):
        for path in ("/releases", "/releases/old", "/log"):
            text = send_request(f"{url}{path}", None, {"Accept": "text/html"}).text
            assert "happened" in text and "2019-02-28" in text
        text = send_request(f"{url}/releases/old", None, {"Accept": "text/html"}).text
        assert "release by <strong>epi</strong>" in text


def test_a_ledger_without_a_policy() -> None:
    with serve_in_thread(create_app(DecisionPoint(MemoryStore()), local_access), 0) as (url, _):
        paths = ("/", "/releases", "/policy", "/approvals", "/log?verify=1", "/check", "/rounds")
        for path in paths:
            assert send_request(f"{url}{path}", None, {"Accept": "text/html"}).status == 200
        fields = [("file", "policy.yaml"), ("text", policy_text()), ("because", "first")]
        assert "is active since record 1" in send_request(f"{url}/policy/apply", fields, {}).text


ROLES = {str(role): frozenset({role}) for role in Role}


@pytest.fixture(scope="module")
def people() -> Iterator[str]:
    """Serve a dashboard for four people with one role each; the token of each is the role."""
    names = {name: Principal(name, roles) for name, roles in ROLES.items()}
    tokens = {
        hash_token(name): AccessToken(name, datetime(9999, 1, 1, tzinfo=UTC)) for name in names
    }
    access = AccessRules(people=names, tokens=tokens)
    point = DecisionPoint(MemoryStore())
    point.apply(policy(GLOBAL))
    for by in ("analyst", "colleague"):
        point.submit({**body(f"of-{by}", mechanism((), epsilon="0.5")), "by": by}, by=by)
    with serve_in_thread(create_app(point, lambda: access), 0) as (url, _):
        yield url


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("page", TABLE, ids=lambda page: f"{page.method} {page.path}")
def test_each_page_requires_its_roles(people: str, page: PageRoute, role: str) -> None:
    path = page.path.replace("{release:path}", "of-analyst").replace("{proposal}", "1")
    fields = None if page.method == "GET" else [("x", "")]
    headers = {"Accept": "text/html", "Cookie": f"dpolicy-token={role}"}
    status = send_request(f"{people}{path}", fields, headers).status
    is_allowed = not page.roles or bool(page.roles & ROLES[role])
    assert (status != 403) == is_allowed
    assert status < 500


@pytest.mark.parametrize("page", TABLE, ids=lambda page: f"{page.method} {page.path}")
def test_pages_need_a_token(people: str, page: PageRoute) -> None:
    path = page.path.replace("{release:path}", "of-analyst").replace("{proposal}", "1")
    fields = None if page.method == "GET" else [("x", "")]
    answer = send_request(f"{people}{path}", fields, {"Accept": "text/html"})
    assert "Log in</h1>" in answer.text
    assert send_request(f"{people}{path}", fields, {"Accept": "application/json"}).status == (
        200 if page.path == "/login" else 401
    )


def test_an_analyst_sees_only_their_own_releases(people: str) -> None:
    headers = {"Accept": "application/json", "Cookie": "dpolicy-token=analyst"}
    rows = send_request(f"{people}/releases", None, headers).json["releases"]
    assert [row["release"] for row in rows] == ["of-analyst"]
    assert send_request(f"{people}/releases/of-colleague", None, headers).status == 403
    assert send_request(f"{people}/check?release=of-colleague", None, headers).status == 403
    assert send_request(f"{people}/check?release=of-analyst", None, headers).status == 200
    large = "release: large\nmechanisms: [{unit: user, mechanism: {kind: declared, epsilon: 5}}]"
    decision = send_request(f"{people}/check", [("text", large)], headers).json["decision"]
    assert decision["reasons"][0]["spent-most"] == ["of-analyst"]
    rule = send_request(f"{people}/rule?name=global&unit=user", None, headers).json
    assert [spender["release"] for spender in rule["spent-most"]] == ["of-analyst"]
    headers["Cookie"] = "dpolicy-token=auditor"
    assert send_request(f"{people}/releases/of-colleague", None, headers).status == 200


def test_a_looser_policy_needs_a_second_officer(people: str) -> None:
    """As with the API, one person alone cannot loosen a budget."""
    (source,) = policy(GLOBAL.replace("epsilon: 2", "epsilon: 9")).sources
    text = source.text
    fields = [("file", "policy.yaml"), ("text", text), ("because", "more")]
    officer = {"Accept": "text/html", "Cookie": "dpolicy-token=officer"}
    answer = send_request(f"{people}/policy/apply", fields, officer)
    assert "is looser than the active policy and needs approval" in answer.text
    assert "You made this proposal; another person must approve or reject it" in answer.text
    (proposal,) = send_request(f"{people}/approvals?format=json", None, officer).json["pending"]
    url = f"{people}/approvals/{proposal['number']}"
    alone = send_request(url, [("answer", "approve")], officer)
    assert "another person must answer it" in alone.text
    approver = {"Accept": "text/html", "Cookie": "dpolicy-token=approver"}
    assert send_request(url, [("answer", "approve")], approver).status == 403
    assert "epsilon: 9" not in send_request(f"{people}/policy", None, officer).text


def test_login_with_a_wrong_token(people: str) -> None:
    wrong = send_request(f"{people}/login", [("token", "no")], {"Accept": "text/html"})
    assert "unknown or has expired" in wrong.text


def test_the_login_page_marks_no_menu_entry(fetch: Fetch) -> None:
    """`/login` starts with `/log`, but is not a page of the log."""
    assert 'aria-current="page"' not in fetch("/login").text
    assert 'aria-current="page">Log<' in fetch("/log").text
    assert 'aria-current="page">Releases<' in fetch("/releases/home-zone-heat-map").text


def test_location_ranges_name_each_dimension_once() -> None:
    marlow, sudbury = {"city": "Marlow", "time": "2026-05"}, {"city": "Sudbury", "time": "2026-05"}
    assert format_location_range(marlow, marlow) == "Marlow · 2026-05"
    assert format_location_range(marlow, sudbury) == "Marlow to Sudbury · 2026-05"
    assert format_location_range({}, {}) == ""


@pytest.mark.parametrize(
    ("days", "expected"), [(None, False), (1, True), (300, True), (400, False)]
)
def test_the_caption_mentions_the_projection_if_it_is_drawn(
    days: int | None, expected: bool
) -> None:
    today = NOW.date()
    exhaustion_date = None if days is None else today + timedelta(days=days)
    months = tuple(MonthlySpending(today, 1.0, share, 1) for share in (0.5, 0.6))
    burndown = Burndown(months, exhaustion_date, 6)
    assert has_projection(burndown, today) == expected
    assert ('class="ahead"' in burndown_chart(burndown, today)) == expected


def test_a_page_rounds_losses_up_and_budgets_and_remainders_down() -> None:
    assert format_amounts({"epsilon": 1.0986122886681098, "delta": 1e-9}) == "ε 1.09862"
    assert format_amounts({"renyi 2": 1 / 3, "renyi 8": None}) == "renyi 2 0.333334, renyi 8 ∞"
    assert format_limits({"epsilon": 1.0000049, "delta": 1e-7}) == "ε 1.0000049"
    assert format_limits({"renyi": {"2": 0.5, "8": 1.0000049}}) == "renyi 2: 0.5, 8: 1.0000049"
    assert format_limits("unlimited") == "unlimited"
    assert format_remainder(2 / 3) == "0.666666" and format_remainder(None) == "∞"
