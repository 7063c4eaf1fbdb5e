"""Many at once, several servers, lost answers: never overspent, nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
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
from tests.service.servers import Server, access, policy_in_force, release, serving, token

from dpolicy.ledger.events import ReleaseDecided
from dpolicy.ledger.store_address import open_store
from dpolicy.pdp.audit import audit_ledger, records_with_events

#: Half of so many releases fit into the budget of 2.
MANY, EACH = 500, "0.008"


def submit_all(
    urls: Sequence[str], asked: Sequence[dict[str, Any]], person: str = "ana"
) -> list[httpx.Response | httpx.HTTPError]:
    """Ask for everything at once, each of a server in turn."""

    async def all_at_once() -> list[httpx.Response | httpx.HTTPError]:
        headers = {"authorization": f"Bearer {token(person)}"}
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(headers=headers, timeout=120, limits=limits) as client:

            async def one(number: int, said: dict[str, Any]) -> httpx.Response | httpx.HTTPError:
                try:
                    url = f"{urls[number % len(urls)]}/v1/releases"
                    return await client.post(url, json=said)
                except httpx.HTTPError as error:
                    return error

            return await asyncio.gather(*(one(n, said) for n, said in enumerate(asked)))

    return asyncio.run(all_at_once())


def answers(found: Sequence[httpx.Response | httpx.HTTPError]) -> list[dict[str, Any]]:
    """What was answered, where nothing may have failed."""
    assert all(isinstance(one, httpx.Response) and one.status_code == 200 for one in found), found
    return [one.json() for one in found if isinstance(one, httpx.Response)]


def decided(ledger: str) -> dict[str, ReleaseDecided]:
    """The decisions of a ledger that verifies; none may be there twice."""
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


def spent(events: dict[str, ReleaseDecided]) -> Fraction:
    mechanisms = [e.body["mechanisms"][0] for e in events.values() if e.allowed]
    return sum((Fraction(m["mechanism"]["epsilon"]) for m in mechanisms), Fraction(0))


def test_a_thousand_at_once_are_each_decided_once(tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.db")
    (tmp_path / "access.yaml").write_text(access())
    policy_in_force(ledger)
    asked = [release(f"r{n}", EACH) for n in range(MANY)]
    with serving(ledger, "--access", str(tmp_path / "access.yaml")) as server:
        found = answers(submit_all([server.url], [*asked, *asked]))
    by_id: dict[str, list[dict[str, Any]]] = {}
    for said in found:
        by_id.setdefault(said["release"], []).append(said)
    assert Counter(one["replayed"] for one in found) == {False: MANY, True: MANY}
    assert all(one["decision"] == two["decision"] for one, two in by_id.values())
    events = decided(ledger)
    assert {name: e.allowed for name, e in events.items()} == {
        name: one["decision"] == "allow" for name, (one, _) in by_id.items()
    }
    assert spent(events) == 2


def test_two_servers_on_one_database_never_overspend(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    (tmp_path / "access.yaml").write_text(access())
    policy_in_force(postgres.url)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(serving(postgres.url, "--access", str(tmp_path / "access.yaml")))
            for _ in range(2)
        ]
        urls = [server.url for server in servers]
        asked = [release(f"r{n}", EACH) for n in range(MANY // 2 - 10)]
        found = answers(submit_all(urls, [*asked, *asked[:50]]))
        more = answers(submit_all(urls, [release(f"s{n}", EACH) for n in range(20)]))
        heads = {tuple(_head(server).items()) for server in servers}
        listed = [_releases(server) for server in servers]
    assert len(heads) == 1 and listed[0] == listed[1]
    events = decided(postgres.url)
    assert spent(events) == 2
    told = {said["release"]: said["decision"] == "allow" for said in [*found, *more]}
    assert told == {name: event.allowed for name, event in events.items()}


def _head(server: Server) -> dict[str, Any]:
    said: dict[str, Any] = server.client("udo").get("/v1/log/head").json()
    return {key: said[key] for key in ("sequence", "head")}


def _releases(server: Server) -> Any:
    return server.client("udo").get("/v1/releases", params={"limit": 1000}).json()["releases"]


def test_what_waits_at_one_server_is_approved_at_another(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    (tmp_path / "access.yaml").write_text(access("approval: {when: 'mechanism == \"laplace\"'}\n"))
    noise = {"kind": "laplace", "scale": 100, "sensitivity": 1}
    asked = {"release": "waits", "mechanisms": [{"mechanism": noise}]}
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(serving(postgres.url, "--access", str(tmp_path / "access.yaml")))
            for _ in range(2)
        )
        number = one.client("ana").post("/v1/releases", json=asked).json()["proposal"]
        answer = other.client("pia").post(f"/v1/proposals/{number}/approve", json={})
        assert answer.status_code == 200, answer.text
        again = one.client("ana").post("/v1/releases", json=asked).json()
        assert again["replayed"] and again["sequence"] == answer.json()["sequence"]


def test_a_ledger_that_is_away_is_waited_for(postgres: PostgresServer, tmp_path: Path) -> None:
    (tmp_path / "access.yaml").write_text(access())
    policy_in_force(postgres.url)
    with serving(postgres.url, "--access", str(tmp_path / "access.yaml")) as server:
        client = server.client("ana")
        postgres.kill(signal.SIGQUIT)
        try:
            answer = client.post("/v1/releases", json=release("away", EACH))
            assert (answer.status_code, answer.json()["code"]) == (503, "ledger-unavailable")
            assert client.get("/health/ready").status_code == 503
            assert client.get("/health/live").status_code == 200
        finally:
            postgres.start()
        back = client.post("/v1/releases", json=release("away", EACH))
        assert (back.status_code, back.json()["replayed"]) == (200, False)
        assert client.get("/health/ready").status_code == 200


#: A server that answers before anything is written.
HASTY = """\
from dpolicy.pdp.journal import Journal, WriteTransaction
def hasty(self, work):
    with self._writer:
        return work(WriteTransaction(self._state, None, self._clock()))
