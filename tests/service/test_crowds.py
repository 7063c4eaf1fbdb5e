"""Concurrent requests, several servers, lost responses: each release is charged exactly once."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
from tests.ledger.postgres_servers import PostgresServer
from tests.service.servers import Server, access, activate_policy, release, serving, token

from dpolicy.ledger.events import ReleaseDecided
from dpolicy.ledger.store_address import open_store
from dpolicy.pdp.audits.audit import audit_ledger, records_with_events
from dpolicy.service.server import keep_state_out_of_collections

#: Number of releases and the ε of each; half of them fit into the budget of 2.
RELEASE_COUNT, EPSILON = 500, "0.008"


def submit_all(
    urls: Sequence[str], releases: Sequence[dict[str, Any]], person: str = "ana"
) -> list[httpx.Response | httpx.HTTPError]:
    """Submit all releases concurrently, in turn to each server."""

    async def send_all() -> list[httpx.Response | httpx.HTTPError]:
        headers = {"authorization": f"Bearer {token(person)}"}
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(headers=headers, timeout=120, limits=limits) as client:

            async def send(number: int, body: dict[str, Any]) -> httpx.Response | httpx.HTTPError:
                try:
                    url = f"{urls[number % len(urls)]}/v1/releases"
                    return await client.post(url, json=body)
                except httpx.HTTPError as error:
                    return error

            return await asyncio.gather(*(send(n, body) for n, body in enumerate(releases)))

    return asyncio.run(send_all())


def decode_all(results: Sequence[httpx.Response | httpx.HTTPError]) -> list[dict[str, Any]]:
    """Return the JSON of all responses; check that no request failed."""
    assert all(isinstance(r, httpx.Response) and r.status_code == 200 for r in results), results
    return [result.json() for result in results if isinstance(result, httpx.Response)]


def load_decisions(ledger: str) -> dict[str, ReleaseDecided]:
    """Return the decisions of a ledger; check that it passes the audit and has each id once."""
    store = open_store(ledger)
    try:
        assert audit_ledger(store).findings == ()
        events = [
            event for _, event in records_with_events(store) if isinstance(event, ReleaseDecided)
        ]
    finally:
        store.close()
    assert len({event.release for event in events}) == len(events)
    return {event.release: event for event in events}


def sum_epsilon(events: dict[str, ReleaseDecided]) -> Fraction:
    mechanisms = [e.body["mechanisms"][0] for e in events.values() if e.allowed]
    return sum((Fraction(m["mechanism"]["epsilon"]) for m in mechanisms), Fraction(0))


def test_a_thousand_at_once_are_each_decided_once(tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.db")
    (tmp_path / "access.yaml").write_text(access())
    activate_policy(ledger)
    releases = [release(f"r{n}", EPSILON) for n in range(RELEASE_COUNT)]
    with serving(ledger, "--access", str(tmp_path / "access.yaml")) as server:
        decisions = decode_all(submit_all([server.url], [*releases, *releases]))
    by_id: dict[str, list[dict[str, Any]]] = {}
    for decision in decisions:
        by_id.setdefault(decision["release"], []).append(decision)
    assert Counter(decision["replayed"] for decision in decisions) == {
        False: RELEASE_COUNT,
        True: RELEASE_COUNT,
    }
    assert all(first["decision"] == second["decision"] for first, second in by_id.values())
    events = load_decisions(ledger)
    assert {name: e.allowed for name, e in events.items()} == {
        name: first["decision"] == "allow" for name, (first, _) in by_id.items()
    }
    assert sum_epsilon(events) == 2


def test_two_servers_on_one_database_never_overspend(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    (tmp_path / "access.yaml").write_text(access())
    activate_policy(postgres.url)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(serving(postgres.url, "--access", str(tmp_path / "access.yaml")))
            for _ in range(2)
        ]
        urls = [server.url for server in servers]
        releases = [release(f"r{n}", EPSILON) for n in range(RELEASE_COUNT // 2 - 10)]
        decisions = decode_all(submit_all(urls, [*releases, *releases[:50]]))
        decisions += decode_all(submit_all(urls, [release(f"s{n}", EPSILON) for n in range(20)]))
        heads = {tuple(_head(server).items()) for server in servers}
        listed = [_releases(server) for server in servers]
    assert len(heads) == 1 and listed[0] == listed[1]
    events = load_decisions(postgres.url)
    assert sum_epsilon(events) == 2
    responses = {decision["release"]: decision["decision"] == "allow" for decision in decisions}
    assert responses == {name: event.allowed for name, event in events.items()}


def _head(server: Server) -> dict[str, Any]:
    payload: dict[str, Any] = server.client("udo").get("/v1/log/head").json()
    return {key: payload[key] for key in ("sequence", "head")}


def _releases(server: Server) -> Any:
    return server.client("udo").get("/v1/releases", params={"limit": 1000}).json()["releases"]


def test_a_proposal_at_one_server_is_approved_at_another(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    (tmp_path / "access.yaml").write_text(access("approval: {when: 'mechanism == \"laplace\"'}\n"))
    noise = {"kind": "laplace", "scale": 100, "sensitivity": 1}
    body = {"release": "pending", "mechanisms": [{"mechanism": noise}]}
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(serving(postgres.url, "--access", str(tmp_path / "access.yaml")))
            for _ in range(2)
        )
        number = one.client("ana").post("/v1/releases", json=body).json()["proposal"]
        answer = other.client("pia").post(f"/v1/proposals/{number}/approve", json={})
        assert answer.status_code == 200, answer.text
        again = one.client("ana").post("/v1/releases", json=body).json()
        assert again["replayed"] and again["sequence"] == answer.json()["sequence"]


def test_a_server_recovers_when_the_database_returns(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    (tmp_path / "access.yaml").write_text(access())
    activate_policy(postgres.url)
    with serving(postgres.url, "--access", str(tmp_path / "access.yaml")) as server:
        client = server.client("ana")
        postgres.kill(signal.SIGQUIT)
        try:
            answer = client.post("/v1/releases", json=release("retried", EPSILON))
            assert (answer.status_code, answer.json()["code"]) == (503, "ledger-unavailable")
            assert client.get("/health/ready").status_code == 503
            assert client.get("/health/live").status_code == 200
        finally:
            postgres.start()
        back = client.post("/v1/releases", json=release("retried", EPSILON))
        assert (back.status_code, back.json()["replayed"]) == (200, False)
        assert client.get("/health/ready").status_code == 200


#: A server that responds before it writes to the ledger.
RESPONDS_BEFORE_COMMIT = """\
from dpolicy.pdp.journal.journal import Journal
from dpolicy.pdp.journal.write_transaction import WriteTransaction
def write_nothing(self, work, size=1):
    with self._write_lock:
        return work(WriteTransaction(self._open_writer().state, None, self._clock()))
