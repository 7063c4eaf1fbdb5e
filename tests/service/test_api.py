"""Every endpoint of the API, and the schema of its responses."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from tests.service.servers import POLICY, Server, access, activate_policy, release, serving

from dpolicy.ledger.chain import GENESIS
from dpolicy.service.api.openapi import openapi_document
from dpolicy.service.api.routes import ENDPOINTS
from dpolicy.service.http.endpoint import Endpoint
from dpolicy.service.http.problem_details import PROBLEMS

DOCUMENT = openapi_document()
JSON = ("application/json", "application/problem+json")


class Caller:
    """HTTP client of a person that validates each response against the OpenAPI document."""

    def __init__(self, server: Server, person: str | None) -> None:
        self._client = server.client(person)

    def __call__(self, method: str, path: str, expect: int = 200, **more: Any) -> Any:
        response = self._client.request(method, path, **more)
        assert response.status_code == expect, response.text
        check_response(response, method, path)
        return response.json() if response.headers["content-type"] in JSON else response.text

    def get(self, path: str, expect: int = 200, **query: Any) -> Any:
        return self("GET", path, expect, params=query)

    def post(self, path: str, body: Any, expect: int = 200) -> Any:
        return self("POST", path, expect, json=body)


def check_response(response: httpx.Response, method: str, path: str) -> None:
    """Check that a response has the position of the ledger and matches the document."""
    sequence, _, head = response.headers["dpolicy-position"].partition(":")
    assert sequence.isdigit() and len(head) == 64
    content = find_operation(method, path)["responses"][str(response.status_code)]["content"]
    media = response.headers["content-type"].partition(";")[0]
    schema = {**content[media]["schema"], "components": DOCUMENT["components"]}
    value: Any = response.json() if media in JSON else response.text
    Draft202012Validator(schema).validate(value)
    if media == "application/problem+json":
        assert PROBLEMS[value["code"]].status == response.status_code


def find_operation(method: str, path: str) -> Any:
    """Return the documented operation of a path: the match with the fewest parameters."""
    matches = [e for e in ENDPOINTS if e.method == method and _matches(e, path.partition("?")[0])]
    template = min(matches, key=lambda e: e.path.count("{")).path.replace(":path}", "}")
    return DOCUMENT["paths"][template][method.lower()]


def _matches(endpoint: Endpoint, path: str) -> bool:
    expected, actual = endpoint.path.split("/"), path.split("/")
    return len(expected) == len(actual) and all(
        e == a or e.startswith("{") for e, a in zip(expected, actual, strict=True)
    )


@pytest.fixture
def ana(server: Server) -> Caller:
    return Caller(server, "ana")


@pytest.fixture
def olga(server: Server) -> Caller:
    return Caller(server, "olga")


@pytest.fixture
def pia(server: Server) -> Caller:
    return Caller(server, "pia")


NAMES = (f"api-{n}" for n in range(1_000_000))


def test_a_release_is_decided_once(ana: Caller) -> None:
    body = release(next(NAMES))
    first = ana.post("/v1/releases", body)
    assert first["decision"] == "allow" and not first["replayed"]
    replay = ana.post("/v1/releases", body)
    assert replay == {**first, "replayed": True, "position": replay["position"]}
    changed = release(body["release"], "0.002")
    assert ana.post("/v1/releases", changed, 422)["code"] == "id-taken"
    assert ana.post("/v1/check", body)["replayed"]


def test_a_denial_is_a_response_with_reasons(ana: Caller) -> None:
    decision = ana.post("/v1/releases", release(next(NAMES), "1.5", attributes=["zip"]))
    assert decision["decision"] == "deny"
    assert [r["rule"] for r in decision["reasons"] if not r["holds"]] == ["zips"]
    offer = decision["would-fit"][0]
    assert offer["mechanisms"] and offer["release"]["release"] == f"{decision['release']}-2"
    assert ana.post("/v1/check", offer["release"])["decision"] == "allow"


def test_a_check_writes_nothing(ana: Caller, olga: Caller) -> None:
    before = olga.get("/v1/log/head")["sequence"]
    decision = ana.post("/v1/check", release(next(NAMES)))
    assert decision["decision"] == "allow" and decision["sequence"] is None
    assert olga.get("/v1/log/head")["sequence"] == before


def test_the_author_comes_from_the_token(ana: Caller) -> None:
    mine = ana.post("/v1/releases", release(next(NAMES)))["release"]
    assert ana.get(f"/v1/releases/{mine}")["by"] == "ana"
    forged = {**release(next(NAMES)), "by": "ben"}
    assert ana.post("/v1/releases", forged, 403)["code"] == "forbidden"
    for header in ("x-forwarded-user", "x-remote-user", "from"):
        body = release(next(NAMES))
        ana("POST", "/v1/releases", json=body, headers={header: "ben"})
        assert ana.get(f"/v1/releases/{body['release']}")["by"] == "ana"


def test_a_release_is_reserved_and_committed(ana: Caller) -> None:
    body = {**release(next(NAMES), "0.004"), "mode": "reserve"}
    ana.post("/v1/releases", body)
    path = f"/v1/releases/{body['release']}"
    assert ana.get(path)["status"] == "reserved"
    ana.post(f"{path}/commit", {"used": release(body["release"], "4e-3")})
    assert ana.get(path)["status"] == "committed"
    assert ana.post(f"{path}/commit", {}, 409)["code"] == "not-reserved"
    assert ana.post("/v1/releases/nothing/commit", {}, 404)["code"] == "not-found"


def test_a_void_needs_approval_and_a_reason(ana: Caller, pia: Caller, server: Server) -> None:
    body = {**release(next(NAMES)), "mode": "reserve"}
    ana.post("/v1/releases", body)
    path = f"/v1/releases/{body['release']}"
    assert ana.post(f"{path}/void", {}, 422)["code"] == "because-missing"
    number = ana.post(f"{path}/void", {"because": "never started"}, 202)["proposal"]
    assert ana.get(path)["status"] == "reserved"
    assert number in [p["proposal"] for p in pia.get("/v1/proposals")["proposals"]]
    assert pia.get(f"/v1/proposals/{number}")["because"] == "never started"
    pia.post(f"/v1/proposals/{number}/approve", {"because": "I saw the logs"})
    assert ana.get(path)["status"] == "voided"
    refused = pia.post(f"/v1/proposals/{number}/approve", {}, 409)
    assert refused["code"] == "already-answered"
    assert pia.post("/v1/proposals/999999/reject", {}, 404)["code"] == "not-found"
    submitted = {key: value for key, value in body.items() if key != "mode"}
    assert ana.post("/v1/releases", submitted, 409)["code"] == "already-voided"


def test_a_partial_commit_is_refused_if_voids_need_approval(ana: Caller, olga: Caller) -> None:
    body = {**release(next(NAMES), "0.004"), "mode": "reserve"}
    ana.post("/v1/releases", body)
    path = f"/v1/releases/{body['release']}"
    smaller, same = release(body["release"], "0.000001"), release(body["release"], "0.004")
    # If olga commits `same`, it differs from the reservation: its author is olga.
    for caller, used in ((ana, smaller), (olga, smaller), (olga, same)):
        refused = caller.post(f"{path}/commit", {"used": used}, 403)
        assert refused["code"] == "needs-second-person" and "without `used`" in refused["detail"]
    assert ana.get(path)["status"] == "reserved"
    ana.post(f"{path}/commit", {})
    assert ana.get(path)["body"]["mechanisms"][0]["mechanism"]["epsilon"] == 0.004


def test_a_partial_commit_is_allowed_if_voids_need_no_approval(tmp_path: Path) -> None:
    (tmp_path / "access.yaml").write_text(access("approval: {void: false}\n"))
    activate_policy(str(tmp_path / "ledger.db"))
    options = ("--access", str(tmp_path / "access.yaml"))
    with serving(str(tmp_path / "ledger.db"), *options) as server:
        ana = Caller(server, "ana")
        ana.post("/v1/releases", {**release("held", "0.004"), "mode": "reserve"})
        path = "/v1/releases/held"
        larger = {"used": release("held", "0.008")}
        assert ana.post(f"{path}/commit", larger, 422)["code"] == "more-than-reserved"
        ana.post(f"{path}/commit", {"used": release("held", "0.002")})
        committed = ana.get(path)
        assert committed["status"] == "committed"
        assert committed["body"]["mechanisms"][0]["mechanism"]["epsilon"] == 0.002


@pytest.mark.parametrize(("first", "then"), [("commit", "reserve"), ("reserve", "commit")])
def test_an_id_has_one_mode(ana: Caller, first: str, then: str) -> None:
    """Otherwise the server could report a reservation as charged, and it could be voided later."""
    body = release(next(NAMES))
    ana.post("/v1/releases", {**body, "mode": first})
    refused = ana.post("/v1/releases", {**body, "mode": then}, 422)
    assert refused["code"] == "id-taken" and f"`mode: {first}`" in refused["detail"]
    assert ana.post("/v1/releases", {**body, "mode": first})["replayed"]
    denied = release(next(NAMES), "50")
    ana.post("/v1/releases", {**denied, "mode": first})
    assert ana.post("/v1/releases", {**denied, "mode": then})["decision"] == "deny"


def test_an_analyst_neither_ends_nor_reads_releases_of_others(ana: Caller, server: Server) -> None:
    ben = Caller(server, "ben")
    body = {**release(next(NAMES)), "mode": "reserve"}
    ana.post("/v1/releases", body)
    path = f"/v1/releases/{body['release']}"
    for action in (f"{path}/commit", f"{path}/void"):
        assert ben.post(action, {}, 403)["code"] == "forbidden"
    ben.get(path, 403)
    assert ana.get(path)["status"] == "reserved"
    listed = ben.get("/v1/releases", limit=1000)["releases"]
    assert body["release"] not in [r["release"] for r in listed]
    taken = ben.post("/v1/releases", release(body["release"]), 422)
    assert taken["code"] == "id-taken"


def test_an_analyst_does_not_see_the_ids_of_other_spenders(server: Server, olga: Caller) -> None:
    ana, ben = Caller(server, "ana"), Caller(server, "ben")
    for name, person in (("spent-by-ana", ana), ("spent-by-ben", ben)):
        decision = person.post("/v1/releases", release(name, "0.002", attributes=["zip"]))
        assert decision["decision"] == "allow"

    def visible_spenders(statuses: list[Any]) -> set[str]:
        spenders = {name for status in statuses for name in status["spent-most"]}
        return spenders & {"spent-by-ana", "spent-by-ben"}

    body = release("too-large", "5", attributes=["zip"])
    for statuses in (
        ana.get("/v1/budgets")["budgets"],
        ana.post("/v1/check", body)["reasons"],
        ana.post("/v1/releases", body)["reasons"],
        ana.post("/v1/releases", body)["reasons"],
    ):
        assert visible_spenders(statuses) == {"spent-by-ana"}
    for statuses in (
        olga.get("/v1/budgets")["budgets"],
        olga.post("/v1/check", release("also-too-large", "5", attributes=["zip"]))["reasons"],
    ):
        assert visible_spenders(statuses) == {"spent-by-ana", "spent-by-ben"}


def test_releases_are_listed_in_pages(ana: Caller) -> None:
    names = [ana.post("/v1/releases", release(next(NAMES)))["release"] for _ in range(3)]
    first = ana.get("/v1/releases", limit=2)
    assert [r["release"] for r in first["releases"]] == names[:0:-1]
    second = ana.get("/v1/releases", limit=2, before=first["before"])
    assert second["releases"][0]["release"] == names[0]
    assert ana.get("/v1/releases", contains=names[0], status="allowed")["releases"]
    assert not ana.get("/v1/releases", contains=names[0], status="denied")["releases"]


def test_budgets_rules_and_policy_are_returned(ana: Caller) -> None:
    ana.post("/v1/releases", release(next(NAMES), "0.001", attributes=["zip"]))
    budgets = ana.get("/v1/budgets", rule="zips")
    assert budgets["total"] == 1 and budgets["budgets"][0]["spent"]["epsilon"] > 0
    assert ana.get("/v1/budgets", at="country=CH")["total"] == 2
    assert ana.get("/v1/budgets", 400, at="nowhere")["code"] == "bad-request"
    assert ana.get("/v1/budgets", 422, at="planet=Mars")["code"] == "misused"
    assert [r["name"] for r in ana.get("/v1/rules")["rules"]] == ["global", "zips"]
    policy = ana.get("/v1/policy")
    assert policy["sources"] == [{"name": "policy.yaml", "text": POLICY}]


def sources(text: str) -> dict[str, Any]:
    return {"sources": [{"name": "policy.yaml", "text": text}]}


def test_a_candidate_is_planned_before_it_is_applied(
    olga: Caller, ana: Caller, server: Server
) -> None:
    spent = ana.post("/v1/releases", release(next(NAMES), "0.1", attributes=["zip"]))["release"]
    tight = POLICY.replace("epsilon: 1,", "epsilon: 0.05,")
    plan = olga.post("/v1/policies:plan", sources(tight))
    assert [c["change"] for c in plan["changes"]] == ["tightened"]
    assert plan["conflicts"][0]["rule"] == "zips" and not plan["needs-second-person"]
    assert spent in plan["impact"]["would-be-denied"] and plan["impact"]["complete"]
    assert olga.post("/v1/policies:apply", sources(tight), 409)["conflicts"]
    invalid = olga.post("/v1/policies:plan", sources("dpolicy: 1\nploicies: []\n"), 422)
    assert invalid["diagnostics"][0]["line"] == 2
    loose = POLICY.replace("epsilon: 1,", "epsilon: 1.5,")
    assert olga.post("/v1/policies:plan", sources(loose))["needs-second-person"]
    number = olga.post("/v1/policies:apply", sources(loose), 202)["proposal"]
    assert Caller(server, "pia").post(f"/v1/proposals/{number}/approve", {}, 403)
    assert olga.post(f"/v1/proposals/{number}/approve", {}, 403)["code"] == "second-person"
    otto = Caller(server, "otto")
    assert otto.get(f"/v1/proposals/{number}")["sources"][0]["text"] == loose
    otto.post(f"/v1/proposals/{number}/approve", {})
    assert olga.get("/v1/policy")["sources"][0]["text"] == loose
    olga.post("/v1/policies:apply", sources(POLICY))
    assert olga.get("/v1/policy")["sources"][0]["text"] == POLICY


def test_past_releases_are_imported_and_rounds_run(olga: Caller) -> None:
    past = [release(next(NAMES), "0.001"), release(next(NAMES), "0.001")]
    body = {"releases": past, "because": "from the wiki"}
    first = olga.post("/v1/releases:import", body)
    assert olga.post("/v1/releases:import", body)["imported"] == first["imported"]
    unresolvable = [release(next(NAMES)), release(next(NAMES), attributes=["nothing"])]
    assert olga.post("/v1/releases:import", {"releases": unresolvable}, 422)
    olga.get(f"/v1/releases/{unresolvable[0]['release']}", 404)
    candidates = [release(next(NAMES), "0.001") for _ in range(3)]
    dry = olga.post("/v1/allocate", {"releases": candidates, "dry-run": True})
    assert len(dry["selected"]) == 3 and not dry["decisions"]
    assert len(olga.post("/v1/allocate", {"releases": candidates})["decisions"]) == 3


def test_a_client_with_a_stored_head_can_verify_later_records(olga: Caller, ana: Caller) -> None:
    stored = olga.get("/v1/log/head")
    ana.post("/v1/releases", release(next(NAMES)))
    page = olga.get("/v1/log/records", behind=stored["sequence"])
    assert page["behind"] == {"sequence": stored["sequence"], "head": stored["head"]}
    head = bytes.fromhex(stored["head"])
    for record in page["records"]:
        number = record["sequence"].to_bytes(8, "big")
        head = hashlib.sha256(head + number + record["payload"].encode()).digest()
        assert head.hex() == record["hash"]
    assert olga.get("/v1/log/head")["head"] == head.hex()
    assert olga.get("/v1/log/records", limit=1)["behind"]["head"] == GENESIS.hex()
    olga.get("/v1/log/records", 404, behind=10**9)


def test_the_whole_log_is_exported(olga: Caller) -> None:
    head = olga.get("/v1/log/head")["sequence"]
    lines = olga.get("/v1/export/events").splitlines()
    assert len(lines) >= head and json.loads(lines[0])["event"] == "policy-applied"
    assert olga.get("/v1/export/csv").startswith("release,sequence,")
    assert "api-" in olga.get("/v1/export/registry")
    olga.get("/v1/export/registry", 404, release="nothing")


def test_health_and_metrics_are_returned(server: Server, olga: Caller) -> None:
    anonymous = Caller(server, None)
    assert anonymous.get("/health/live")["live"]
    assert anonymous.get("/health/ready")["ready"] and anonymous.get("/health")["ready"]
    metrics = olga.get("/metrics")
    assert 'dpolicy_http_requests_total{operation="live",status="200"}' in metrics
    assert "dpolicy_ledger_sequence " in metrics
    assert olga.get("/v1/who")["roles"] == ["officer"]


def evaluation(body: dict[str, Any], subject: str = "ana", action: str = "release") -> Any:
    properties = {"mechanisms": body["mechanisms"]}
    return {
        "subject": {"type": "user", "id": subject},
        "action": {"name": action},
        "resource": {"type": "release", "id": body["release"], "properties": properties},
    }


def test_an_authzen_evaluation_charges_nothing(ana: Caller, olga: Caller) -> None:
    before = olga.get("/v1/log/head")["sequence"]
    body = release(next(NAMES))
    assert ana.post("/access/v1/evaluation", evaluation(body))["decision"]
    large = release(next(NAMES), "50")
    denied = ana.post("/access/v1/evaluation", evaluation(large))
    assert not denied["decision"] and denied["context"]["exceeded"] == ["global"]
    for invalid in (
        evaluation(body, subject="ben"),
        evaluation(body, action="spend"),
        {**evaluation(body), "resource": {"type": "release", "id": "x"}},
        evaluation(release(next(NAMES), attributes=["nothing"])),
    ):
        result = ana.post("/access/v1/evaluation", invalid)
        assert result["decision"] is False and result["context"]["code"]
    many = {**evaluation(body), "evaluations": [{}, evaluation(large), {}]}
    results = ana.post("/access/v1/evaluations", many)["evaluations"]
    assert [result["decision"] for result in results] == [True, False, True]
    until_denial = {**many, "options": {"evaluations_semantic": "deny_on_first_deny"}}
    assert len(ana.post("/access/v1/evaluations", until_denial)["evaluations"]) == 2
    for invalid in ({}, {**evaluation(body), "subject": "ana"}):
        assert ana.post("/access/v1/evaluation", invalid, 422)["code"] == "invalid"
    for invalid in ({}, {"evaluations": [{}] * 51}, {"evaluations": [1]}):
        assert ana.post("/access/v1/evaluations", invalid, 422)["code"] == "invalid"
    assert not ana.post("/access/v1/evaluations", {"evaluations": [{}]})["evaluations"][0][
        "decision"
    ]
    assert olga.get("/v1/log/head")["sequence"] == before


def test_every_problem_code_is_documented() -> None:
    documented = {
        code
        for path in DOCUMENT["paths"].values()
        for operation in path.values()
        for response in operation["responses"].values()
        for content in response["content"].values()
        for part in content["schema"].get("allOf", ())
        for code in part.get("properties", {}).get("code", {}).get("enum", ())
    }
    assert documented | {"method-not-allowed"} == PROBLEMS.keys()
