"""Malformed, ambiguous, large and pipelined requests, sent as bytes over a socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.service.servers import Server, access, activate_policy, release, serving, token

from dpolicy.service.http.protocol import MAX_HEAD_BYTES, MAX_HEADERS, MAX_PIPELINED

GET = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n"
POST = (
    b"POST /v1/releases HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"authorization: Bearer " + token("ana").encode() + b"\r\n"
)
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
LIVE = b"GET /health/live "


def submission(name: str, *headers: bytes) -> bytes:
    """Return the bytes of a submission with further header lines."""
    body = json.dumps(release(name)).encode()
    lines = b"".join(line + b"\r\n" for line in headers)
    return POST + lines + b"content-length: %d\r\n\r\n" % len(body) + body


@contextmanager
def connect(server: Server, seconds: float = 30) -> Iterator[socket.socket]:
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        yield connection


def receive_all(connection: socket.socket) -> bytes:
    """Return everything that arrives until the server closes the connection."""
    received = b""
    try:
        while chunk := connection.recv(65_536):
            received += chunk
    except ConnectionResetError:
        pass  # the server did not read everything that was sent
    return received


def exchange(server: Server, data: bytes) -> bytes:
    """Send bytes and return the responses; the last request must close the connection."""
    with connect(server) as connection:
        connection.sendall(data)
        return receive_all(connection)


def statuses(responses: bytes) -> list[int]:
    parts = responses.split(b"HTTP/1.1 ")[1:]
    return [int(part[:3]) for part in parts]


REFUSED = {
    "a space before the colon": GET + b"x : a\r\n\r\n",
    "a control character in a name": GET + b"x\x01: a\r\n\r\n",
    "a letter beyond ASCII in a name": GET + b"\xff: a\r\n\r\n",
    "an empty name": GET + b": a\r\n\r\n",
    "a line without a colon": GET + b"nothing\r\n\r\n",
    "NUL in a value": GET + b"x: a\x00b\r\n\r\n",
    "a bare CR in a value": GET + b"x: a\rb\r\n\r\n",
    "a folded header": GET + b"x: a\r\n b\r\n\r\n",
    "a folded length": POST + b"content-length:\r\n 0\r\n\r\n",
    "lines that end with LF": GET.replace(b"\r\n", b"\n") + b"\n",
    "two lengths": POST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a list of lengths": POST + b"content-length: 2, 2\r\n\r\n{}",
    "a length with a sign": POST + b"content-length: +2\r\n\r\n{}",
    "a negative length": POST + b"content-length: -2\r\n\r\n{}",
    "an empty length": POST + b"content-length:\r\n\r\n{}",
    "a length beyond 64 bits": POST + b"content-length: 99999999999999999999999\r\n\r\n{}",
    "length, then chunks": POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
    "chunks, then length": POST + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n{}",
    "two transfer codings": POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"transfer-encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n",
    "an unknown transfer coding": POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "another transfer coding": POST + b"transfer-encoding: gzip\r\n\r\n",
    "a quoted transfer coding": POST + b'transfer-encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "chunks in HTTP/1.0": CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n",
    "a negative chunk": CHUNKED + b"-1\r\na\r\n0\r\n\r\n",
    "a chunk with a prefix": CHUNKED + b"0x1\r\na\r\n0\r\n\r\n",
    "a space after a chunk size": CHUNKED + b"1 \r\na\r\n0\r\n\r\n",
    "a chunk longer than its size": CHUNKED + b"1\r\nabc\r\n0\r\n\r\n",
    "a length in a trailer": CHUNKED + b"0\r\ncontent-length: 7\r\n\r\n",
    "a chunk that ends with LF": CHUNKED + b"1\na\n0\n\n",
    "a chunk size beyond 64 bits": CHUNKED + b"f" * 17 + b"\r\na\r\n0\r\n\r\n",
    "no host": LIVE + b"HTTP/1.1\r\n\r\n",
    "two hosts": GET + b"host: localhost\r\n\r\n",
    "HTTP/0.9": b"GET /health/live\r\n\r\n",
    "HTTP/2.0": GET.replace(b"HTTP/1.1", b"HTTP/2.0") + b"\r\n",
    "HTTP/1.2": GET.replace(b"HTTP/1.1", b"HTTP/1.2") + b"\r\n",
    "a name of another protocol": LIVE + b"HTCPCP/1.1\r\nhost: a\r\n\r\n",
    "an unknown method": GET.replace(b"GET", b"GETS") + b"\r\n",
    "a full URL as target": GET.replace(b" /", b" http://localhost/", 1) + b"\r\n",
    "a fragment in the target": GET.replace(b"live", b"live#x") + b"\r\n",
    "a tab in the target": GET.replace(b"live", b"li\tve") + b"\r\n",
    "a letter beyond ASCII in the target": GET.replace(b"live", b"l\xffve") + b"\r\n",
    "a tunnel": b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a TLS handshake": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a large header": GET + b"x: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n",
    "a header without end": GET + b"x: " + b"a" * (2 * MAX_HEAD_BYTES),
    "a name without end": GET + b"a" * (2 * MAX_HEAD_BYTES),
    "101 headers": GET + b"x: a\r\n" * MAX_HEADERS + b"\r\n",
    "many headers": GET + b"x: a\r\n" * (MAX_HEAD_BYTES // 2) + b"\r\n",
    "a target without end": b"GET /" + b"a" * (2 * MAX_HEAD_BYTES),
    "a chunk extension without end": CHUNKED + b"1;" + b"a" * (10 * MAX_HEAD_BYTES),
    "a trailer without end": CHUNKED + b"0\r\nx: " + b"a" * (10 * MAX_HEAD_BYTES),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_request_gets_400_and_the_connection_is_closed(
    server: Server, name: str
) -> None:
    more = b"" if "without end" in name else GET + b"connection: close\r\n\r\n"
    responses = exchange(server, REFUSED[name] + more)
    assert statuses(responses) == [400], responses
    assert b"connection: close" in responses


def test_a_malformed_request_is_not_executed(server: Server) -> None:
    body = json.dumps(release("smuggled-1")).encode()
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    exchange(server, POST + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n" + framed)
    exchange(server, POST + b"transfer-encoding: gzip, chunked\r\n\r\n" + framed)
    exchange(server, POST + b"host: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    assert server.client("udo").get("/v1/releases/smuggled-1").status_code == 404


ACCEPTED = {
    "98 more headers": GET + b"x: a\r\n" * (MAX_HEADERS - 2),
    "a header just below the limit": GET + b"x: " + b"a" * (MAX_HEAD_BYTES - 200) + b"\r\n",
    "empty lines before a request": b"\r\n\r\n" + GET,
    "HTTP/1.0 without a host": LIVE + b"HTTP/1.0\r\n",
    "a header value beyond ASCII": GET + b"x: \xe4\r\n",
    "an upgrade to HTTP/2": GET + b"connection: upgrade\r\nupgrade: h2c\r\n",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_unusual_requests_are_served(server: Server, name: str) -> None:
    close = b"connection: close\r\n\r\n" if b"upgrade" not in ACCEPTED[name] else b"\r\n"
    assert statuses(exchange(server, ACCEPTED[name] + close)) == [200]


def test_a_request_arrives_byte_by_byte(server: Server) -> None:
    with connect(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in submission("bytes-1", b"connection: close"):
            connection.sendall(bytes([number]))
        assert statuses(receive_all(connection)) == [200]


def test_a_trailer_is_no_header(server: Server) -> None:
    """A proxy checks headers, not trailers, so a trailer must not act as a header."""
    without_token = CHUNKED.replace(b"authorization", b"x-other")
    body = json.dumps(release("trailer-1")).encode()
    trailer = b"authorization: Bearer " + token("ana").encode()
    end = b"0\r\n" + trailer + b"\r\nhost: other\r\n\r\n"
    data = without_token + b"%x\r\n%b\r\n" % (len(body), body) + end
    closing = GET + b"connection: close\r\n\r\n"
    assert statuses(exchange(server, data + closing)) == [401, 200]


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    names = [f"pipelined-{n}" for n in range(20)]
    data = b"".join(submission(name) for name in names) + GET + b"connection: close\r\n\r\n"
    responses = exchange(server, data)
    assert statuses(responses) == [200] * 21
    positions = [responses.index(f'"{name}"'.encode()) for name in names]
    assert positions == sorted(positions)


def test_a_malformed_request_is_not_the_response_to_an_earlier_one(server: Server) -> None:
    """The client would take a status of 400 for the outcome of its submission."""
    responses = exchange(server, submission("earlier-1") + GET + b"x : a\r\n\r\n")
    assert statuses(responses) in ([], [200], [200, 400])


def test_too_many_pipelined_requests_close_the_connection(server: Server) -> None:
    responses = exchange(server, (GET + b"\r\n") * (MAX_PIPELINED * 10))
    assert len(statuses(responses)) <= MAX_PIPELINED and 400 not in statuses(responses)
    assert server.client().get("/health/live").status_code == 200


def test_a_connection_that_is_closed_early_is_no_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Too many pipelined submissions, and bodies with a bad chunk on both routes."""
    ledger = str(tmp_path / "ledger.db")
    activate_policy(ledger)
    (tmp_path / "access.yaml").write_text(access())
    many = b"".join(submission(f"closed-{n}") for n in range(MAX_PIPELINED + 50))
    with serving(ledger, "--access", str(tmp_path / "access.yaml")) as server:
        exchange(server, many)
        assert statuses(exchange(server, CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n")) == [400]
        assert server.client().get("/health/live").status_code == 200
    assert "Traceback" not in capfd.readouterr().err


def test_nothing_after_a_request_that_closes_the_connection_is_served(server: Server) -> None:
    data = GET + b"connection: close\r\n\r\n" + submission("after-close")
    assert statuses(exchange(server, data)) == [200]
    assert server.client("udo").get("/v1/releases/after-close").status_code == 404


def test_a_client_that_waits_for_100_gets_it(server: Server) -> None:
    body = json.dumps(release("continue-1")).encode()
    head = POST + b"expect: 100-continue\r\nconnection: close\r\n"
    with connect(server) as connection:
        connection.sendall(head + b"content-length: %d\r\n\r\n" % len(body))
        assert connection.recv(4096).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert statuses(receive_all(connection)) == [200]


#: A server with the limit of one second for headers; the program continues after it.
SHORT_TIME = """\
import dpolicy.service.server as server
from dpolicy.service.http.limits import ServiceLimits
server.ServiceLimits = lambda: ServiceLimits(body_seconds=1.0)
from dpolicy.cli.main import run
"""
WITHOUT_TIMER = """\
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
server.create_protocol = lambda seconds: HttpToolsProtocol
"""

SLOW = {
    "nothing": b"",
    "half of the headers": GET + b"x-slow: ",
    "a second request": GET + b"\r\n" + GET + b"x-slow: ",
    "a body that nothing reads": GET + b"content-length: 1000\r\n\r\n",
}


def closes_slow_connection(server: Server, data: bytes) -> bool:
    """Return whether the server closes a connection that sends single bytes, within six seconds."""
    with connect(server, seconds=0.5) as connection:
        connection.sendall(data)
        for _ in range(12):
            try:
                if data:
                    connection.sendall(b"a")
                while connection.recv(4096):
                    pass
                return True
            except TimeoutError:
                continue
            except ConnectionError:
                return True
    return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("slow")
    (folder / "access.yaml").write_text(access())
    activate_policy(str(folder / "ledger.db"))
    return folder


def test_a_connection_with_slow_requests_is_closed(folder: Path) -> None:
    options = ("--access", str(folder / "access.yaml"))
    program = SHORT_TIME + "run()"
    with serving(str(folder / "ledger.db"), *options, program=program) as server:
        assert {name for name in SLOW if closes_slow_connection(server, SLOW[name])} == set(SLOW)


def test_a_protocol_without_a_timer_is_detected(folder: Path) -> None:
    """Canary of the test above."""
    options = ("--access", str(folder / "access.yaml"))
    program = SHORT_TIME + WITHOUT_TIMER + "run()"
    with serving(str(folder / "ledger.db"), *options, program=program) as server:
        assert not closes_slow_connection(server, SLOW["half of the headers"])


def test_a_server_without_uvloop_uses_asyncio(folder: Path) -> None:
    program = "import sys; sys.modules['uvloop'] = None\n" + SHORT_TIME + "run()"
    options = ("--access", str(folder / "access.yaml"))
    with serving(str(folder / "ledger.db"), *options, program=program) as server:
        assert "uvloop" not in loaded_libraries(server)
        assert statuses(exchange(server, submission("asyncio-1", b"connection: close"))) == [200]
    with serving(str(folder / "ledger.db"), *options) as server:
        assert "uvloop" in loaded_libraries(server)


def loaded_libraries(server: Server) -> str:
    """Return the names of the files that the process of a server maps into its memory."""
    return Path(f"/proc/{server.process.pid}/maps").read_text()
