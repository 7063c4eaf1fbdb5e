"""Proxy in front of a server that forwards requests and can drop responses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Proxy:
    """Proxy that drops the next `responses_to_drop` responses after the server has sent them."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._server_address = (host, int(port))
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.responses_to_drop = 0
        self.request_count = 0
        self._thread = threading.Thread(target=self._forward_all)
        self._thread.start()

    def close(self) -> None:
        """Stop the proxy and wait for its thread."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _forward_all(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, socket.create_connection(self._server_address) as server:
                server.sendall(_receive_message(connection))
                response = _receive_message(server)
                self.request_count += 1
                if self.responses_to_drop:
                    self.responses_to_drop -= 1
                else:
                    connection.sendall(response)


def _receive_message(connection: socket.socket) -> bytes:
    """Receive one request or response and add `connection: close` to its headers."""
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
def dropping_proxy(url: str) -> Iterator[Proxy]:
    """Run a proxy in front of `url` until the block ends."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
