"""Start of the command line: help and completion import no command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module

import click
import pytest

from dpolicy.cli.main import COMMANDS, dpolicy

#: Run `dpolicy` and print the modules that the process has imported.
SCRIPT = """\
import atexit, json, sys
from dpolicy.cli.main import run
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
run(sys.argv[1:])
"""


def imported_modules(*arguments: str, **environment: str) -> tuple[str, list[str]]:
    """Return the output of a command and the modules that its process imported."""
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return process.stdout, json.loads(process.stderr.splitlines()[-1])


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_table_has_the_short_help_of_the_command(name: str) -> None:
    module = import_module(f"dpolicy.cli.commands.{COMMANDS[name].module}")
    assert module.command.get_short_help_str(10**6) == COMMANDS[name].short_help
    assert not module.command.hidden


def test_help_is_the_help_of_click() -> None:
    """The lines are those that click writes after it imported every command, by group."""
    context = click.Context(dpolicy, info_name="dpolicy", terminal_width=100)
    ours, theirs = context.make_formatter(), context.make_formatter()
    dpolicy.format_commands(context, ours)
    click.Group.format_commands(dpolicy, context, theirs)
    written = [line for line in ours.getvalue().splitlines() if line.startswith("  ")]
    expected = [line for line in theirs.getvalue().splitlines() if line.startswith("  ")]
    assert sorted(written) == sorted(expected)


def test_completion_is_the_completion_of_click() -> None:
    context = click.Context(dpolicy, info_name="dpolicy")
    for text in ("", "s", "--", "none"):
        ours = dpolicy.shell_complete(context, text)
        theirs = click.Group.shell_complete(dpolicy, context, text)
        assert [vars(item) for item in ours] == [vars(item) for item in theirs]


def test_help_imports_no_command_and_no_library() -> None:
    out, modules = imported_modules("--help")
    assert "  submit " in out
    assert not [name for name in modules if name.startswith("dpolicy.cli.commands.")]
    assert not {"numpy", "yaml", "apsw", "dataclasses"} & set(modules)


def test_completion_imports_no_command() -> None:
    environment = {"COMP_WORDS": "dpolicy su", "COMP_CWORD": "1"}
    # click derives the variable from the name of the program, which is `-c` here
    out, modules = imported_modules(**{"__C_COMPLETE": "bash_complete", **environment})
    assert out == "plain,submit\n"
    assert not [name for name in modules if name.startswith("dpolicy.cli.commands.")]
