"""Spent page, risk in words, and headroom on rule pages."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import urlencode

import pytest
from tests.dashboard.conftest import Fetch, send_request
from tests.pdp.builders import GLOBAL, HEAD, ZIP, mechanism, policy, pure, started

from dpolicy.demo.demo_server import serve_in_thread
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.privacy.risk.attacker_risk import risk_of_budget
from dpolicy.service.app import create_app
from dpolicy.service.auth.access_rules import AccessRules, AccessToken, hash_token, local_access
from dpolicy.service.auth.principal import Principal, Role
from dpolicy.service.dashboard.views.questions.risk_sentences import belief_sentence

RULE = {"name": "attribute[home-zone] × standard", "unit": "rider"}


def test_the_page_has_the_numbers_of_the_question(company: DecisionPoint, fetch: Fetch) -> None:
    query = urlencode({"when": '"home-zone" in attributes', "unit": "rider", "delta": "1e-9"})
    spending = company.spent('"home-zone" in attributes', unit="rider", delta="1e-9", limit=50)
    page = fetch(f"/spent?{query}", accept="application/json").json
    assert page["answer"]["spent"] == spending.as_json()["spent"]
    assert page["answer"]["risk"] == spending.as_json()["risk"]
    text = fetch(f"/spent?{query}").text
    assert spending.releases[0].name in text
    assert belief_sentence(spending.risk) in text


def test_a_rule_links_to_its_spending(fetch: Fetch) -> None:
    query = urlencode({"rule": RULE["name"], "unit": RULE["unit"]})
    assert f'href="/spent?{query.replace("&", "&amp;")}"' in fetch(f"/rule?{urlencode(RULE)}").text
    answer = fetch(f"/spent?{query}", accept="application/json").json["answer"]
    assert answer["scope"] == {"when": None, "rule": RULE["name"]}


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"when": "nonsense"}, "nonsense"),
        ({"when": "always", "rule": "x"}, "not both"),
        ({"rule": "lifetim × standard"}, "there is no rule"),
        ({"unit": "planet"}, "there is no unit"),
        ({"at": "Marlow"}, "country=CH"),
        ({"since": "soon"}, "2026-10-28"),
        ({"delta": "2"}, "from 0 to below 1"),
    ],
    ids=str,
)
def test_an_invalid_question_shows_the_problem_and_keeps_the_form(
    fetch: Fetch, query: dict[str, str], problem: str
) -> None:
    answer = fetch(f"/spent?{urlencode(query)}")
    assert answer.status == 200 and problem in answer.text and "Invalid input" in answer.text
    assert fetch(f"/spent?{urlencode(query)}&format=json").json["answer"] is None


def test_a_rule_page_has_the_risk_of_its_budget_and_headroom(
    company: DecisionPoint, fetch: Fetch
) -> None:
    page = fetch(f"/rule?{urlencode(RULE)}", accept="application/json").json
    (status,) = [s for s in company.budgets() if s.name == RULE["name"] and s.unit == RULE["unit"]]
    assert page["risk"] == risk_of_budget(status.rule.budget).as_json()
    last = page["last-release"]
    headroom = company.headroom(last["release"])
    own = next(r for r in headroom.rules if (r.rule, r.unit) == (RULE["name"], RULE["unit"]))
    assert (last["more"], last["more-in-all"]) == (own.more, headroom.more)
    text = fetch(f"/rule?{urlencode(RULE)}").text
    assert f"{last['more']} more like the last release" in text
    assert (
        "when the whole budget is used, the belief of an attacker in a fact can grow from"
        in text.lower()
    )


def test_an_unlimited_budget_has_no_bound() -> None:
    unlimited = "  - {name: all, kind: custom, when: always, unit: user, budget: unlimited}\n"
    rule, _ = next(iter(policy(unlimited).all_rules))
    sentence = belief_sentence(risk_of_budget(rule.budget))
    assert sentence == "There is no bound on what an attacker learns."


def test_pages_name_no_release_of_others_to_an_analyst() -> None:
    point = started(GLOBAL, ZIP % "{epsilon: 1}")
    for person, name in (("ana", "hers"), ("zora", "secret-study")):
        point.submit({**pure(name, "0.1", "zip"), "by": person})
    people = {"ana": Principal("ana", frozenset({Role.ANALYST}))}
    tokens = {hash_token("t"): AccessToken("ana", datetime(9999, 1, 1, tzinfo=UTC))}
    access = AccessRules(people=people, tokens=tokens)
    headers = {"Accept": "text/html", "Authorization": "Bearer t"}
    with serve_in_thread(create_app(point, lambda: access), 0) as (url, _):
        for path in ("/spent?unit=user", "/spent?rule=zips", "/rule?name=zips&unit=user"):
            text = send_request(f"{url}{path}", None, headers).text
            assert "hers" in text and "secret-study" not in text and "zora" not in text, path
        guesses = ({"by": "zora"}, {"when": 'by == "zora"'}, {"since": "2020-01-01"})
        for guess in guesses:
            query = urlencode({"unit": "user", **guess})
            text = send_request(f"{url}/spent?{query}", None, headers).text
            assert "Invalid input" in text and "secret-study" not in text and "0.1" not in text


def test_the_question_is_escaped() -> None:
    point = started(GLOBAL)
    point.submit(pure("a", "0.1", "zip"))
    with serve_in_thread(create_app(point, local_access), 0) as (url, _):
        query = urlencode(dict.fromkeys(("when", "at", "by", "since", "rule"), '"><script>x'))
        text = send_request(f"{url}/spent?{query}", None, {"Accept": "text/html"}).text
        assert "<script>" not in text and "script" in text


def test_without_a_policy_the_page_is_empty() -> None:
    with serve_in_thread(create_app(DecisionPoint(MemoryStore()), local_access), 0) as (url, _):
        assert send_request(f"{url}/spent", None, {"Accept": "text/html"}).status == 200


def test_a_release_that_the_policy_cannot_resolve_has_no_headroom() -> None:
    point = started(GLOBAL)
    labelled = {**mechanism(("zip",), epsilon="0.1"), "labels": {"team": "ads"}}
    point.submit({"release": "a", "mechanisms": [labelled]})
    head = "".join(line for line in HEAD.splitlines(keepends=True) if "team" not in line)
    point.apply(policy(GLOBAL, head=head))
    with serve_in_thread(create_app(point, local_access), 0) as (url, _):
        path = f"{url}/rule?name=global&unit=user&format=json"
        assert send_request(path, None, {"Accept": "text/html"}).json["last-release"] is None
