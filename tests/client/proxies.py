"""A server → the same behind a proxy that passes requests on and swallows answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Proxy:
    """Swallows the next `swallow` answers, after the server has given them."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._to = (host, int(port))
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.swallow = 0
        self.asked = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, socket.create_connection(self._to) as server:
                server.sendall(_message(connection))
                answer = _message(server)
                self.asked += 1
                if self.swallow:
                    self.swallow -= 1
                else:
                    connection.sendall(answer)


def _message(connection: socket.socket) -> bytes:
    """One request or answer, which says that it is the last."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection")]
    lengths = [line for line in lines if line.lower().startswith(b"content-length")]
    length = int(lengths[0].split(b":")[1]) if lengths else 0
    while len(body) < length:
        body += connection.recv(65536)
    return b"\r\n".join([*lines, b"connection: close", b"", b""]) + body


@contextmanager
def swallowing(url: str) -> Iterator[Proxy]:
    """A proxy until the block ends."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
