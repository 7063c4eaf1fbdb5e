"""Many releases in one request are decided as if each were submitted alone, in one commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.service.servers import POLICY, Server, release
from tests.service.test_races import api_request, open_point, sources

from dpolicy.errors import DPolicyError, LedgerUnavailable, OperationRejected
from dpolicy.ledger.canonical import encode_canonical
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.journal.journal import utc_now
from dpolicy.rules.compiler import compile_policy
from dpolicy.service.api import releases as single
from dpolicy.service.api import submit_many
from dpolicy.service.auth import authorization
from dpolicy.service.auth.access_rules import AccessRules, ApprovalRules
from dpolicy.service.http.limits import ServiceLimits
from dpolicy.service.http.problem_details import problem_from_error, problem_to_json
from dpolicy.service.http.release_shapes import SubmissionShape
from dpolicy.service.http.request_body import parse_body

ACCESS = AccessRules(
    approval=ApprovalRules(when='labels.stage == "tuning"', void=False),
    restricted={"deployment": frozenset({"black-box"})},
)


def by_one_request(point: DecisionPoint, bodies: list[Any]) -> list[dict[str, Any]]:
    data = encode_canonical({"releases": bodies})
    shape = submit_many.ENDPOINTS[0].body
    assert shape is not None
    body = parse_body(data, shape, ServiceLimits())
    value = submit_many.handle_submit_many(api_request(point, "ana", body, ACCESS)).value
    return list(value["results"])


def by_single_requests(point: DecisionPoint, bodies: list[Any]) -> list[dict[str, Any]]:
    """The naive twin: one request for each release."""
    results = []
    for body in bodies:
        try:
            parsed = parse_body(encode_canonical(body), SubmissionShape(), ServiceLimits())
            results.append(single.handle_submit(api_request(point, "ana", parsed, ACCESS)).value)
        except DPolicyError as error:
            results.append(problem_to_json(*problem_from_error(error)))
    return results


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result without positions in the body, and without advice, which is true at the time
    of the answer.
    """
    if "code" not in result:
        reasons = [
            {k: v for k, v in reason.items() if k not in ("spent-most", "cause")}
            for reason in result.get("reasons", ())
        ]
        return {**result, "reasons": reasons, "would-fit": None}
    diagnostics = [
        {k: v for k, v in entry.items() if k not in ("line", "column")}
        for entry in result.get("diagnostics", ())
    ]
    kept = {k: v for k, v in result.items() if k not in ("release", "diagnostics", "detail")}
    return {**kept, "diagnostics": diagnostics}


