"""A client returns the values and errors of a decision point, and one id is charged once."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import socket
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.client.proxies import dropping_proxy
from tests.service.servers import POLICY, Server, access, activate_policy, release, serving, token

import dpolicy
from dpolicy.client import transport
from dpolicy.client.wire import error_from_problem
from dpolicy.errors import (
    ApprovalRequired,
    InvalidValue,
    LedgerDamaged,
    LedgerUnavailable,
    OperationRejected,
    PolicyConflicts,
    PolicyRejected,
    ReleaseRejected,
    RequestRefused,
)
from dpolicy.integrations.gate import Gate
from dpolicy.ledger.chain_reader import Head
from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.releases.decision import Decision
from dpolicy.rules.compiler import compile_policy
from dpolicy.service.http.problem_details import PROBLEMS, problem_from_error
from dpolicy.text.yaml_reader import Source


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("client")
    (folder / "access.yaml").write_text(access())
    activate_policy(str(folder / "ledger.db"))
    with serving(str(folder / "ledger.db"), "--access", str(folder / "access.yaml")) as running:
        yield running


@pytest.fixture
def ana(server: Server) -> Iterator[dpolicy.Client]:
    with dpolicy.Client(server.url, token("ana")) as client:
        yield client


def release_body(name: str, epsilon: str = "0.001") -> dict[str, Any]:
    """A release of one mechanism whose ε is an exact fraction."""
    noise = {"kind": "declared", "epsilon": Fraction(epsilon)}
    return {"release": name, "mechanisms": [{"mechanism": noise}]}


def test_a_client_returns_the_decisions_of_a_decision_point(ana: dpolicy.Client) -> None:
    """Submit the same releases to a local ledger and to a server; compare the decisions."""
    local = DecisionPoint(MemoryStore())
    local.apply(compile_policy([Source("policy.yaml", POLICY)]))
    for number, epsilon in enumerate(("0.25", "0.5", "5", "0.125")):
        body = {**release_body(f"same-{number}", epsilon), "by": "ana"}
        assert local.submit(body) == ana.submit(body)
        assert ana.submit(body) == local.submit(body)
        assert ana.submit(body).counter_offers == local.submit(body).counter_offers
        assert ana.check(body).replayed
    remote_spent = {status.rule: dict(status.spent) for status in ana.budgets()}
    assert remote_spent == {status.rule.name: dict(status.spent) for status in local.budgets()}
    local.close()


def test_many_releases_have_the_results_of_single_ones(ana: dpolicy.Client) -> None:
    local = DecisionPoint(MemoryStore())
    local.apply(compile_policy([Source("policy.yaml", POLICY)]))
    valid = {**release_body("many-1"), "by": "ana"}
    malformed = {"release": "x", "mechanisms": []}
    bodies = [valid, malformed, release("many-2", attributes=["nothing"]), valid]
    remote, expected = ana.submit_many(bodies), local.submit_many(bodies, "ana")
    assert [type(result) for result in remote] == [type(result) for result in expected]
    assert [getattr(result, "allowed", None) for result in remote] == [True, None, None, True]
    assert [getattr(result, "replayed", None) for result in remote] == [False, None, None, True]

    async def submit() -> list[Decision | dpolicy.DPolicyError]:
        async with dpolicy.AsyncClient(ana._url, token("ana")) as client:
            return await client.submit_many(bodies[:1])

    assert asyncio.run(submit()) == [remote[3]]
    local.close()


def test_reservations_are_committed_and_voided(ana: dpolicy.Client) -> None:
    assert ana.reserve(release_body("held", "0.002")).allowed
    with pytest.raises(RequestRefused) as refused:
        ana.commit("held", release_body("held", "0.001"))
    assert refused.value.code == "needs-second-person"
    assert ana.commit("held", release_body("held", "0.002")) == ana.position.sequence
    assert ana.release("held")["status"] == "committed"
    ana.reserve(release_body("a/b c", "0.002"))
    with pytest.raises(ApprovalRequired) as first:
        ana.void("a/b c", "never started")
    with pytest.raises(ApprovalRequired) as second:
        ana.void("a/b c", "never started")
    assert first.value.proposal == second.value.proposal


def test_a_gated_run_is_charged_in_full_if_voids_need_approval(
    ana: dpolicy.Client,
) -> None:
    noise = {"mechanism": {"kind": "declared", "epsilon": Fraction("0.002")}}
    smaller = {"mechanism": {"kind": "declared", "epsilon": Fraction("0.001")}}
    with Gate(ana).reserve("gated", noise) as run:
        run.report_used(smaller)
    payload = ana.release(run.release)
    assert payload["status"] == "committed"
    assert payload["body"]["mechanisms"][0]["mechanism"]["epsilon"] == 0.002


def test_an_officer_imports_plans_applies_and_allocates(server: Server, tmp_path: Path) -> None:
    with dpolicy.Client(server.url, token("olga")) as olga:
        first = olga.import_past(release_body("past"), "from the wiki")
        assert olga.import_past(release_body("past"), "from the wiki") == first
        dated = release_body("dated")
        assert olga.import_past(dated, released="2019-02-28") == first + 1
        with pytest.raises(OperationRejected, match="recorded with the date 2019-02-28"):
            olga.import_past(dated, released="2019-03-01")
        tight = compile_policy([Source("p.yaml", POLICY.replace("epsilon: 1,", "epsilon: 1e-9,"))])
        assert olga.plan(tight)["changes"][0]["change"] == "tightened"
        (tmp_path / "policy.yaml").write_text(POLICY.replace("epsilon: 2,", "epsilon: 1e-9,"))
        with pytest.raises(PolicyConflicts) as conflict:
            olga.apply(tmp_path / "policy.yaml")
        assert conflict.value.conflicts
        with pytest.raises(OperationRejected, match="no conflict `glob`; conflicts: "):
            olga.apply(tmp_path / "policy.yaml", accept="glob")
        assert olga.apply(compile_policy([Source("policy.yaml", POLICY)])) > first
        assert len(olga.allocate([release_body("selected")])["selected"]) == 1
        records = list(olga.records())
        since = Head(records[3].sequence, records[3].digest)
        assert list(olga.records(since)) == records[4:]
        assert records[-1].digest == olga.position.digest
        with pytest.raises(dpolicy.DPolicyError):
            list(olga.records(Head(since.sequence, b"another")))


def test_errors_are_those_of_the_library(ana: dpolicy.Client, server: Server) -> None:
    with pytest.raises(PolicyRejected) as rejected:
        ana.submit({"release": "x", "mechanisms": []})
    assert "P007" in str(rejected.value)
    with pytest.raises(ReleaseRejected) as unresolvable:
        ana.submit(release("x", attributes=["nothing"]))
    assert unresolvable.value.problems[0].code == "R002"
    with pytest.raises(OperationRejected) as missing:
        ana.commit("nothing")
    assert missing.value.code == "not-found"
    with pytest.raises(RequestRefused) as forbidden:
        ana.import_past(release_body("y"))
    assert forbidden.value.code == "forbidden"
    with (
        dpolicy.Client(server.url, "nonsense") as stranger,
        pytest.raises(RequestRefused) as unknown,
    ):
        stranger.whoami()
    assert unknown.value.code == "unauthenticated"


def test_every_problem_is_decoded_to_its_error() -> None:
    for error in (
        OperationRejected("because", "id-taken"),
        RequestRefused("forbidden", "because"),
        LedgerUnavailable("because"),
        LedgerDamaged("because"),
        ReleaseRejected([InvalidValue("R002", "no such attribute")]),
    ):
        decoded = error_from_problem(*problem_from_error(error))
        assert (type(decoded), str(decoded)) == (type(error), str(error))
    for code in PROBLEMS:
        assert isinstance(error_from_problem(code, "", {}), dpolicy.DPolicyError)


def read_global_spending(server: Server) -> float:
    """Return the displayed ε that the rule `global` has spent."""
    with dpolicy.Client(server.url, token("udo")) as auditor:
        spent = {status.name: status.spent["epsilon"] for status in auditor.budgets()}
    return spent["global"] or 0.0


def test_a_retry_after_a_lost_response_is_charged_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "RETRY_DELAYS", (0.01, 0.01, 0.01))
    before = read_global_spending(server)
    with dropping_proxy(server.url) as proxy, dpolicy.Client(proxy.url, token("ana")) as client:
        proxy.responses_to_drop = 2
        decision = client.submit(release_body("lost-response", "0.0625"))
        assert decision.replayed and decision.allowed and proxy.request_count == 3
        assert read_global_spending(server) == pytest.approx(before + 0.0625)
        client.reserve(release_body("held-2", "0.03125"))
        proxy.responses_to_drop = 1
        assert client.commit("held-2") == client.release("held-2")["sequence"]
        with pytest.raises(OperationRejected):
            client.commit("held-2")
        proxy.responses_to_drop = 4
        with pytest.raises(LedgerUnavailable, match="same id"):
            client.submit(release_body("given-up"))


def test_a_new_id_for_each_attempt_is_charged_more_than_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Canary of the test above: a client that changes the id in each attempt overcharges."""
    monkeypatch.setattr(transport, "RETRY_DELAYS", (0.01, 0.01, 0.01))
    numbers = itertools.count()
    original = transport.Session._request_arguments

    def with_new_id(self: Any, call: Any) -> dict[str, Any]:
        arguments = original(self, call)
        content = arguments["content"] or b""
        renamed = content.replace(b"doubled", b"doubled-%d" % next(numbers))
        return {**arguments, "content": renamed}

    monkeypatch.setattr(transport.Session, "_request_arguments", with_new_id)
    before = read_global_spending(server)
    with dropping_proxy(server.url) as proxy, dpolicy.Client(proxy.url, token("ana")) as client:
        proxy.responses_to_drop = 2
        client.submit(release_body("doubled", "0.0625"))
    assert read_global_spending(server) > before + 0.1


