"""Whatever is sent, a server answers with a problem, stays small, and goes on serving others."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.service.servers import Server, access, policy_in_force, release, serving, token

from dpolicy.errors import RequestRefused
from dpolicy.service.dashboard.pages.form_pages import MAX_FORM_FIELDS
from dpolicy.service.http.limits import MAX_TRACKED_CALLERS, RateLimiter

#: A server that waits only so long for slow clients; others wait twenty seconds.
HURRIED = """\
import dpolicy.service.server as server
from dpolicy.service.http.limits import Limits
server.Limits = lambda: Limits(body_seconds=1.0, rate=0.1, burst=30.0)
from dpolicy.cli.main import run
run()
"""


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("hurried")
    (folder / "access.yaml").write_text(access())
    policy_in_force(str(folder / "ledger.db"))
    options = ("--access", str(folder / "access.yaml"))
    with serving(str(folder / "ledger.db"), *options, program=HURRIED) as found:
        yield found


GOOD = json.dumps(release("good"))
LONG = "[" * 100_000 + "]" * 100_000
BODIES: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 400, "bad-request"),
    "no JSON": (b"release: x", 400, "bad-request"),
    "half of it": (GOOD[:-5].encode(), 400, "bad-request"),
    "no UTF-8": (b'{"release": "\xff"}', 400, "bad-request"),
    "UTF-16": (GOOD.encode("utf-16"), 400, "bad-request"),
    "half a character": (b'{"release": "\\ud800", "mechanisms": []}', 400, "bad-request"),
    "a list": (b"[]", 422, "invalid"),
    "a number": (b"1", 400, "bad-request"),
    "deep lists": (LONG.encode(), 400, "bad-request"),
    "deep maps": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400, "bad-request"),
    "deep in a mechanism": (
        GOOD.replace("0.001", "[" * 900 + "]" * 900).encode(),
        400,
        "bad-request",
    ),
    "rather deep in a mechanism": (
        GOOD.replace("0.001", "[" * 200 + "]" * 200).encode(),
        422,
        "invalid",
    ),
    "a key twice": (
        GOOD.replace('{"release"', '{"release": "x", "release"').encode(),
        422,
        "invalid",
    ),
    "an inner key twice": (GOOD.replace('"kind"', '"kind": "x", "kind"').encode(), 422, "invalid"),
    "an unknown key": (GOOD.replace('"release"', '"relaese"').encode(), 422, "invalid"),
    "NaN": (GOOD.replace("0.001", "NaN").encode(), 422, "invalid"),
    "Infinity": (GOOD.replace("0.001", "Infinity").encode(), 422, "invalid"),
    "-Infinity": (GOOD.replace("0.001", "-Infinity").encode(), 422, "invalid"),
    "a negative loss": (GOOD.replace("0.001", "-1").encode(), 422, "invalid"),
    "an absurd number": (GOOD.replace("0.001", "1e999999999").encode(), 422, "invalid"),
    "a very long number": (GOOD.replace("0.001", "1" * 100_000).encode(), 422, "invalid"),
    "a number as text": (GOOD.replace("0.001", '"0.001"').encode(), 422, "invalid"),
    "an id of no characters": (GOOD.replace('"good"', '""').encode(), 422, "invalid"),
    "a confusable id": (GOOD.replace('"good"', '"gооd"').encode(), 422, "invalid"),
    "an unknown mode": (
        GOOD.replace('{"release"', '{"mode": "free", "release"').encode(),
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
def test_a_bad_body_is_a_problem(server: Server, name: str) -> None:
    data, status, code = BODIES[name]
    headers = {"content-type": "application/json"}
    answer = server.client("ana").post("/v1/releases", content=data, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text[:500]


def test_a_body_must_say_that_it_is_json(server: Server) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        headers = {"content-type": kind}
        answer = server.client("ana").post("/v1/releases", content=GOOD, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (415, "not-json")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "limit=²", "limit=1&limit=2", "lmit=1", "status=x"]
)
def test_a_bad_query_is_a_problem(server: Server, query: str) -> None:
    answer = server.client("ana").get(f"/v1/releases?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad-request")


def test_a_form_with_too_many_fields_is_a_problem(server: Server) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    data = b"a=1&" * (MAX_FORM_FIELDS + 1)
    answer = server.client("ana").post("/check", content=data, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


def test_strange_paths_are_not_found(server: Server) -> None:
    client = server.client("pia")
    for path in (
        "/v1/nothing",
        "/v1/proposals/" + "9" * 5000,
        "/v1/proposals/%C2%B2",
        "/v1/releases/%00",
    ):
        assert client.get(path).status_code == 404
    wrong = client.delete("/v1/policy")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method-not-allowed")


def test_a_hundred_megabytes_are_not_taken(server: Server) -> None:
    before = server.peak_megabytes()
    client = server.client("ana")
    headers = {"content-type": "application/json"}
    told = {**headers, "content-length": str(10**8)}
    assert _refused(client, b"x" * 65536, told) in (413, None)

    def chunks() -> Iterator[bytes]:
        for _ in range(1_600):
            yield b"[" * 65536

    try:
        answer = client.post("/v1/releases", content=chunks(), headers=headers)
        assert answer.status_code == 413
    except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        pass  # the server hung up while the body was still being sent
    assert server.peak_megabytes() < before + 100
    assert server.client("ana").get("/v1/who").status_code == 200


def _refused(client: httpx.Client, data: bytes, headers: dict[str, str]) -> int | None:
    """The status of an answer that comes before the body was sent; None if it hung up."""
    host, port = client.base_url.host, client.base_url.port
    with socket.create_connection((host, port or 80), timeout=30) as connection:
        lines = [f"{key}: {value}" for key, value in headers.items()]
        head = [
            "POST /v1/releases HTTP/1.1",
            f"host: {host}",
            f"authorization: Bearer {token('ana')}",
        ]
        connection.sendall("\r\n".join([*head, *lines, "", ""]).encode() + data)
        said = connection.recv(4096)
    return int(said.split()[1]) if said else None


def test_a_slow_body_is_given_up(hurried: Server) -> None:
    host, _, port = hurried.url.removeprefix("http://").partition(":")
    head = f"POST /v1/releases HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token('ana')}\r\n"
    slow = f"{head}content-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(slow.encode())
        said = b""
        while b"too-slow" not in said and (more := connection.recv(4096)):
            said += more
    assert b" 408 " in said and b"too-slow" in said


def test_slow_headers_are_given_up_while_others_are_served(hurried: Server) -> None:
    host, _, port = hurried.url.removeprefix("http://").partition(":")
    some = [socket.create_connection((host, int(port)), timeout=30) for _ in range(50)]
    try:
        for connection in some:
            connection.sendall(b"GET /health/live HTTP/1.1\r\nx-slow: ")
        assert httpx.get(f"{hurried.url}/health/live").status_code == 200
        for connection in some:
            assert connection.recv(4096) == b""
    finally:
        for connection in some:
            connection.close()


def test_connections_that_send_nothing_are_closed(hurried: Server) -> None:
    host, _, port = hurried.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as silent:
        assert silent.recv(4096) == b""


#: A server that takes only so many connections; others take two thousand.
NARROW = HURRIED.replace("body_seconds=1.0, rate=0.1, burst=30.0", "connections=3")


def test_connections_past_the_limit_are_told_to_come_later(tmp_path: Path) -> None:
    policy_in_force(str(tmp_path / "ledger.db"))
    with serving(str(tmp_path / "ledger.db"), program=NARROW) as narrow:
        host, _, port = narrow.url.removeprefix("http://").partition(":")
        live = f"{narrow.url}/health/live"
        some = [socket.create_connection((host, int(port)), timeout=30) for _ in range(2)]
        assert httpx.get(live).status_code == 200
        some.append(socket.create_connection((host, int(port)), timeout=30))
        assert httpx.get(live).status_code == 503
        for connection in some:
            connection.close()
        # Soon the server has seen that they are gone.
        assert any(httpx.get(live).status_code == 200 for _ in range(1_000))


def test_room_for_connections_is_made_or_they_are_fewer() -> None:
    """Each connection is an open file: past their limit nobody could even be refused."""
    program = (
        "import resource, sys\n"
        "from dpolicy.service.server import FILES, room_for\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (FILES + 10, FILES + 500))\n"
        "print(room_for(300), resource.getrlimit(resource.RLIMIT_NOFILE)[0] - FILES)\n"
        "print(room_for(2_000), resource.getrlimit(resource.RLIMIT_NOFILE)[0] - FILES)\n"
    )
    words = [sys.executable, "-c", program]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert told.split() == ["300", "300", "500", "500"]


def test_too_many_requests_are_refused_for_their_sender_alone(hurried: Server) -> None:
    ana, ben = hurried.client("ana"), hurried.client("ben")
    statuses = {ana.get("/v1/who").status_code for _ in range(40)}
    assert statuses == {200, 429}
    refused = ana.get("/v1/who")
    assert refused.status_code == 200 or refused.headers["retry-after"]
    assert ben.get("/v1/who").status_code == 200


def test_buckets_fill_again_and_are_not_kept_for_ever() -> None:
    now = 0.0
    buckets = RateLimiter(rate=2.0, burst=3.0, clock=lambda: now)
    for _ in range(3):
        buckets.consume("ana")
    with pytest.raises(RequestRefused):
        buckets.consume("ana")
    now = 0.5
    buckets.consume("ana")
    with pytest.raises(RequestRefused):
        buckets.consume("ana")
    for n in range(MAX_TRACKED_CALLERS + 10):
        buckets.consume(f"stranger {n}")
    assert len(buckets._left) == MAX_TRACKED_CALLERS


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-c",
        "from dpolicy.cli.main import run; run()",
        "serve",
        "--port",
        "0",
    ]
    mistyped = [*words, "--ledger", str(tmp_path / "nothing.db")]
    ended = subprocess.run(mistyped, capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and "no ledger" in ended.stderr
    assert not (tmp_path / "nothing.db").exists()
    policy_in_force(str(tmp_path / "l.db"))
    missing = [*words, "--ledger", str(tmp_path / "l.db"), "--access", str(tmp_path / "nothing")]
    ended = subprocess.run(missing, capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    (tmp_path / "access.yaml").write_text("access: 1\npeple: {}\n")
    wrong = [*missing[:-1], str(tmp_path / "access.yaml")]
    ended = subprocess.run(wrong, capture_output=True, text=True, check=False)
    assert ended.returncode == 3 and "P006" in ended.stderr
