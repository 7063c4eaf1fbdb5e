"""Pages over HTTP: twins in JSON, nothing from elsewhere, nothing unescaped, each for its roles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from tests.pages.conftest import NOW, Fetch, asked
from tests.pdp.builders import GLOBAL, body, mechanism, policy

from dpolicy.demo.demo_server import PAGES, serve_in_thread
from dpolicy.demo.sample_ledger import candidate_text, policy_text, round_text
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp import request_evaluation
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.ledger_state import LedgerState
from dpolicy.releases.decision import Decision
from dpolicy.releases.release import Release
from dpolicy.service.app import create_app
from dpolicy.service.auth.access_rules import AccessRules, AccessToken, hash_token, local_access
from dpolicy.service.auth.principal import Principal, Role
from dpolicy.service.dashboard.pages.page_routes import PAGES as TABLE
from dpolicy.service.dashboard.pages.page_routes import PageRoute
from dpolicy.service.dashboard.pagination import PER_PAGE
from dpolicy.service.dashboard.views import approvals_page as approvals_view

SHOWN = [path.removesuffix("?verify=1") for path in PAGES if not path.startswith("/static")]
PICTURES = [path for path in SHOWN if ".svg" in path]
HTML = [path for path in SHOWN if path not in PICTURES]


class Reader(HTMLParser):
    """What a page would load, run or obey, and the text that it shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.parametrize("path", HTML)