def test_an_unreachable_server_is_an_error_with_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "RETRY_DELAYS", (0.01,))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        dpolicy.Client(f"http://127.0.0.1:{port}") as client,
        pytest.raises(LedgerUnavailable, match="no response from the service"),
    ):
        client.check(release_body("x"))


def test_the_asynchronous_client_has_the_same_calls(server: Server) -> None:
    async def submit_all() -> list[Decision]:
        async with dpolicy.AsyncClient(server.url, token("ana")) as client:
            requests = [client.submit(release_body(f"async-{n % 10}")) for n in range(30)]
            decisions = await asyncio.gather(*requests)
            with pytest.raises(OperationRejected):
                await client.commit("nothing")
            return decisions

    decisions = asyncio.run(submit_all())
    assert sum(not decision.replayed for decision in decisions) == 10
    names = {name for name, _ in inspect.getmembers(dpolicy.Client, inspect.isfunction)}
    async_names = {name for name, _ in inspect.getmembers(dpolicy.AsyncClient, inspect.isfunction)}
    dunder = {"__enter__", "__exit__", "__aenter__", "__aexit__"}
    assert names - dunder == async_names - dunder


def test_both_clients_have_the_same_signatures_and_docstrings() -> None:
    for name, method in inspect.getmembers(dpolicy.Client, inspect.isfunction):
        if name in ("__enter__", "__exit__"):
            continue
        async_method = getattr(dpolicy.AsyncClient, name)
        assert method.__doc__ == async_method.__doc__, name
        if name != "records":  # Iterator or AsyncIterator
            assert inspect.signature(method) == inspect.signature(async_method), name


def test_the_calls_are_those_of_a_decision_point() -> None:
    """Only `by` and `expected_policy` are missing: the server fills them in."""
    changes = ("submit", "reserve", "commit", "void", "apply", "import_past")
    for name in (*changes, "check", "budgets", "headroom", "spent"):
        local = inspect.signature(getattr(DecisionPoint, name)).parameters
        remote = inspect.signature(getattr(dpolicy.Client, name)).parameters
        omitted = {"expected_policy"} if "by" in remote else {"expected_policy", "by"}
        assert [parameter for parameter in local if parameter not in omitted] == list(remote), name
    assert "by" in inspect.signature(dpolicy.Client.submit).parameters
    assert "by" in inspect.signature(dpolicy.Client.reserve).parameters


@pytest.mark.parametrize(
    "statement", ["import dpolicy.client.client", "from dpolicy import AsyncClient, Client"]
)
def test_importing_a_client_loads_neither_numpy_nor_the_policy_language(statement: str) -> None:
    program = f"import sys; {statement}; print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    loaded = set(output.split())
    assert "dpolicy.client.client" in loaded
    heavy = {"numpy", "yaml", "dpolicy.policy", "dpolicy.rules", "dpolicy.predicates"}
    assert not heavy & loaded
