"""Session: run the blocks of a page in a directory, and compare what they print."""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.documents.markdown_blocks import ROOT, Block, Command, is_output, read_commands

#: The port in the commands and outputs of pages; a session uses a free one instead.
PORT = "8500"


class Session:
    """The directory, files, variables and servers of one page."""

    def __init__(self, directory: Path, **variables: Any) -> None:
        self._directory = directory
        self._variables: dict[str, Any] = {"__name__": "__main__", **variables}
        self._servers: list[subprocess.Popen[str]] = []
        self._printed = ""
        self._port = str(_free_port())
        for name in ("examples", "benchmarks", "src"):
            (directory / name).symlink_to(ROOT / name)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop_servers()

    def run(self, block: Block) -> None:
        """Run a block; raise `AssertionError` if it fails or prints something else."""
        match block.language, block.directive.partition(": "):
            case _, ("file", _, name):
                path = self._directory / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, "utf-8")
            case _, ("part", _, name):
                with (self._directory / name).open("a", encoding="utf-8") as file:
                    file.write(block.text)
            case _, ("output", _, _):
                self._compare(block.text, self._printed, block.line)
            case (("console" | "sh"), ("long", _, _)):
                for command in read_commands(block):
                    self._check_options(command)
            case (("console" | "sh"), _):
                for command in read_commands(block):
                    self._run_command(command, block)
            case "python", _:
                self._run_python(block)
            case "pycon", _:
                self._run_python_session(block)
            case _:
                raise AssertionError(f"line {block.line}: nothing runs this block")

    def _run_command(self, command: Command, block: Block) -> None:
        text = command.text.replace(PORT, self._port)
        if text.endswith(" &"):
            self._start_server(text.removesuffix(" &"))
        else:
            self._printed = self._capture(text)
        if block.language == "console":
            self._compare(command.output, self._printed, block.line)

    def _check_options(self, command: Command) -> None:
        """Check that a command exists and has the options that the page uses."""
        words = shlex.split(command.text, comments=True)
        if words[0] == "make":
            self._capture(f"make --dry-run --directory {ROOT} {words[1]}")
            return
        name = words[:2]
        help_text = self._capture(f"{shlex.join(name)} --help")
        for option in (word for word in words if word.startswith("--")):
            assert option in help_text, f"`{shlex.join(name)}` has no option {option}"

    def _capture(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._directory,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert done.returncode in _expected_codes(done.stdout), f"{command}\n{done.stdout}"
        return done.stdout

    def _start_server(self, command: str) -> None:
        """Start a server in place of the one before, and wait until it prints its address."""
        self._stop_servers()
        server = subprocess.Popen(
            ["bash", "-c", f"exec {command} --port {self._port}"],
            cwd=self._directory,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._servers.append(server)
        assert server.stdout is not None
        self._printed = server.stdout.readline()
        _wait_for_port(int(self._port))

    def _stop_servers(self) -> None:
        while self._servers:
            server = self._servers.pop()
            os.killpg(server.pid, signal.SIGTERM)
            server.communicate(timeout=60)

    def _run_python(self, block: Block) -> None:
        printed = io.StringIO()
        source = "\n" * (block.line - 1) + block.text.replace(PORT, self._port)
        with contextlib.chdir(self._directory), contextlib.redirect_stdout(printed):
            exec(compile(source, f"page:{block.line}", "exec"), self._variables)
        self._printed = printed.getvalue()

    def _run_python_session(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(block.text, {}, "page", None, block.line - 1)
        test.globs = self._variables  # shared with later blocks, so not a copy
        differences: list[str] = []
        with contextlib.chdir(self._directory):
            runner = doctest.DocTestRunner(verbose=False)
            runner.run(test, out=differences.append, clear_globs=False)
        assert test.examples and not differences, "".join(differences)

    def _compare(self, expected: str, printed: str, line: int) -> None:
        shown = printed.replace(self._port, PORT)
        assert is_output(expected, shown), f"line {line}: the page and the output differ\n{shown}"

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        source = str(ROOT / "src")
        return {**os.environ, "PATH": path, "PYTHONPATH": source, "COLUMNS": "120"}


def _expected_codes(printed: str) -> tuple[int, ...]:
    """Return the valid exit codes: 2 for a denial, conflict or broken claim, 3 for an error."""
    if re.search(r"^(denied|conflict)\b|^\S.* does not hold for ", printed, re.MULTILINE):
        return (2,)
    return (3,) if re.search(r"^\S+:\d+:\d+: error [A-Z]\d{3}: ", printed, re.MULTILINE) else (0,)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait_for_port(port: int) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError("the server did not start")