Journal.write = hasty
from dpolicy.cli.main import run
run()
"""
REAL = "from dpolicy.cli.main import run; run()"


def acknowledged(folder: Path, program: str) -> tuple[str, dict[str, bool]]:
    """What was answered by a server that was killed in the middle, and its ledger."""
    ledger = str(folder / "ledger.db")
    policy_in_force(ledger)
    (folder / "access.yaml").write_text(access())
    words = [sys.executable, "-c", program, "serve", "--ledger", ledger, "--port", "0"]
    words += ["--access", str(folder / "access.yaml")]
    told: dict[str, bool] = {}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[1]
        for start in range(0, 60, 20):
            if start == 40:
                os.kill(process.pid, signal.SIGKILL)
            asked = [release(f"r{n}", EACH) for n in range(start, start + 20)]
            for one in submit_all([url], asked):
                if isinstance(one, httpx.Response):
                    told[one.json()["release"]] = one.json()["decision"] == "allow"
    return ledger, told


def test_a_lost_answer_is_asked_for_again(tmp_path: Path) -> None:
    ledger, told = acknowledged(tmp_path, REAL)
    assert len(told) >= 40
    before = decided(ledger)
    assert told.items() <= {name: event.allowed for name, event in before.items()}.items()
    with serving(ledger, "--access", str(tmp_path / "access.yaml")) as server:
        again = answers(submit_all([server.url], [release(f"r{n}", EACH) for n in range(60)]))
    assert {said["release"]: said["replayed"] for said in again} == {
        f"r{n}": f"r{n}" in before for n in range(60)
    }
    assert len(decided(ledger)) == 60


def test_an_answer_before_the_commit_would_be_noticed(tmp_path: Path) -> None:
    """The canary of the test above."""
    ledger, told = acknowledged(tmp_path, HASTY)
    assert told.keys() - decided(ledger).keys()
