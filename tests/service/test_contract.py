"""Schemathesis finds no request for which the server contradicts its OpenAPI document."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from tests.service.servers import activate_policy, serving

#: Not checked: that the server accepts every body that matches the schema. A release can match it
#: and still have an unknown kind of mechanism, which the server refuses.
EXCLUDED_CHECKS = "positive_data_acceptance,unsupported_method"

ACCESS_WITH_ALL_ROLES = """\
access: 1
people:
  eve:
    roles: [analyst, approver, officer, auditor]
    tokens: [{sha256: "HASH", expires: 2099-01-01}]
approval: {policy: false, void: false}
"""


def run_schemathesis(folder: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run all checks briefly against a server, as a person with all roles."""
    ledger = str(folder / "ledger.db")
    activate_policy(ledger)
    text = ACCESS_WITH_ALL_ROLES.replace("HASH", hashlib.sha256(b"eves-secret").hexdigest())
    (folder / "access.yaml").write_text(text)
    with serving(ledger, "--access", str(folder / "access.yaml"), program=program) as server:
        command = [
            *(str(Path(sys.executable).with_name("st")), "run", f"{server.url}/openapi.json"),
            *("--header", "Authorization: Bearer eves-secret", "--seed", "1", "--no-color"),
            *("--phases", "coverage,fuzzing", "--max-examples", "4", "--warnings", "off"),
            *("--checks", "all", "--exclude-checks", EXCLUDED_CHECKS, "--rate-limit", "1000/s"),
            *options,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


REAL = "from dpolicy.cli.main import run; run()"
#: A server that does not validate query parameters.
BROKEN = (
    "import dpolicy.service.http.request_body as request_body\n"
    "request_body._parse_value = "
    "lambda name, value, parameter: int(value) if parameter.integer else value\n" + REAL
)


def test_no_request_contradicts_the_document(tmp_path: Path) -> None:
    process = run_schemathesis(tmp_path, REAL)
    assert process.returncode == 0, process.stdout[-6000:]


def test_schemathesis_detects_a_broken_server(tmp_path: Path) -> None:
    """Canary of the test above."""
    process = run_schemathesis(
        tmp_path, BROKEN, "--include-path", "/v1/releases", "--include-method", "GET"
    )
    assert process.returncode == 1 and "Server error" in process.stdout, process.stdout[-3000:]
