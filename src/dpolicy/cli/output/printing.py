"""Printing of values: text or JSON on standard output, notes on standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from dpolicy.cli.output.output_format import OutputFormat
from dpolicy.errors import PolicyRejected, ReleaseRejected
from dpolicy.text.diagnostics import Diagnostic

#: Maximum number of diagnostics that a command prints.
MAX_PRINTED_DIAGNOSTICS = 100

_Command = TypeVar("_Command", bound=Callable[..., Any])


def format_option(command: _Command) -> _Command:
    """Add `--format text|json` to a command."""
    return click.option(
        "--format",
        "format_",
        type=click.Choice(["text", "json"]),
        default="text",
        callback=_remember_format,
        is_eager=True,
        help="Output format: text or json.",
    )(command)


def _remember_format(context: click.Context, _: click.Parameter, value: str) -> str:
    if isinstance(context.obj, OutputFormat):
        context.obj.name = value
    return value


def print_json(value: object) -> None:
    """Print one JSON value on standard output."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_note(text: str) -> None:
    """Print a line on standard error."""
    click.echo(text, err=True)


def print_diagnostics(diagnostics: Iterable[object]) -> None:
    """Print diagnostics as text on standard error."""
    all_diagnostics = list(diagnostics)
    for diagnostic in all_diagnostics[:MAX_PRINTED_DIAGNOSTICS]:
        print_note(f"{diagnostic}\n")
    if len(all_diagnostics) > MAX_PRINTED_DIAGNOSTICS:
        print_note(f"… and {len(all_diagnostics) - MAX_PRINTED_DIAGNOSTICS} more")


def print_rejection(error: PolicyRejected, output: OutputFormat) -> None:
    """Print the diagnostics of a rejected text."""
    if output.name == "json":
        diagnostics = [d.as_json() for d in error.diagnostics if isinstance(d, Diagnostic)]
        print_json({"ok": False, "diagnostics": diagnostics})
    else:
        print_diagnostics(error.diagnostics)


def print_problems(error: ReleaseRejected, output: OutputFormat) -> None:
    """Print the problems of a rejected release."""
    if output.name == "json":
        problems = [
            {"code": p.code, "severity": "error", "message": p.message} for p in error.problems
        ]
        print_json({"ok": False, "diagnostics": problems})
    else:
        for problem in error.problems:
            print_note(f"error: {problem}")
