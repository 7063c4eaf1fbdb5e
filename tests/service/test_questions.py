"""Questions about the ledger: spending and headroom, and what callers may not learn from them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.service.servers import Server, release, token
from tests.service.test_api import Caller

import dpolicy


@pytest.fixture(scope="module")
def asked(server: Server) -> Server:
    """The server of the module after releases of two authors."""
    for person, name, epsilon in (("ana", "first", "0.25"), ("ben", "second", "0.125")):
        Caller(server, person).post("/v1/releases", release(name, epsilon, attributes=["zip"]))
    return server


def test_an_officer_sees_who_spent(asked: Server) -> None:
    answer = Caller(asked, "olga").post("/v1/spent", {"rule": "zips"})
    assert answer["spent"]["pure"] == 0.375 and answer["release-count"] == 2
    assert {(r["release"], r["by"]) for r in answer["releases"]} == {
        ("first", "ana"),
        ("second", "ben"),
    }
    assert {a["by"] for a in answer["by"]} == {"ana", "ben"}
    scope = {"when": 'by == "ben" && "zip" in attributes', "delta": 0, "since": "2020-01-01"}
    assert Caller(asked, "udo").post("/v1/spent", scope)["spent"]["epsilon"] == 0.125


def test_an_analyst_sees_the_total_and_only_own_names(asked: Server) -> None:
    answer = Caller(asked, "ana").post("/v1/spent", {"rule": "zips"})
    assert answer["spent"]["pure"] == 0.375 and answer["release-count"] == 2
    assert [r["release"] for r in answer["releases"]] == ["first"]
    assert [a["by"] for a in answer["by"]] == ["ana"]
    assert "second" not in json.dumps(answer) and "ben" not in json.dumps(answer)


def test_a_limit_reveals_no_rank_among_the_releases_of_others(asked: Server) -> None:
    answers = [Caller(asked, "ben").post("/v1/spent", {"rule": "zips", "limit": n}) for n in (1, 2)]
    assert [[r["release"] for r in a["releases"]] for a in answers] == [["second"], ["second"]]


@pytest.mark.parametrize(
    "question",
    [
        {"by": ["ben"]},
        {"by": ["ana", "ben"]},
        {"when": 'by == "ben"'},
        {"rule": "zips", "since": "2026-01-01"},
    ],
    ids=str,
)
def test_an_analyst_asks_about_no_other_author(asked: Server, question: dict[str, Any]) -> None:
    assert Caller(asked, "ana").post("/v1/spent", question, 403)["code"] == "forbidden"
    Caller(asked, "olga").post("/v1/spent", question)


def test_an_analyst_asks_anything_about_own_releases(asked: Server) -> None:
    question = {"by": ["ana"], "when": '"zip" in attributes', "since": "2020-01-01"}
    answer = Caller(asked, "ana").post("/v1/spent", question)
    assert answer["spent"]["pure"] == 0.25 and answer["release-count"] == 1


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ({"when": '"zap" in attributes'}, "invalid"),
        ({"when": "1 +"}, "invalid"),
        ({"when": f'"{"x" * 5000}" in attributes'}, "invalid"),
        ({"when": "always", "rule": "zips"}, "misused"),
        ({"rule": "zip"}, "unknown-rule"),
        ({"unit": "household"}, "unknown-unit"),
        ({"since": "yesterday"}, "invalid-value"),
        ({"at": {"planet": "Mars"}}, "misused"),
        ({"delta": 1}, "invalid"),
        ({"limit": 1001}, "invalid"),
        ({"by": []}, "invalid"),
        ({"wen": "always"}, "invalid"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_invalid_question_is_a_problem(
    asked: Server, question: dict[str, Any], code: str
) -> None:
    assert Caller(asked, "olga").post("/v1/spent", question, 422)["code"] == code


def test_headroom_of_a_release_and_of_a_recorded_one(asked: Server) -> None:
    ana, olga = Caller(asked, "ana"), Caller(asked, "olga")
    content = {"release": release("any", "0.125", attributes=["zip"])}
    answer = ana.post("/v1/headroom", {**content, "most-accurate": True})
    assert answer["more"] == 5 and [rule["rule"] for rule in answer["rules"]] == ["zips", "global"]
    assert answer["most-accurate"]["release"]["mechanisms"][0]["mechanism"]["epsilon"] > 0.6
    assert ana.post("/v1/headroom", {"id": "first"})["more"] == 2
    assert olga.post("/v1/headroom", {"id": "second"})["more"] == 5
    assert ana.post("/v1/headroom", {"id": "second"}, 403)["code"] == "forbidden"
    assert olga.post("/v1/headroom", {"id": "third"}, 404)["code"] == "not-found"
    assert olga.post("/v1/headroom", {}, 400)["code"] == "bad-request"
    assert olga.post("/v1/headroom", {**content, "id": "first"}, 400)["code"] == "bad-request"


def test_the_client_asks_the_same(asked: Server) -> None:
    with dpolicy.Client(asked.url, token("olga")) as client:
        spent = client.spent('"zip" in attributes', by="ana", delta=1e-9, at={"country": "CH"})
        assert spent["spent"]["pure"] == 0.25
        assert {status.name for status in client.budgets(pruned=True)} == {"global", "zips"}
        assert client.headroom("first")["more"] == 2
        content = release("any", "0.125", attributes=["zip"])
        assert client.headroom(content, most_accurate=True)["most-accurate"] is not None
        with pytest.raises(dpolicy.OperationRejected):
            client.spent(rule="zip")
        with pytest.raises(dpolicy.PolicyRejected):
            client.spent("1 +")
        with pytest.raises(dpolicy.InvalidValue):
            client.spent(delta="small")
