"""Every line of the API does what it says, and answers as its schema says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from tests.service.servers import POLICY, Server, access, policy_in_force, release, serving

from dpolicy.ledger.chain import GENESIS
from dpolicy.service.api.openapi import openapi_document
from dpolicy.service.api.routes import ENDPOINTS
from dpolicy.service.http.endpoint import Endpoint
from dpolicy.service.http.problem_details import PROBLEMS

DOCUMENT = openapi_document()
JSON = ("application/json", "application/problem+json")


class Caller:
    """A person; whatever they are answered is held against the document."""

    def __init__(self, server: Server, person: str | None) -> None:
        self._client = server.client(person)

    def __call__(self, method: str, path: str, expect: int = 200, **more: Any) -> Any:
        answer = self._client.request(method, path, **more)
        assert answer.status_code == expect, answer.text
        check_answer(answer, method, path)
        return answer.json() if answer.headers["content-type"] in JSON else answer.text

    def get(self, path: str, expect: int = 200, **query: Any) -> Any:
        return self("GET", path, expect, params=query)

    def post(self, path: str, body: Any, expect: int = 200) -> Any:
        return self("POST", path, expect, json=body)


def check_answer(answer: httpx.Response, method: str, path: str) -> None:
    """An answer has the ledger's position, and is one that the document knows."""
    sequence, _, head = answer.headers["dpolicy-position"].partition(":")
    assert sequence.isdigit() and len(head) == 64
    told = operation_of(method, path)["responses"][str(answer.status_code)]["content"]
    media = answer.headers["content-type"].partition(";")[0]
    schema = {**told[media]["schema"], "components": DOCUMENT["components"]}
    value: Any = answer.json() if media in JSON else answer.text
    Draft202012Validator(schema).validate(value)
    if media == "application/problem+json":
        assert PROBLEMS[value["code"]].status == answer.status_code


def operation_of(method: str, path: str) -> Any:
    """The operation that a path is of: the one with the fewest parameters."""
    found = [e for e in ENDPOINTS if e.method == method and _fits(e, path.partition("?")[0])]
    named = min(found, key=lambda e: e.path.count("{")).path.replace(":path}", "}")
    return DOCUMENT["paths"][named][method.lower()]


