"""A client gives what a decision point would give: values, errors, and one charge for one id."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import socket
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.client.proxies import swallowing
from tests.service.servers import POLICY, Server, access, policy_in_force, release, serving, token

import dpolicy
from dpolicy.client import client as client_module
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
    policy_in_force(str(folder / "ledger.db"))
    with serving(str(folder / "ledger.db"), "--access", str(folder / "access.yaml")) as found:
        yield found


@pytest.fixture
def ana(server: Server) -> Iterator[dpolicy.Client]:
    with dpolicy.Client(server.url, token("ana")) as client:
        yield client


def exact(name: str, epsilon: str = "0.001") -> dict[str, Any]:
    noise = {"kind": "declared", "epsilon": Fraction(epsilon)}
    return {"release": name, "mechanisms": [{"mechanism": noise}]}


def test_it_answers_what_a_decision_point_answers(ana: dpolicy.Client) -> None:
    """The same calls on a ledger of one's own, and on a service, until they differ."""
    own = DecisionPoint(MemoryStore())
    own.apply(compile_policy([Source("policy.yaml", POLICY)]))
    for number, epsilon in enumerate(("0.25", "0.5", "5", "0.125")):
        body = {**exact(f"same-{number}", epsilon), "by": "ana"}
        here, there = own.submit(body), ana.submit(body)
        assert here == there
        assert ana.submit(body) == own.submit(body)
        assert ana.check(body).replayed
    told = {standing.rule: dict(standing.spent) for standing in ana.budgets()}
    assert told == {balance.rule.name: dict(balance.spent) for balance in own.budgets()}
    own.close()


def test_reservations_end_as_they_do_anywhere(ana: dpolicy.Client) -> None:
    assert ana.reserve(exact("held", "0.002")).allowed
    with pytest.raises(RequestRefused) as alone:
        ana.commit("held", exact("held", "0.001"))
    assert alone.value.code == "needs-second-person"
    assert ana.commit("held", exact("held", "0.002")) == ana.position.sequence
    assert ana.release("held")["status"] == "committed"
    ana.reserve(exact("a/b c", "0.002"))
    with pytest.raises(ApprovalRequired) as waiting:
        ana.void("a/b c", "never started")
    with pytest.raises(ApprovalRequired) as again:
        ana.void("a/b c", "never started")
    assert waiting.value.proposal == again.value.proposal


def test_a_gated_run_is_charged_in_full_where_nobody_gives_back_alone(
    ana: dpolicy.Client,
) -> None:
    noise = {"mechanism": {"kind": "declared", "epsilon": Fraction("0.002")}}
    less = {"mechanism": {"kind": "declared", "epsilon": Fraction("0.001")}}
    with Gate(ana).reserve("gated", noise) as run:
        run.report_used(less)
    said = ana.release(run.release)
    assert said["status"] == "committed"
    assert said["body"]["mechanisms"][0]["mechanism"]["epsilon"] == 0.002


def test_officers_have_their_calls(server: Server, tmp_path: Path) -> None:
    with dpolicy.Client(server.url, token("olga")) as olga:
        first = olga.import_past(exact("past"), "from the wiki")
        assert olga.import_past(exact("past"), "from the wiki") == first
        tight = compile_policy([Source("p.yaml", POLICY.replace("epsilon: 1,", "epsilon: 1e-9,"))])
        assert olga.plan(tight)["changes"][0]["change"] == "tightened"
        (tmp_path / "policy.yaml").write_text(POLICY.replace("epsilon: 2,", "epsilon: 1e-9,"))
        with pytest.raises(PolicyConflicts) as conflict:
            olga.apply(tmp_path / "policy.yaml")
        assert conflict.value.conflicts
        assert olga.apply(compile_policy([Source("policy.yaml", POLICY)])) > first
        assert len(olga.allocate([exact("won")])["chosen"]) == 1
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
    with pytest.raises(ReleaseRejected) as unreadable:
        ana.submit(release("x", attributes=["nothing"]))
    assert unreadable.value.problems[0].code == "R002"
    with pytest.raises(OperationRejected) as missing:
        ana.commit("nothing")
    assert missing.value.code == "not-found"
    with pytest.raises(RequestRefused) as forbidden:
        ana.import_past(exact("y"))
    assert forbidden.value.code == "forbidden"
    with (
        dpolicy.Client(server.url, "nonsense") as stranger,
        pytest.raises(RequestRefused) as unknown,
    ):
        stranger.whoami()
    assert unknown.value.code == "unauthenticated"


