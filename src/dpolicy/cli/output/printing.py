"""Values → what is printed: text for people, JSON for programs; notes go to standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from dpolicy.errors import PolicyRejected, ReleaseRejected
from dpolicy.text.diagnostics import Diagnostic

#: More than this nobody mends in one go.
MAX_SHOWN = 100

_Command = TypeVar("_Command", bound=Callable[..., Any])


def format_option(command: _Command) -> _Command:
    """`--format text|json`, which every command takes."""
    return click.option(
        "--format",
        "format_",
        type=click.Choice(["text", "json"]),
        default="text",
        help="Text for people or JSON for programs.",
    )(command)


def print_json(value: object) -> None:
    """One JSON value on standard output."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_note(text: str) -> None:
    """Something to know, on standard error."""
    click.echo(text, err=True)


def print_diagnostics(diagnostics: Iterable[object]) -> None:
    """Diagnostics for people, on standard error."""
    every = list(diagnostics)
    for diagnostic in every[:MAX_SHOWN]:
        print_note(f"{diagnostic}\n")
    if len(every) > MAX_SHOWN:
        print_note(f"… and {len(every) - MAX_SHOWN} more")


def print_rejection(error: PolicyRejected, *, as_json: bool) -> None:
    """What is wrong with a text, in the format that was asked for."""
    if as_json:
        found = [d.as_json() for d in error.diagnostics if isinstance(d, Diagnostic)]
        print_json({"ok": False, "diagnostics": found})
    else:
        print_diagnostics(error.diagnostics)


def print_problems(error: ReleaseRejected, *, as_json: bool) -> None:
    """What a policy cannot read of a release, in the format that was asked for."""
    if as_json:
        found = [
            {"code": p.code, "severity": "error", "message": p.message} for p in error.problems
        ]
        print_json({"ok": False, "diagnostics": found})
    else:
        for problem in error.problems:
            print_note(f"error {problem}")