Journal.write = write_nothing
from dpolicy.cli.main import run
run()
"""
REAL = "from dpolicy.cli.main import run; run()"


def submit_until_killed(folder: Path, program: str) -> tuple[str, dict[str, bool]]:
    """Submit 60 releases to a server that is killed after 40. Return its ledger, and whether each
    release with a response was allowed.
    """
    ledger = str(folder / "ledger.db")
    activate_policy(ledger)
    (folder / "access.yaml").write_text(access())
    command = [sys.executable, "-c", program, "serve", "--ledger", ledger, "--port", "0"]
    command += ["--access", str(folder / "access.yaml")]
    responses: dict[str, bool] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[1]
        try:
            for start in range(0, 60, 20):
                if start == 40:
                    os.kill(process.pid, signal.SIGKILL)
                releases = [release(f"r{n}", EPSILON) for n in range(start, start + 20)]
                for result in submit_all([url], releases):
                    if isinstance(result, httpx.Response):
                        assert result.status_code == 200, result.text
                        decision = result.json()
                        responses[decision["release"]] = decision["decision"] == "allow"
        finally:
            process.kill()
    return ledger, responses


def test_releases_without_a_response_are_submitted_again(tmp_path: Path) -> None:
    ledger, responses = submit_until_killed(tmp_path, REAL)
    assert len(responses) >= 40
    before = load_decisions(ledger)
    assert responses.items() <= {name: event.allowed for name, event in before.items()}.items()
    with serving(ledger, "--access", str(tmp_path / "access.yaml")) as server:
        retried = decode_all(
            submit_all([server.url], [release(f"r{n}", EPSILON) for n in range(60)])
        )
    assert {decision["release"]: decision["replayed"] for decision in retried} == {
        f"r{n}": f"r{n}" in before for n in range(60)
    }
    assert len(load_decisions(ledger)) == 60


def test_a_response_before_the_commit_is_detected(tmp_path: Path) -> None:
    """Canary of the test above."""
    ledger, responses = submit_until_killed(tmp_path, RESPONDS_BEFORE_COMMIT)
    assert responses.keys() - load_decisions(ledger).keys()


def test_a_server_keeps_its_state_out_of_collections() -> None:
    before = gc.get_freeze_count()
    try:
        keep_state_out_of_collections()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
