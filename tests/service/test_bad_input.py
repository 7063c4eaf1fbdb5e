"""Invalid, large and slow requests: the server returns a problem and keeps serving others."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.service.servers import Server, access, activate_policy, release, serving, token

from dpolicy.errors import RequestRefused
from dpolicy.service.dashboard.pages.form_pages import MAX_FORM_FIELDS
from dpolicy.service.http.limits import MAX_TRACKED_CALLERS, RateLimiter

#: A server with a short timeout and a low request rate; the default timeout is 20 seconds.
WITH_LOW_LIMITS = """\
import dpolicy.service.server as server
from dpolicy.service.http.limits import ServiceLimits
server.ServiceLimits = lambda: ServiceLimits(body_seconds=1.0, rate=0.1, burst=30.0)
from dpolicy.cli.main import run
run()
"""


@pytest.fixture(scope="module")
def limited_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("limited")
    (folder / "access.yaml").write_text(access())
    activate_policy(str(folder / "ledger.db"))
    options = ("--access", str(folder / "access.yaml"))
    with serving(str(folder / "ledger.db"), *options, program=WITH_LOW_LIMITS) as running_server:
        yield running_server


VALID = json.dumps(release("good"))
NESTED_LISTS = "[" * 100_000 + "]" * 100_000
BODIES: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 400, "bad-request"),
    "not JSON": (b"release: x", 400, "bad-request"),
    "truncated": (VALID[:-5].encode(), 400, "bad-request"),
    "not UTF-8": (b'{"release": "\xff"}', 400, "bad-request"),
    "UTF-16": (VALID.encode("utf-16"), 400, "bad-request"),
    "an unpaired surrogate": (b'{"release": "\\ud800", "mechanisms": []}', 400, "bad-request"),
    "a list": (b"[]", 422, "invalid"),
    "a number": (b"1", 400, "bad-request"),
    "deep lists": (NESTED_LISTS.encode(), 400, "bad-request"),
    "deep maps": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400, "bad-request"),
    "deep lists in a mechanism": (
        VALID.replace("0.001", "[" * 900 + "]" * 900).encode(),
        400,
        "bad-request",
    ),
    "nested lists in a mechanism": (
        VALID.replace("0.001", "[" * 200 + "]" * 200).encode(),
        422,
        "invalid",
    ),
    "a duplicate key": (
        VALID.replace('{"release"', '{"release": "x", "release"').encode(),
        422,
        "invalid",
    ),
    "a duplicate inner key": (
        VALID.replace('"kind"', '"kind": "x", "kind"').encode(),
        422,
        "invalid",
    ),
    "an unknown key": (VALID.replace('"release"', '"relaese"').encode(), 422, "invalid"),
    "NaN": (VALID.replace("0.001", "NaN").encode(), 422, "invalid"),
    "Infinity": (VALID.replace("0.001", "Infinity").encode(), 422, "invalid"),
    "-Infinity": (VALID.replace("0.001", "-Infinity").encode(), 422, "invalid"),
    "a negative loss": (VALID.replace("0.001", "-1").encode(), 422, "invalid"),
    "a number out of range": (VALID.replace("0.001", "1e999999999").encode(), 422, "invalid"),
    "a very long number": (VALID.replace("0.001", "1" * 100_000).encode(), 422, "invalid"),
    "a number as text": (VALID.replace("0.001", '"0.001"').encode(), 422, "invalid"),
    "an empty id": (VALID.replace('"good"', '""').encode(), 422, "invalid"),
    "a confusable id": (VALID.replace('"good"', '"gооd"').encode(), 422, "invalid"),
    "an unknown mode": (
        VALID.replace('{"release"', '{"mode": "free", "release"').encode(),
        422,
        "invalid",
    ),
    "an unknown label": (
        json.dumps(release("good", labels={"nothing": "x"})).encode(),
        422,
        "release-rejected",
    ),
    "many values": (b"[" + b"0," * 300_000 + b"0]", 413, "too-large"),
    "many labels": (
        json.dumps(release("good", labels={f"l{n}": "x" for n in range(50_000)})).encode(),
        422,
        "release-rejected",
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_an_invalid_body_is_a_problem(server: Server, name: str) -> None:
    data, status, code = BODIES[name]
    headers = {"content-type": "application/json"}
    response = server.client("ana").post("/v1/releases", content=data, headers=headers)
    assert (response.status_code, response.json()["code"]) == (status, code), response.text[:500]


def test_a_body_needs_the_content_type_of_json(server: Server) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        headers = {"content-type": kind}
        response = server.client("ana").post("/v1/releases", content=VALID, headers=headers)
        assert (response.status_code, response.json()["code"]) == (415, "not-json")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "limit=²", "limit=1&limit=2", "lmit=1", "status=x"]
)
def test_an_invalid_query_is_a_problem(server: Server, query: str) -> None:
    response = server.client("ana").get(f"/v1/releases?{query}")
    assert (response.status_code, response.json()["code"]) == (400, "bad-request")


def test_a_form_with_too_many_fields_is_a_problem(server: Server) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    data = b"a=1&" * (MAX_FORM_FIELDS + 1)
    response = server.client("ana").post("/check", content=data, headers=headers)
    assert (response.status_code, response.json()["code"]) == (413, "too-large")


def test_unknown_paths_are_not_found(server: Server) -> None:
    client = server.client("pia")
    for path in (
        "/v1/nothing",
        "/v1/proposals/" + "9" * 5000,
        "/v1/proposals/%C2%B2",
        "/v1/releases/%00",
    ):
        assert client.get(path).status_code == 404
    refused = client.delete("/v1/policy")
    assert (refused.status_code, refused.json()["code"]) == (405, "method-not-allowed")


def test_a_body_of_a_hundred_megabytes_is_refused(server: Server) -> None:
    before = server.peak_megabytes()
    client = server.client("ana")
    headers = {"content-type": "application/json"}
    announced = {**headers, "content-length": str(10**8)}
    assert _status_before_body(client, b"x" * 65536, announced) in (413, None)

    def chunks() -> Iterator[bytes]:
        for _ in range(1_600):
            yield b"[" * 65536

    try:
        response = client.post("/v1/releases", content=chunks(), headers=headers)
        assert response.status_code == 413
    except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        pass  # the server closed the connection before the end of the body
    assert server.peak_megabytes() < before + 100
    assert server.client("ana").get("/v1/who").status_code == 200


def _status_before_body(client: httpx.Client, data: bytes, headers: dict[str, str]) -> int | None:
    """Return the status of the response to a partial body; None if the server hung up."""
    host, port = client.base_url.host, client.base_url.port
    with socket.create_connection((host, port or 80), timeout=30) as connection:
        lines = [f"{key}: {value}" for key, value in headers.items()]
        head = [
            "POST /v1/releases HTTP/1.1",
            f"host: {host}",
            f"authorization: Bearer {token('ana')}",
        ]
        connection.sendall("\r\n".join([*head, *lines, "", ""]).encode() + data)
        response = connection.recv(4096)
    return int(response.split()[1]) if response else None


def test_a_slow_body_is_refused(limited_server: Server) -> None:
    host, _, port = limited_server.url.removeprefix("http://").partition(":")
    head = f"POST /v1/releases HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token('ana')}\r\n"
    slow = f"{head}content-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(slow.encode())
        response = b""
        while b"too-slow" not in response and (chunk := connection.recv(4096)):
            response += chunk
    assert b" 408 " in response and b"too-slow" in response


def test_connections_with_slow_headers_are_closed_while_others_are_served(
    limited_server: Server,
) -> None:
    host, _, port = limited_server.url.removeprefix("http://").partition(":")
    connections = [socket.create_connection((host, int(port)), timeout=30) for _ in range(50)]
    try:
        for connection in connections:
            connection.sendall(b"GET /health/live HTTP/1.1\r\nx-slow: ")
        assert httpx.get(f"{limited_server.url}/health/live").status_code == 200
        for connection in connections:
            assert connection.recv(4096) == b""
    finally:
        for connection in connections:
            connection.close()


def test_connections_that_send_nothing_are_closed(limited_server: Server) -> None:
    host, _, port = limited_server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as silent:
        assert silent.recv(4096) == b""


#: A server that accepts three connections; the default is 2,000.
WITH_THREE_CONNECTIONS = WITH_LOW_LIMITS.replace(
    "body_seconds=1.0, rate=0.1, burst=30.0", "connections=3"
)


def test_connections_above_the_limit_get_503(tmp_path: Path) -> None:
    activate_policy(str(tmp_path / "ledger.db"))
    with serving(str(tmp_path / "ledger.db"), program=WITH_THREE_CONNECTIONS) as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        live = f"{server.url}/health/live"
        connections = [socket.create_connection((host, int(port)), timeout=30) for _ in range(2)]
        assert httpx.get(live).status_code == 200
        connections.append(socket.create_connection((host, int(port)), timeout=30))
        assert httpx.get(live).status_code == 503
        for connection in connections:
            connection.close()
        # The server soon detects that the connections were closed.
        assert any(httpx.get(live).status_code == 200 for _ in range(1_000))


def test_the_connection_limit_depends_on_the_limit_of_open_files() -> None:
    """Each connection is an open file. Without free files the server could not even return 503."""
    program = (
        "from resource import RLIMIT_NOFILE, getrlimit, setrlimit\n"
        "from dpolicy.service.server import RESERVED_FILES, connection_limit\n"
        "setrlimit(RLIMIT_NOFILE, (RESERVED_FILES + 10, RESERVED_FILES + 500))\n"
        "print(connection_limit(300), getrlimit(RLIMIT_NOFILE)[0] - RESERVED_FILES)\n"
        "print(connection_limit(2_000), getrlimit(RLIMIT_NOFILE)[0] - RESERVED_FILES)\n"
    )
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.split() == ["300", "300", "500", "500"]


def test_only_the_caller_with_too_many_requests_is_refused(limited_server: Server) -> None:
    ana, ben = limited_server.client("ana"), limited_server.client("ben")
    statuses = {ana.get("/v1/who").status_code for _ in range(40)}
    assert statuses == {200, 429}
    refused = ana.get("/v1/who")
    assert refused.status_code == 200 or refused.headers["retry-after"]
    assert ben.get("/v1/who").status_code == 200


def test_token_buckets_are_refilled_and_their_number_is_limited() -> None:
    now = 0.0
    limiter = RateLimiter(rate=2.0, burst=3.0, clock=lambda: now)
    for _ in range(3):
        limiter.consume("ana")
    with pytest.raises(RequestRefused):
        limiter.consume("ana")
    now = 0.5
    limiter.consume("ana")
    with pytest.raises(RequestRefused):
        limiter.consume("ana")
    for n in range(MAX_TRACKED_CALLERS + 10):
        limiter.consume(f"stranger {n}")
    assert len(limiter._buckets) == MAX_TRACKED_CALLERS


def test_a_server_that_cannot_start_prints_the_reason(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from dpolicy.cli.main import run; run()",
        "serve",
        "--port",
        "0",
    ]
    mistyped = [*command, "--ledger", str(tmp_path / "nothing.db")]
    process = subprocess.run(mistyped, capture_output=True, text=True, check=False)
    assert process.returncode == 1 and "no ledger" in process.stderr
    assert not (tmp_path / "nothing.db").exists()
    activate_policy(str(tmp_path / "l.db"))
    missing = [*command, "--ledger", str(tmp_path / "l.db"), "--access", str(tmp_path / "nothing")]
    process = subprocess.run(missing, capture_output=True, text=True, check=False)
    assert process.returncode == 1 and "Traceback" not in process.stderr
    (tmp_path / "access.yaml").write_text("access: 1\npeple: {}\n")
    invalid = [*missing[:-1], str(tmp_path / "access.yaml")]
    process = subprocess.run(invalid, capture_output=True, text=True, check=False)
    assert process.returncode == 3 and "P006" in process.stderr