def test_every_problem_becomes_its_error_again() -> None:
    for error in (
        OperationRejected("because", "id-taken"),
        RequestRefused("forbidden", "because"),
        LedgerUnavailable("because"),
        LedgerDamaged("because"),
        ReleaseRejected([InvalidValue("R002", "no such attribute")]),
    ):
        again = error_from_problem(*problem_from_error(error))
        assert (type(again), str(again)) == (type(error), str(error))
    for code in PROBLEMS:
        assert isinstance(error_from_problem(code, "", {}), dpolicy.DPolicyError)


def spent(server: Server) -> float:
    with dpolicy.Client(server.url, token("udo")) as auditor:
        found = {standing.rule: standing.spent["epsilon"] for standing in auditor.budgets()}
    return found["global"] or 0.0


def test_a_swallowed_answer_counts_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "RETRY_DELAYS", (0.01, 0.01, 0.01))
    before = spent(server)
    with swallowing(server.url) as proxy, dpolicy.Client(proxy.url, token("ana")) as far:
        proxy.swallow = 2
        decision = far.submit(exact("swallowed", "0.0625"))
        assert decision.replayed and decision.allowed and proxy.asked == 3
        assert spent(server) == pytest.approx(before + 0.0625)
        far.reserve(exact("kept", "0.03125"))
        proxy.swallow = 1
        assert far.commit("kept") == far.release("kept")["sequence"]
        with pytest.raises(OperationRejected):
            far.commit("kept")
        proxy.swallow = 4
        with pytest.raises(LedgerUnavailable, match="same id"):
            far.submit(exact("given-up"))


def test_a_new_id_for_each_attempt_would_be_charged_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The canary of the test above."""
    monkeypatch.setattr(client_module, "RETRY_DELAYS", (0.01, 0.01, 0.01))
    numbers = itertools.count()
    real = client_module._Session._request

    def forgetful(self: Any, ask: Any) -> dict[str, Any]:
        said = real(self, ask)
        renamed = (said["content"] or b"").replace(b"doubled", b"doubled-%d" % next(numbers))
        return {**said, "content": renamed}

    monkeypatch.setattr(client_module._Session, "_request", forgetful)
    before = spent(server)
    with swallowing(server.url) as proxy, dpolicy.Client(proxy.url, token("ana")) as far:
        proxy.swallow = 2
        far.submit(exact("doubled", "0.0625"))
    assert spent(server) > before + 0.1


def test_nobody_there_is_an_error_with_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "RETRY_DELAYS", (0.01,))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        dpolicy.Client(f"http://127.0.0.1:{port}") as client,
        pytest.raises(LedgerUnavailable, match="does not answer"),
    ):
        client.check(exact("x"))


def test_the_asynchronous_client_has_the_same_calls(server: Server) -> None:
    async def both() -> list[Decision]:
        async with dpolicy.AsyncClient(server.url, token("ana")) as client:
            asked = [client.submit(exact(f"async-{n % 10}")) for n in range(30)]
            found = await asyncio.gather(*asked)
            with pytest.raises(OperationRejected):
                await client.commit("nothing")
            return found

    found = asyncio.run(both())
    assert sum(not decision.replayed for decision in found) == 10
    names = {name for name, _ in inspect.getmembers(dpolicy.Client, inspect.isfunction)}
    others = {name for name, _ in inspect.getmembers(dpolicy.AsyncClient, inspect.isfunction)}
    dunder = {"__enter__", "__exit__", "__aenter__", "__aexit__"}
    assert names - dunder == others - dunder


def test_the_calls_are_those_of_a_decision_point() -> None:
    for name in ("submit", "reserve", "check", "commit", "void", "apply", "import_past", "budgets"):
        here = inspect.signature(getattr(DecisionPoint, name)).parameters
        there = inspect.signature(getattr(dpolicy.Client, name)).parameters
        local_only = {"expected_policy"}  # a server checks the policy itself
        assert [p for p in here if p not in local_only] == list(there), name
