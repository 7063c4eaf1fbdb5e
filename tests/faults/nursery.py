"""The other end of `tests.faults.children`: asks for children, reads what they say, kills them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Nursery:
    """A process that forks children on demand."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.children"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._codes: list[int] | None = []

    def start(
        self, number: int, task: str, where: tuple[str, ...], *, cap: int = 0, tries: int = 0
    ) -> list[int]:
        """Begin so many children; their numbers, once all are at work."""
        assert self._process.stdin
        line = " ".join([str(number), task, str(cap), str(tries), *where])
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
        self._codes = None
        self._early: list[bytes] = []
        born: list[int] = []
        while len(born) < number:
            said = self._line()
            if said.startswith(b"born "):
                born.append(int(said.split()[1]))
            elif said == b"failed":
                kill(born)
                raise AssertionError("a child failed before it was ready")
            else:
                self._early.append(said)
        return born

    def said(self) -> Iterator[bytes]:
        """What the children print, until all have ended."""
        yield from self._early
        self._early = []
        while self._codes is None:
            line = self._line()
            if line not in {b"", b"failed"}:
                yield line

    @property
    def codes(self) -> list[int]:
        """How the children ended."""
        return self._codes or []

    def close(self) -> None:
        """End the nursery."""
        self._process.communicate()
        self._errors.seek(0)
        print(self._errors.read()[-3000:].decode())
        self._errors.close()

    def _line(self) -> bytes:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the nursery has ended"
        if line.startswith(b"ended "):
            self._codes = [int(code) for code in line.split()[1].split(b",")]
            return b""
        return line.strip()


def kill(children: list[int]) -> None:
    """SIGKILL, to those that still live."""
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
