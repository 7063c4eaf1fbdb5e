"""Fork server: a process that forks child processes for the fault tests in a millisecond.

A test holds a `ForkServer`; the process on the other side runs `serve`. The test writes one line
for each group of children, `NUMBER TASK CAP TRIES ADDRESS…`. Each child opens the store, prints
`ready PID`, waits until all children of its group are forked, and runs its task. When all have
exited, the fork server prints `exited` and their exit codes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.ledger.store_access import Address, open_at

from dpolicy.ledger.store import LedgerStore

ROOT = Path(__file__).parents[2]

#: Called in a child with the store, `cap` and `tries`; the meaning of both depends on the task.
Task = Callable[[LedgerStore, int, int], None]


class ForkServer:
    """The test's side of a fork server that runs the tasks of a module."""

    def __init__(self, module: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._exit_codes: list[int] | None = []
        self._early_lines: list[bytes] = []

    def start(
        self, number: int, task: str, address: Address, *, cap: int = 0, tries: int = 0
    ) -> list[int]:
        """Start children; return their process ids when all are ready."""
        assert self._process.stdin
        line = " ".join([str(number), task, str(cap), str(tries), *address])
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()
        self._exit_codes = None
        self._early_lines = []
        children: list[int] = []
        while len(children) < number:
            output = self._read_line()
            if output.startswith(b"ready "):
                children.append(int(output.split()[1]))
            elif output == b"failed":
                kill(children)
                raise AssertionError("a child failed before it was ready")
            else:
                self._early_lines.append(output)
        return children

    def output(self) -> Iterator[bytes]:
        """Yield the lines that the children print, until all have exited."""
        yield from self._early_lines
        self._early_lines = []
        while self._exit_codes is None:
            line = self._read_line()
            if line not in {b"", b"failed"}:
                yield line

    @property
    def exit_codes(self) -> list[int]:
        """Exit codes of the last group of children."""
        return self._exit_codes or []

    def close(self) -> None:
        """Stop the fork server and print the errors of its children."""
        self._process.communicate()
        self._errors.seek(0)
        print(self._errors.read()[-3000:].decode())
        self._errors.close()

    def _read_line(self) -> bytes:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the fork server has exited"
        if line.startswith(b"exited "):
            self._exit_codes = [int(code) for code in line.split()[1].split(b",")]
            return b""
        return line.strip()


def kill(children: list[int]) -> None:
    """Send SIGKILL to all children that are still running."""
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def serve(tasks: Mapping[str, Task]) -> None:
    """Fork children as the lines of the standard input demand, until it is closed."""
    for line in sys.stdin:
        number, *arguments = line.split()
        barrier, gate = os.pipe()
        children = []
        for _ in range(int(number)):
            child = os.fork()
            if child == 0:
                os.close(gate)
                _run_child(tasks, barrier, *arguments)
            children.append(child)
        os.close(barrier)
        os.close(gate)  # every child waits for this
        exit_codes = []
        for child in children:
            with contextlib.suppress(ChildProcessError):
                exit_codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os.write(1, b"exited %s\n" % ",".join(map(str, exit_codes)).encode())


def _run_child(
    tasks: Mapping[str, Task], barrier: int, task: str, cap: str, tries: str, *address: str
) -> None:
    try:
        store = open_at(*address)
        os.write(1, b"ready %d\n" % os.getpid())
        os.read(barrier, 1)
        tasks[task](store, int(cap), int(tries))
        store.close()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os.write(1, b"failed\n")
        os._exit(1)
