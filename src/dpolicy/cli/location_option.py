"""Option `--at`: a location such as country=CH."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


def location_option(command: _Command) -> _Command:
    """Add `--at` to a command."""
    return click.option(
        "--at",
        multiple=True,
        help="Location to report, such as country=CH or time=2026-10; repeatable.",
    )(command)


def parse_location(at: tuple[str, ...]) -> dict[str, str]:
    """Return the location that the options state. Raise `UsageError`."""
    parts = [argument.partition("=") for argument in at]
    wrong = [name for name, sign, value in parts if not (name and sign and value)]
    if wrong:
        raise click.UsageError(
            f"`--at {wrong[0]}` must have the form name=value, such as country=CH"
        )
    return {name: value for name, _, value in parts}