def _fits(endpoint: Endpoint, path: str) -> bool:
    wanted, given = endpoint.path.split("/"), path.split("/")
    return len(wanted) == len(given) and all(
        w == g or w.startswith("{") for w, g in zip(wanted, given, strict=True)
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
    asked = release(next(NAMES))
    first = ana.post("/v1/releases", asked)
    assert first["decision"] == "allow" and not first["replayed"]
    again = ana.post("/v1/releases", asked)
    assert again == {**first, "replayed": True, "position": again["position"]}
    other = release(asked["release"], "0.002")
    assert ana.post("/v1/releases", other, 422)["code"] == "id-taken"
    assert ana.post("/v1/check", asked)["replayed"]


def test_a_denial_is_an_answer_with_reasons(ana: Caller) -> None:
    said = ana.post("/v1/releases", release(next(NAMES), "1.5", attributes=["zip"]))
    assert said["decision"] == "deny"
    assert [r["rule"] for r in said["reasons"] if not r["holds"]] == ["zips"]
    assert said["would-fit"]


def test_a_check_writes_nothing(ana: Caller, olga: Caller) -> None:
    before = olga.get("/v1/log/head")["sequence"]
    said = ana.post("/v1/check", release(next(NAMES)))
    assert said["decision"] == "allow" and said["sequence"] is None
    assert olga.get("/v1/log/head")["sequence"] == before


def test_the_name_of_who_asks_comes_from_the_token(ana: Caller) -> None:
    mine = ana.post("/v1/releases", release(next(NAMES)))["release"]
    assert ana.get(f"/v1/releases/{mine}")["by"] == "ana"
    forged = {**release(next(NAMES)), "by": "ben"}
    assert ana.post("/v1/releases", forged, 403)["code"] == "forbidden"
    for header in ("x-forwarded-user", "x-remote-user", "from"):
        said = ana("POST", "/v1/releases", json=release(next(NAMES)), headers={header: "ben"})
        assert ana.get(f"/v1/releases/{said['release']}")["by"] == "ana"


def test_a_reservation_is_held_and_committed(ana: Caller) -> None:
    asked = {**release(next(NAMES), "0.004"), "mode": "reserve"}
    ana.post("/v1/releases", asked)
    path = f"/v1/releases/{asked['release']}"
    assert ana.get(path)["status"] == "reserved"
    ana.post(f"{path}/commit", {"used": release(asked["release"], "4e-3")})
    assert ana.get(path)["status"] == "committed"
    assert ana.post(f"{path}/commit", {}, 409)["code"] == "not-reserved"
    assert ana.post("/v1/releases/nothing/commit", {}, 404)["code"] == "not-found"


def test_a_void_needs_two_persons_and_a_reason(ana: Caller, pia: Caller, server: Server) -> None:
    asked = {**release(next(NAMES)), "mode": "reserve"}
    ana.post("/v1/releases", asked)
    path = f"/v1/releases/{asked['release']}"
    assert ana.post(f"{path}/void", {}, 422)["code"] == "because-missing"
    number = ana.post(f"{path}/void", {"because": "never started"}, 202)["proposal"]
    assert ana.get(path)["status"] == "reserved"
    assert number in [p["proposal"] for p in pia.get("/v1/proposals")["proposals"]]
    assert pia.get(f"/v1/proposals/{number}")["because"] == "never started"
    pia.post(f"/v1/proposals/{number}/approve", {"because": "I saw the logs"})
    assert ana.get(path)["status"] == "voided"
    again = pia.post(f"/v1/proposals/{number}/approve", {}, 409)
    assert again["code"] == "already-answered"
    assert pia.post("/v1/proposals/999999/reject", {}, 404)["code"] == "not-found"
    released = {key: value for key, value in asked.items() if key != "mode"}
    assert ana.post("/v1/releases", released, 409)["code"] == "already-voided"


def test_nobody_gives_back_alone_by_saying_that_little_was_run(ana: Caller, olga: Caller) -> None:
    asked = {**release(next(NAMES), "0.004"), "mode": "reserve"}
    ana.post("/v1/releases", asked)
    path = f"/v1/releases/{asked['release']}"
    less, same = release(asked["release"], "0.000001"), release(asked["release"], "0.004")
    for caller, used in ((ana, less), (olga, less), (olga, same)):  # hers would be in her name
        said = caller.post(f"{path}/commit", {"used": used}, 403)
        assert said["code"] == "needs-second-person" and "without `used`" in said["detail"]
    assert ana.get(path)["status"] == "reserved"
    ana.post(f"{path}/commit", {})
    assert ana.get(path)["body"]["mechanisms"][0]["mechanism"]["epsilon"] == 0.004


def test_where_one_may_void_one_may_say_what_was_run(tmp_path: Path) -> None:
    (tmp_path / "access.yaml").write_text(access("approval: {void: false}\n"))
    policy_in_force(str(tmp_path / "ledger.db"))
    options = ("--access", str(tmp_path / "access.yaml"))
    with serving(str(tmp_path / "ledger.db"), *options) as server:
        ana = Caller(server, "ana")
        ana.post("/v1/releases", {**release("held", "0.004"), "mode": "reserve"})
        path = "/v1/releases/held"
        more = {"used": release("held", "0.008")}
        assert ana.post(f"{path}/commit", more, 422)["code"] == "more-than-reserved"
        ana.post(f"{path}/commit", {"used": release("held", "0.002")})
        said = ana.get(path)
        assert said["status"] == "committed"
        assert said["body"]["mechanisms"][0]["mechanism"]["epsilon"] == 0.002


@pytest.mark.parametrize(("first", "then"), [("commit", "reserve"), ("reserve", "commit")])
def test_an_id_is_of_one_mode(ana: Caller, first: str, then: str) -> None:
    """Else a reservation could be shown as charged, and be voided afterwards."""
    asked = release(next(NAMES))
    ana.post("/v1/releases", {**asked, "mode": first})
    said = ana.post("/v1/releases", {**asked, "mode": then}, 422)
    assert said["code"] == "id-taken" and f"`mode: {first}`" in said["detail"]
    assert ana.post("/v1/releases", {**asked, "mode": first})["replayed"]
    denied = release(next(NAMES), "50")
    ana.post("/v1/releases", {**denied, "mode": first})
    assert ana.post("/v1/releases", {**denied, "mode": then})["decision"] == "deny"


def test_nobody_ends_or_sees_what_is_anothers(ana: Caller, server: Server) -> None:
    ben = Caller(server, "ben")
    asked = {**release(next(NAMES)), "mode": "reserve"}
    ana.post("/v1/releases", asked)
    path = f"/v1/releases/{asked['release']}"
    for act in (f"{path}/commit", f"{path}/void"):
        assert ben.post(act, {}, 403)["code"] == "forbidden"
    ben.get(path, 403)
    assert ana.get(path)["status"] == "reserved"
    listed = ben.get("/v1/releases", limit=1000)["releases"]
    assert asked["release"] not in [r["release"] for r in listed]
    taken = ben.post("/v1/releases", release(asked["release"]), 422)
    assert taken["code"] == "id-taken"


def test_what_others_spent_is_not_named_to_an_analyst(server: Server, olga: Caller) -> None:
    ana, ben = Caller(server, "ana"), Caller(server, "ben")
    for name, person in (("spent-by-ana", ana), ("spent-by-ben", ben)):
        said = person.post("/v1/releases", release(name, "0.002", attributes=["zip"]))
        assert said["decision"] == "allow"

    def named(told: list[Any]) -> set[str]:
        return {name for one in told for name in one["spent-most"]} & {
            "spent-by-ana",
            "spent-by-ben",
        }

    asked = release("names-nobody", "5", attributes=["zip"])
    for told in (
        ana.get("/v1/budgets")["budgets"],
        ana.post("/v1/check", asked)["reasons"],
        ana.post("/v1/releases", asked)["reasons"],
        ana.post("/v1/releases", asked)["reasons"],
        ana.get("/v1/releases/names-nobody")["decision"]["reasons"],
    ):
        assert named(told) == {"spent-by-ana"}
    for told in (
        olga.get("/v1/budgets")["budgets"],
        olga.get("/v1/releases/names-nobody")["decision"]["reasons"],
    ):
        assert named(told) == {"spent-by-ana", "spent-by-ben"}


def test_releases_are_listed_in_pages(ana: Caller) -> None:
    names = [ana.post("/v1/releases", release(next(NAMES)))["release"] for _ in range(3)]
    first = ana.get("/v1/releases", limit=2)
    assert [r["release"] for r in first["releases"]] == names[:0:-1]
    rest = ana.get("/v1/releases", limit=2, before=first["before"])
    assert rest["releases"][0]["release"] == names[0]
    assert ana.get("/v1/releases", contains=names[0], status="allowed")["releases"]
    assert not ana.get("/v1/releases", contains=names[0], status="denied")["releases"]


def test_budgets_rules_and_policy_are_told(ana: Caller) -> None:
    ana.post("/v1/releases", release(next(NAMES), "0.001", attributes=["zip"]))
    said = ana.get("/v1/budgets", rule="zips")
    assert said["total"] == 1 and said["budgets"][0]["spent"]["epsilon"] > 0
    assert ana.get("/v1/budgets", at="country=CH")["total"] == 2
    assert ana.get("/v1/budgets", 400, at="nowhere")["code"] == "bad-request"
    assert ana.get("/v1/budgets", 422, at="planet=Mars")["code"] == "misused"
    assert [r["name"] for r in ana.get("/v1/rules")["rules"]] == ["global", "zips"]
    told = ana.get("/v1/policy")
    assert told["sources"] == [{"name": "policy.yaml", "text": POLICY}]


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
    wrong = olga.post("/v1/policies:plan", sources("dpolicy: 1\nploicies: []\n"), 422)
    assert wrong["diagnostics"][0]["line"] == 2
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


def test_past_releases_are_charged_and_rounds_chosen(olga: Caller) -> None:
    past = [release(next(NAMES), "0.001"), release(next(NAMES), "0.001")]
    body = {"releases": past, "because": "from the wiki"}
    first = olga.post("/v1/releases:import", body)
    assert olga.post("/v1/releases:import", body)["imported"] == first["imported"]
    unreadable = [release(next(NAMES)), release(next(NAMES), attributes=["nothing"])]
    assert olga.post("/v1/releases:import", {"releases": unreadable}, 422)
    olga.get(f"/v1/releases/{unreadable[0]['release']}", 404)
    some = [release(next(NAMES), "0.001") for _ in range(3)]
    dry = olga.post("/v1/allocate", {"releases": some, "dry-run": True})
    assert len(dry["selected"]) == 3 and not dry["decisions"]
    assert len(olga.post("/v1/allocate", {"releases": some})["decisions"]) == 3


def test_whoever_keeps_a_head_can_check_all_that_follows(olga: Caller, ana: Caller) -> None:
    kept = olga.get("/v1/log/head")
    ana.post("/v1/releases", release(next(NAMES)))
    said = olga.get("/v1/log/records", behind=kept["sequence"])
    assert said["behind"] == {"sequence": kept["sequence"], "head": kept["head"]}
    head = bytes.fromhex(kept["head"])
    for record in said["records"]:
        number = record["sequence"].to_bytes(8, "big")
        head = hashlib.sha256(head + number + record["payload"].encode()).digest()
        assert head.hex() == record["hash"]
    assert olga.get("/v1/log/head")["head"] == head.hex()
    assert olga.get("/v1/log/records", limit=1)["behind"]["head"] == GENESIS.hex()
    olga.get("/v1/log/records", 404, behind=10**9)


def test_the_log_is_exported_whole(olga: Caller) -> None:
    head = olga.get("/v1/log/head")["sequence"]
    lines = olga.get("/v1/export/events").splitlines()
    assert len(lines) >= head and json.loads(lines[0])["event"] == "policy-applied"
    assert olga.get("/v1/export/csv").startswith("release,sequence,")
    assert "api-" in olga.get("/v1/export/registry")
    olga.get("/v1/export/registry", 404, release="nothing")


def test_the_state_of_the_server_is_told(server: Server, olga: Caller) -> None:
    nobody = Caller(server, None)
    assert nobody.get("/health/live")["live"]
    assert nobody.get("/health/ready")["ready"] and nobody.get("/health")["ready"]
    told = olga.get("/metrics")
    assert 'dpolicy_http_requests_total{operation="live",status="200"}' in told
    assert "dpolicy_ledger_sequence " in told
    assert olga.get("/v1/who")["roles"] == ["officer"]


def evaluation(asked: dict[str, Any], subject: str = "ana", action: str = "release") -> Any:
    properties = {"mechanisms": asked["mechanisms"]}
    return {
        "subject": {"type": "user", "id": subject},
        "action": {"name": action},
        "resource": {"type": "release", "id": asked["release"], "properties": properties},
    }


def test_an_authzen_evaluation_never_spends(ana: Caller, olga: Caller) -> None:
    before = olga.get("/v1/log/head")["sequence"]
    asked = release(next(NAMES))
    assert ana.post("/access/v1/evaluation", evaluation(asked))["decision"]
    large = release(next(NAMES), "50")
    denied = ana.post("/access/v1/evaluation", evaluation(large))
    assert not denied["decision"] and denied["context"]["broken"] == ["global"]
    for wrong in (
        evaluation(asked, subject="ben"),
        evaluation(asked, action="spend"),
        {**evaluation(asked), "resource": {"type": "release", "id": "x"}},
        evaluation(release(next(NAMES), attributes=["nothing"])),
    ):
        said = ana.post("/access/v1/evaluation", wrong)
        assert said["decision"] is False and said["context"]["code"]
    many = {**evaluation(asked), "evaluations": [{}, evaluation(large), {}]}
    found = ana.post("/access/v1/evaluations", many)["evaluations"]
    assert [one["decision"] for one in found] == [True, False, True]
    short = {**many, "options": {"evaluations_semantic": "deny_on_first_deny"}}
    assert len(ana.post("/access/v1/evaluations", short)["evaluations"]) == 2
    for wrong in ({}, {**evaluation(asked), "subject": "ana"}):
        assert ana.post("/access/v1/evaluation", wrong, 422)["code"] == "invalid"
    for wrong in ({}, {"evaluations": [{}] * 51}, {"evaluations": [1]}):
        assert ana.post("/access/v1/evaluations", wrong, 422)["code"] == "invalid"
    assert not ana.post("/access/v1/evaluations", {"evaluations": [{}]})["evaluations"][0][
        "decision"
    ]
    assert olga.get("/v1/log/head")["sequence"] == before


def test_every_problem_has_a_status_and_is_told_somewhere() -> None:
    told = {
        code
        for path in DOCUMENT["paths"].values()
        for operation in path.values()
        for answer in operation["responses"].values()
        for content in answer["content"].values()
        for part in content["schema"].get("allOf", ())
        for code in part.get("properties", {}).get("code", {}).get("enum", ())
    }
    assert told | {"method-not-allowed"} == PROBLEMS.keys()
