"""The served document is true: Schemathesis tries to find a request for which it is not."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from tests.service.servers import policy_in_force, serving

#: Not asked: that whatever fits the schema is accepted. A release can have the right shape and an
#: unknown kind of mechanism; a server that is right refuses it.
LEFT_OUT = "positive_data_acceptance,unsupported_method"

EVERYTHING = """\
access: 1
people:
  eve:
    roles: [analyst, approver, officer, auditor]
    tokens: [{sha256: "HASH", expires: 2099-01-01}]
approval: {policy: false, void: false}
"""


def schemathesis(folder: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A short run of all checks against a server, as somebody who may do everything."""
    ledger = str(folder / "ledger.db")
    policy_in_force(ledger)
    text = EVERYTHING.replace("HASH", hashlib.sha256(b"eves-secret").hexdigest())
    (folder / "access.yaml").write_text(text)
    with serving(ledger, "--access", str(folder / "access.yaml"), program=program) as server:
        words = [
            *(str(Path(sys.executable).with_name("st")), "run", f"{server.url}/openapi.json"),
            *("--header", "Authorization: Bearer eves-secret", "--seed", "1", "--no-color"),
            *("--phases", "coverage,fuzzing", "--max-examples", "4", "--warnings", "off"),
            *("--checks", "all", "--exclude-checks", LEFT_OUT, "--rate-limit", "1000/s"),
            *options,
        ]
        return subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)


REAL = "from dpolicy.cli.main import run; run()"
#: A server that forgets to look at what stands in a query.
BROKEN = (
    "import dpolicy.service.http.request_body as bodies\n"
    "bodies._one = lambda name, value, told: int(value) if told.whole else value\n" + REAL
)


def test_no_request_finds_the_document_wrong(tmp_path: Path) -> None:
    ended = schemathesis(tmp_path, REAL)
    assert ended.returncode == 0, ended.stdout[-6000:]


def test_a_broken_server_is_found_out(tmp_path: Path) -> None:
    """The canary of the test above."""
    ended = schemathesis(
        tmp_path, BROKEN, "--include-path", "/v1/releases", "--include-method", "GET"
    )
    assert ended.returncode == 1 and "Server error" in ended.stdout, ended.stdout[-3000:]