BODIES = st.one_of(
    st.builds(
        lambda n, epsilon, more: release(f"r{n}", epsilon, **more),
        st.integers(0, 3),
        st.sampled_from(["0.25", "0.75", "3"]),
        st.sampled_from(
            [
                {},
                {"attributes": ["zip"]},
                {"labels": {"stage": "tuning"}},
                {"labels": {"deployment": "black-box"}},
                {"labels": {"unknown": "x"}},
                {"attributes": ["unknown"]},
                {"unknown": 1},
            ]
        ),
    ),
    st.sampled_from([[], {}, {**release("other"), "by": "ben"}]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(BODIES, min_size=1, max_size=6))
def test_one_request_gives_the_results_of_single_requests(bodies: list[Any]) -> None:
    many, alone = open_point(POLICY), open_point(POLICY)
    results, expected = by_one_request(many, bodies), by_single_requests(alone, bodies)
    assert [comparable(r) for r in results] == [comparable(r) for r in expected]
    assert {n: e.status for n, e in many.entries.items()} == {
        n: e.status for n, e in alone.entries.items()
    }
    assert len(many.proposals) == len(alone.proposals)


class CountingStore(MemoryStore):
    """Store in memory that counts commits."""

    commits = 0

    def open_for_writing(self) -> Any:
        self.commits += 1
        return super().open_for_writing()


def counting_point() -> tuple[DecisionPoint, CountingStore]:
    store = CountingStore()
    point = DecisionPoint(store, utc_now)
    point.apply(compile_policy(sources(POLICY)), by="setup")
    store.commits = 0
    return point, store


def test_all_decisions_share_one_commit() -> None:
    point, store = counting_point()
    bodies = [release(f"r{n}") for n in range(submit_many.MAX_RELEASES - 1)]
    results = by_one_request(point, [*bodies[:9], release("x", unknown=1), *bodies[9:]])
    assert store.commits == 1
    assert [result.get("code") for result in results].count("invalid") == 1
    assert sum(result.get("decision") == "allow" for result in results) == len(bodies)


def test_a_repeated_request_charges_nothing() -> None:
    point = open_point(POLICY)
    bodies = [release("a", "0.5"), release("b", "3"), release("a", "0.5")]
    first, second = by_one_request(point, bodies), by_one_request(point, bodies)
    assert [r["replayed"] for r in first] == [False, False, True]
    assert [r["replayed"] for r in second] == [True, True, True]
    assert [r["decision"] for r in second] == ["allow", "deny", "allow"]
    assert point.head.sequence == 3


def test_a_reserved_release_is_not_reported_as_charged() -> None:
    point = open_point(POLICY)
    point.reserve({**release("a"), "by": "ana"}, "ana")
    (result,) = by_one_request(point, [release("a")])
    assert (result["code"], result["release"]) == ("id-taken", "a")


def change_policy_after_check(
    point: DecisionPoint, monkeypatch: pytest.MonkeyPatch, times: int
) -> Callable[[], int]:
    """Apply another policy after each of the first checks whether a release needs approval."""
    matches, changes = authorization._matches, 0

    def matches_then_change(*arguments: Any) -> bool:
        nonlocal changes
        result = matches(*arguments)
        if changes < times:
            changes += 1
            budget = f"epsilon: {10 + changes},"
            text = POLICY.replace("default: final", "default: tuning")
            point.apply(compile_policy(sources(text.replace("epsilon: 2,", budget))))
        return result

    monkeypatch.setattr(authorization, "_matches", matches_then_change)
    return lambda: changes


def test_releases_are_authorized_again_under_a_new_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = open_point(POLICY)
    change_policy_after_check(point, monkeypatch, 1)
    results = by_one_request(point, [release("a"), release("b")])
    assert [result["decision"] for result in results] == ["pending", "pending"]
    assert not point.entries


def test_many_releases_give_up_if_the_policy_keeps_changing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = open_point(POLICY)
    change_policy_after_check(point, monkeypatch, 1_000)
    results = by_one_request(point, [release("a"), release("b", unknown=1)])
    assert [result["code"] for result in results] == ["policy-changed", "invalid"]
    assert not point.entries


class FailingStore(MemoryStore):
    """Store in memory whose commits fail."""

    fails = False

    def open_for_writing(self) -> Any:
        if self.fails:
            raise LedgerUnavailable("no space left")
        return super().open_for_writing()


def test_a_failed_commit_is_a_problem_of_the_request() -> None:
    store = FailingStore()
    point = DecisionPoint(store)
    point.apply(compile_policy(sources(POLICY)))
    store.fails = True
    with pytest.raises(LedgerUnavailable):
        by_one_request(point, [release("a")])


# Over HTTP


def test_a_server_decides_many_releases(server: Server) -> None:
    client = server.client("ana")
    bodies = [release("many-1"), release("many-2", unknown=1), release("many-3")]
    response = client.post("/v1/releases:submit-many", json={"releases": bodies})
    assert response.status_code == 200, response.text
    results = response.json()["results"]
    assert [r.get("decision", r.get("code")) for r in results] == ["allow", "invalid", "allow"]
    assert results[1]["status"] == 422
    again = client.post("/v1/releases:submit-many", json={"releases": bodies}).json()["results"]
    assert [r.get("replayed") for r in again] == [True, None, True]
    metrics = server.client("udo").get("/metrics").text
    assert 'dpolicy_decisions_total{decision="replayed"} 2' in metrics


@pytest.mark.parametrize("count", [0, submit_many.MAX_RELEASES + 1])
def test_the_number_of_releases_is_limited(server: Server, count: int) -> None:
    bodies = [release(f"limit-{n}") for n in range(count)]
    response = server.client("ana").post("/v1/releases:submit-many", json={"releases": bodies})
    assert (response.status_code, response.json()["code"]) == (422, "invalid")


def test_spenders_of_others_are_hidden(server: Server) -> None:
    ben = server.client("ben")
    assert ben.post("/v1/releases", json=release("bens", "0.5")).json()["decision"] == "allow"
    bodies = {"releases": [release("anas", "1.75")]}
    result = server.client("ana").post("/v1/releases:submit-many", json=bodies).json()["results"][0]
    assert result["decision"] == "deny" and "bens" not in str(result)
    checked = server.client("olga").post("/v1/check", json=release("other", "1.75")).json()
    assert "bens" in str(checked["reasons"])


# Import


def test_an_import_is_one_commit() -> None:
    point, store = counting_point()
    numbers = point.import_many([release(f"r{n}") for n in range(20)], "history", "olga")
    assert store.commits == 1 and numbers == list(range(2, 22))
    again = [release("r3"), release("new"), release("r3"), release("new")]
    assert point.import_many(again, "history", "olga") == [5, 22, 5, 22]


@pytest.mark.parametrize(
    "wrong",
    [release("taken", "0.125"), release("a", "0.125"), release("x", labels={"unknown": "x"})],
)
def test_an_import_with_a_rejected_release_writes_nothing(wrong: dict[str, Any]) -> None:
    point = open_point(POLICY)
    point.import_past(release("taken"), by="olga")
    with pytest.raises((OperationRejected, DPolicyError)):
        point.import_many([release("a"), release("b"), wrong], "history", "olga")
    assert point.head.sequence == 2 and set(point.entries) == {"taken"}
