"""A ledger → a real `dpolicy serve` in a process of its own, and people who know its tokens."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from dpolicy.ledger.store_address import open_store
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.rules.compiler import compile_policy
from dpolicy.text.yaml_reader import Source

POLICY = """\
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {}}
schema:
  attributes: {zip: {risk: high}, views: {risk: low}}
  labels:
    deployment: {values: [standard, black-box], default: standard}
    stage: {values: [final, tuning], default: final}
  partitions:
    country: {values: [AT, CH]}
policies:
  - {name: global, kind: custom, when: always, unit: user, budget: {epsilon: 2, delta: 0}}
  - name: zips
    kind: custom
    when: '"zip" in attributes'
    unit: user
    budget: {epsilon: 1, delta: 0}
"""

#: Who there is. Their tokens are their names, made long.
ROLES = {
    "ana": "analyst",
    "ben": "analyst",
    "pia": "approver",
    "olga": "officer",
    "otto": "officer",
    "udo": "auditor",
}


def token(person: str) -> str:
    return f"{person}-has-a-secret"


def access(more: str = "", grants: str = "{}", expires: str = "2099-01-01") -> str:
    """An access file in which everybody has a token."""
    people = "".join(
        f"  {name}: {{roles: [{role}], grants: {grants if name == 'ben' else '{}'}, "
        f"tokens: [{{sha256: {_hash(name)}, expires: {expires}}}]}}\n"
        for name, role in ROLES.items()
    )
    return f"access: 1\npeople:\n{people}{more}"


def _hash(person: str) -> str:
    return hashlib.sha256(token(person).encode()).hexdigest()


def policy_in_force(ledger: str, text: str = POLICY) -> None:
    point = DecisionPoint(open_store(ledger))
    point.apply(compile_policy([Source("policy.yaml", text)]), by="setup")
    point.close()


class Server:
    """A server and how to talk to it."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url, self.process = url, process
        self._clients: list[httpx.Client] = []

    def client(self, person: str | None = None, **more: Any) -> httpx.Client:
        known = {} if person is None else {"authorization": f"Bearer {token(person)}"}
        headers = {**known, **more.pop("headers", {})}
        made = httpx.Client(base_url=self.url, headers=headers, timeout=60, **more)
        self._clients.append(made)
        return made

    def hang_up(self) -> None:
        """Close every connection."""
        for client in self._clients:
            client.close()

    def peak_megabytes(self) -> float:
        """The most memory that the process has ever used."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in text.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024


@contextmanager
def serving(
    ledger: str, *options: str, program: str = "from dpolicy.cli.main import run; run()"
) -> Iterator[Server]:
    """A server on a port of its own until the block ends; it must then stop cleanly."""
    words = [sys.executable, "-c", program, "serve", "--ledger", ledger, "--port", "0", *options]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("serving "):
        process.wait()
        process.stdout.close()
        raise AssertionError(f"the server does not start: {line}")
    server = Server(line.split()[1], process)
    try:
        yield server
    finally:
        server.hang_up()
        process.terminate()
        code = process.wait(60)
        process.stdout.close()
    assert code == 0


def release(name: str, epsilon: str = "0.001", **more: Any) -> dict[str, Any]:
    """A release of one pure ε."""
    mechanism = {"mechanism": {"kind": "declared", "epsilon": float(epsilon)}, **more}
    return {"release": name, "mechanisms": [mechanism]}
