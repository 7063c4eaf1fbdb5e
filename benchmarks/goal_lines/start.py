"""CPU of `dpolicy --help`, relative to an interpreter that imports click."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.goal_lines.line import Line, Options

_HELP = (sys.executable, "-c", "from dpolicy.cli.main import run; run()", "--help")
_IMPORT = (sys.executable, "-c", "import click")


def measure_child_cpu(command: tuple[str, ...]) -> float:
    """Return the CPU seconds of a command from its start to its end."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} fails with code {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def measure_start(options: Options) -> list[Line]:
    """Return the lines of the start."""
    rounds = 4 * options.rounds
    times = [(measure_child_cpu(_HELP), measure_child_cpu(_IMPORT)) for _ in range(rounds)]
    helped, imported = min(one for one, _ in times), min(one for _, one in times)
    return [
        Line("CPU of `dpolicy --help`", helped * 1e3, unit="ms"),
        Line('- ÷ `python -c "import click"`', helped / imported, 2),
    ]