def test_pages_load_nothing_from_elsewhere_and_run_nothing(fetch: Fetch, path: str) -> None:
    answer = fetch(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    rules = answer.headers["content-security-policy"].split("; ")
    assert "default-src 'none'" in rules and not any("script" in rule for rule in rules)
    assert not any("unsafe" in rule for rule in rules)
    for tag, attributes in Reader(answer.text).tags:
        assert tag not in {"script", "iframe", "object", "embed", "style", "base"}
        assert not any(name == "style" or name.startswith("on") for name in attributes)
        for name in ("src", "href", "action"):
            assert re.match(r"(/(?!/)|\?|#|$)", attributes.get(name) or ""), attributes


def test_the_style_loads_nothing(fetch: Fetch) -> None:
    text = fetch("/static/style.css").text
    assert "url(" not in text and "@import" not in text
    assert "prefers-color-scheme: dark" in text and ":focus-visible" in text


@pytest.mark.parametrize("path", [path for path in HTML if path != "/login"])
def test_every_page_has_a_twin_in_json(fetch: Fetch, path: str) -> None:
    address = f"{path}{'&' if '?' in path else '?'}format=json"
    by_address, by_header = fetch(address), fetch(path, accept="application/json")
    assert by_address.headers["content-type"] == "application/json"
    assert by_address.json == by_header.json and by_address.json
    assert "text/html" in fetch(path, accept="text/html,application/json").headers["content-type"]


def test_a_page_shows_what_its_twin_says(fetch: Fetch) -> None:
    said = fetch("/", accept="application/json").json
    words = " ".join("".join(Reader(fetch("/").text).words).split())
    for scope in said["scopes"]:
        assert scope["scope"] in words
        for rule in scope["rules"]:
            share = 100 * rule["share"]
            assert (f"{share:.1f} %" if 90 <= share < 110 else f"{share:.0f} %") in words
    assert said["rules"]["kept"] == 39 and "39 of 71 rules" in words


def test_a_denied_release_says_why_and_what_would_fit(fetch: Fetch) -> None:
    said = fetch("/releases/home-zone-heat-map", accept="application/json").json
    assert said["status"] == "denied"
    broken = [r["rule"] for r in said["decision"]["reasons"] if not r["holds"]]
    assert "attribute[home-zone] × standard" in broken
    page = fetch("/releases/home-zone-heat-map").text
    factor = next(o["factor"] for o in said["decision"]["would-fit"] if "factor" in o)
    assert f"factor={factor}" in page and "attribute=home-zone" in page


def test_a_counter_offer_can_be_tried(fetch: Fetch) -> None:
    said = fetch("/releases/home-zone-heat-map", accept="application/json").json
    factor = next(o["factor"] for o in said["decision"]["would-fit"] if "factor" in o)
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
def test_an_absurd_factor_is_refused(fetch: Fetch, factor: str) -> None:
    """Refused before it is computed: powers of ten with a million digits hold up everybody."""
    answer = fetch(f"/check?release=home-zone-heat-map&factor={factor}")
    assert answer.status == 400 and "factor" in answer.text


@pytest.mark.parametrize("factor", ["1e400", "1e-400", "1.5"])
def test_a_factor_within_the_limits_is_taken(fetch: Fetch, factor: str) -> None:
    assert fetch(f"/check?release=home-zone-heat-map&factor={factor}").status == 200


def test_texts_that_cannot_be_read_are_told_in_place(fetch: Fetch) -> None:
    for path, text in (("/check", "release: x\nmechanisms: 7\n"), ("/rounds", "- {release: [}")):
        answer = fetch(path, [("text", text), ("strategy", "efficient")])
        assert answer.status == 200 and 'class="diagnostic"' in answer.text
    text = "dpolicy: 1\npolicies: [{kind: x}]"
    answer = fetch("/policy", [("file", "policy.yaml"), ("text", text)])
    assert answer.status == 200 and "error P" in answer.text
    assert "Put it in force" not in answer.text


def test_a_round_tells_winners_and_losers(fetch: Fetch) -> None:
    fields = [("text", round_text(NOW.date())), ("strategy", "efficient")]
    said = fetch("/rounds", fields, accept="application/json").json["round"]
    assert said["chosen"] and any(loser["fits-alone"] for loser in said["losers"])
    assert any(not loser["fits-alone"] for loser in said["losers"])
    wrong = fetch("/rounds", [("text", "[]"), ("strategy", "no such")])
    assert wrong.status == 200 and "there is no strategy" in wrong.text
    line = "- {release: r%d, mechanisms: [{mechanism: {kind: gaussian, sigma: 9}}]}\n"
    many = "".join(line % number for number in range(201))
    assert "at most 200 candidates" in fetch("/rounds", [("text", many)]).text


def test_a_policy_needs_a_reason_and_every_conflict_accepted(
    fetch_own: Fetch,
) -> None:
    text = [("file", "policy.yaml"), ("text", candidate_text())]
    conflict = ("accept", "attribute[home-zone] × standard")
    for fields in (text, [*text, conflict], [*text, ("because", "tighter")]):
        answer = fetch_own("/policy/apply", fields)
        assert "It was not applied" in answer.text
    answer = fetch_own("/policy/apply", [*text, conflict, ("because", "tighter")])
    assert "is in force from record" in answer.text
    assert "home-zone: {epsilon: 2.5}" in fetch_own("/policy").text
    total = fetch_own("/log", accept="application/json").json["total"]
    assert f"All {total} records verify" in fetch_own("/log?verify=1").text
    first = fetch_own("/", accept="application/json").json["scopes"][0]["rules"][0]
    assert (first["rule"], first["holds"]) == ("attribute[home-zone] × standard", False)


def test_what_waits_can_be_approved(fetch_own: Fetch) -> None:
    (waiting,) = fetch_own("/approvals", accept="application/json").json["waiting"]
    assert waiting["decision-now"]["decision"] == "allow"
    answer = fetch_own(
        f"/approvals/{waiting['number']}", [("answer", "approve"), ("because", "fine")]
    )
    assert "Answered, in record" in answer.text and "Nothing waits" in answer.text
    done = fetch_own("/releases/student-travel-index", accept="application/json").json
    assert done["status"] == "allowed"
    again = fetch_own(f"/approvals/{waiting['number']}", [("answer", "approve")])
    assert "is already approved" in again.text


def test_only_what_is_shown_of_what_waits_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []

    def judge(state: LedgerState, release: Release) -> Decision:
        judged.append(release.id)
        return request_evaluation.evaluate_release(state, release)

    monkeypatch.setattr(approvals_view, "evaluate_release", judge)
    point = DecisionPoint(MemoryStore())
    point.apply(policy(GLOBAL))
    for n in range(PER_PAGE + 2):
        point.propose(body(f"r{n}", mechanism((), epsilon=1)), by="ana")
    first = approvals_view.approvals_page(point)
    assert len(first.waiting) == PER_PAGE and judged == [f"r{n}" for n in range(PER_PAGE)]
    with serve_in_thread(create_app(point, local_access), 0) as (url, _):
        page = asked(f"{url}/approvals", None, {"Accept": "text/html"}).text
        assert 'href="/approvals?page=2"' in page and "Page 1 of 2" in page
        rest = asked(f"{url}/approvals?page=2&format=json", None, {}).json
    assert [one["about"] for one in rest["waiting"]] == [f"r{PER_PAGE}", f"r{PER_PAGE + 1}"]
    assert (rest["page"], rest["pages"], rest["total"]) == (2, 2, PER_PAGE + 2)


def test_what_others_spent_is_not_named_where_an_analyst_waits() -> None:
    point = DecisionPoint(MemoryStore())
    point.apply(policy(GLOBAL))
    for by in ("ana", "ben"):
        point.submit({**body(f"of-{by}", mechanism((), epsilon="0.5")), "by": by}, by=by)
    point.propose({**body("more", mechanism((), epsilon=5)), "by": "ana"}, by="ana")
    for own, named in ((None, {"of-ana", "of-ben"}), ("ana", {"of-ana"})):
        (waiting,) = approvals_view.approvals_page(point, own=own).waiting
        assert waiting.decision is not None
        assert set(waiting.decision.reasons[0].spenders) == named


def test_a_page_of_another_site_cannot_act(fetch: Fetch) -> None:
    text = [("file", "policy.yaml"), ("text", policy_text()), ("because", "x")]
    answer = fetch("/policy/apply", text, Origin="http://evil.example")
    assert answer.status == 403


@pytest.mark.parametrize(
    "path",
    ["/rule?name=no&unit=rider", "/rule.svg?name=no&unit=no", "/releases/no", "/check?release=no"],
)
def test_what_is_not_there(fetch: Fetch, path: str) -> None:
    answer = fetch(path)
    assert answer.status == 404 and "This did not work" in answer.text
    assert fetch(path, accept="application/json").json["code"] == "not-found"


def test_rules_for_each_release_and_implied_ones_have_pages(fetch: Fetch) -> None:
    each = fetch("/rule?name=release-cap&unit=rider&section=each-release")
    assert each.status == 200 and "for every release by itself" in each.text
    drawn = fetch("/rule.svg?name=release-cap&unit=rider&section=each-release")
    assert drawn.headers["content-type"].startswith("image/svg+xml")
    implied = fetch("/rule?name=category%5Btravel%2C+weak%5D+%C3%97+any&unit=rider")
    assert implied.status == 200 and "is not enforced by itself" in implied.text


@pytest.mark.parametrize("query", ["page=0", "page=99999999999", "page=x", "page=-1", "q=%00%ff"])
def test_odd_addresses(fetch: Fetch, query: str) -> None:
    for path in ("/", "/releases", "/log"):
        assert fetch(f"{path}?{query}").status == 200


NASTY = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


def test_what_people_write_is_shown_as_text() -> None:
    point = DecisionPoint(MemoryStore())
    point.apply(policy(GLOBAL), by=NASTY, because=NASTY)
    point.submit(body("a", mechanism((), epsilon=9)), by=NASTY)
    point.propose(body("b", mechanism((), epsilon=1)), by=NASTY)
    with serve_in_thread(create_app(point, local_access), 0) as (url, _):
        for path in ("/", "/releases", "/releases/a", "/log", "/approvals", f"/?q={NASTY[2:10]}"):
            text = asked(f"{url}{path}", None, {"Accept": "text/html"}).text
            assert "<script>" not in text and "onerror=alert(1)>" not in text.replace("&gt;", "")
        fields = [("file", NASTY), ("text", NASTY), ("strategy", "efficient")]
        for path in ("/policy", "/check", "/rounds"):
            text = asked(f"{url}{path}", fields, {"Accept": "text/html"}).text
            assert "<script>" not in text and "alert(1)" in text


def test_a_ledger_without_a_policy() -> None:
    with serve_in_thread(create_app(DecisionPoint(MemoryStore()), local_access), 0) as (url, _):
        paths = ("/", "/releases", "/policy", "/approvals", "/log?verify=1", "/check", "/rounds")
        for path in paths:
            assert asked(f"{url}{path}", None, {"Accept": "text/html"}).status == 200
        fields = [("file", "policy.yaml"), ("text", policy_text()), ("because", "first")]
        assert "is in force from record 1 on" in asked(f"{url}/policy/apply", fields, {}).text


ROLES = {str(role): frozenset({role}) for role in Role}


@pytest.fixture(scope="module")
def people() -> Iterator[str]:
    """A dashboard for four people with one role each, whose tokens are their names."""
    names = {name: Principal(name, roles) for name, roles in ROLES.items()}
    tokens = {
        hash_token(name): AccessToken(name, datetime(9999, 1, 1, tzinfo=UTC)) for name in names
    }
    access = AccessRules(people=names, tokens=tokens)
    point = DecisionPoint(MemoryStore())
    point.apply(policy(GLOBAL))
    for by in ("analyst", "somebody"):
        point.submit({**body(f"of-{by}", mechanism((), epsilon="0.5")), "by": by}, by=by)
    with serve_in_thread(create_app(point, lambda: access), 0) as (url, _):
        yield url


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("page", TABLE, ids=lambda page: f"{page.method} {page.path}")
def test_each_page_is_for_its_roles(people: str, page: PageRoute, role: str) -> None:
    path = page.path.replace("{release:path}", "of-analyst").replace("{proposal}", "1")
    fields = None if page.method == "GET" else [("x", "")]
    headers = {"Accept": "text/html", "Cookie": f"dpolicy-token={role}"}
    status = asked(f"{people}{path}", fields, headers).status
    may = not page.roles or bool(page.roles & ROLES[role])
    assert (status != 403) == may
    assert status < 500


@pytest.mark.parametrize("page", TABLE, ids=lambda page: f"{page.method} {page.path}")
def test_nobody_sees_a_page_without_a_token(people: str, page: PageRoute) -> None:
    path = page.path.replace("{release:path}", "of-analyst").replace("{proposal}", "1")
    fields = None if page.method == "GET" else [("x", "")]
    answer = asked(f"{people}{path}", fields, {"Accept": "text/html"})
    assert "Log in</h1>" in answer.text
    assert asked(f"{people}{path}", fields, {"Accept": "application/json"}).status == (
        200 if page.path == "/login" else 401
    )


def test_an_analyst_sees_only_their_own_releases(people: str) -> None:
    headers = {"Accept": "application/json", "Cookie": "dpolicy-token=analyst"}
    found = asked(f"{people}/releases", None, headers).json["releases"]
    assert [line["release"] for line in found] == ["of-analyst"]
    assert asked(f"{people}/releases/of-somebody", None, headers).status == 403
    assert asked(f"{people}/check?release=of-somebody", None, headers).status == 403
    assert asked(f"{people}/check?release=of-analyst", None, headers).status == 200
    large = "release: large\nmechanisms: [{mechanism: {kind: declared, epsilon: 5}}]"
    tried = asked(f"{people}/check", [("text", large)], headers).json["decision"]
    assert tried["reasons"][0]["spent-most"] == ["of-analyst"]
    rule = asked(f"{people}/rule?name=global&unit=user", None, headers).json
    assert [spender["release"] for spender in rule["spent-most"]] == ["of-analyst"]
    headers["Cookie"] = "dpolicy-token=auditor"
    assert asked(f"{people}/releases/of-somebody", None, headers).status == 200


def test_a_looser_policy_waits_for_a_second_officer(people: str) -> None:
    """The page goes the same way as the API: one person alone cannot loosen a budget."""
    (source,) = policy(GLOBAL.replace("epsilon: 2", "epsilon: 9")).sources
    text = source.text
    fields = [("file", "policy.yaml"), ("text", text), ("because", "more")]
    officer = {"Accept": "text/html", "Cookie": "dpolicy-token=officer"}
    answer = asked(f"{people}/policy/apply", fields, officer)
    assert "waits for a second person" in answer.text
    assert "You proposed this: another person must answer" in answer.text
    (waiting,) = asked(f"{people}/approvals?format=json", None, officer).json["waiting"]
    place = f"{people}/approvals/{waiting['number']}"
    alone = asked(place, [("answer", "approve")], officer)
    assert "another must answer" in alone.text
    approver = {"Accept": "text/html", "Cookie": "dpolicy-token=approver"}
    assert asked(place, [("answer", "approve")], approver).status == 403
    assert "epsilon: 9" not in asked(f"{people}/policy", None, officer).text


def test_logging_in(people: str) -> None:
    wrong = asked(f"{people}/login", [("token", "no")], {"Accept": "text/html"})
    assert "unknown or has expired" in wrong.text
