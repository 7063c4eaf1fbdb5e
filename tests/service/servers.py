"""Real `dpolicy serve` processes for tests, with an access file and tokens."""

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

#: People of the access file, with their roles; `token` returns their tokens.
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
    """Return the text of an access file in which each person has a token; only ben has `grants`."""
    people = "".join(
        f"  {name}: {{roles: [{role}], grants: {grants if name == 'ben' else '{}'}, "
        f"tokens: [{{sha256: {_token_hash(name)}, expires: {expires}}}]}}\n"
        for name, role in ROLES.items()
    )
    return f"access: 1\npeople:\n{people}{more}"


def _token_hash(person: str) -> str:
    return hashlib.sha256(token(person).encode()).hexdigest()


def activate_policy(ledger: str, text: str = POLICY) -> None:
    """Apply a policy to a ledger, which is created if necessary."""
    point = DecisionPoint(open_store(ledger))
    point.apply(compile_policy([Source("policy.yaml", text)]), by="setup")
    point.close()


class Server:
    """Running server and its HTTP clients."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url, self.process = url, process
        self._clients: list[httpx.Client] = []

    def client(self, person: str | None = None, **more: Any) -> httpx.Client:
        """Return a client of this server; without a person it sends no token."""
        credentials = {} if person is None else {"authorization": f"Bearer {token(person)}"}
        headers = {**credentials, **more.pop("headers", {})}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=60, **more)
        self._clients.append(client)
        return client

    def close_clients(self) -> None:
        """Close the connections of all clients."""
        for client in self._clients:
            client.close()

    def peak_megabytes(self) -> float:
        """Return the peak memory use of the process."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in text.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024


@contextmanager
def serving(
    ledger: str, *options: str, program: str = "from dpolicy.cli.main import run; run()"
) -> Iterator[Server]:
    """Run a server on a free port until the block ends; check that it then exits with code 0."""
    command = [sys.executable, "-c", program, "serve", "--ledger", ledger, "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("serving "):
        process.wait()
        process.stdout.close()
        raise AssertionError(f"the server did not start: {line}")
    server = Server(line.split()[1], process)
    try:
        yield server
    finally:
        server.close_clients()
        process.terminate()
        code = process.wait(60)
        process.stdout.close()
    assert code == 0


def release(name: str, epsilon: str = "0.001", **more: Any) -> dict[str, Any]:
    """Return a release with one mechanism of declared pure ε and the fields `more`."""
    mechanism = {"mechanism": {"kind": "declared", "epsilon": float(epsilon)}, **more}
    return {"release": name, "mechanisms": [mechanism]}
