"""`--ledger`: a path or a `postgresql://` address, or what DPOLICY_LEDGER says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from dpolicy.ledger.store_address import open_existing, open_store
from dpolicy.pdp.decision_point import DecisionPoint

_Command = TypeVar("_Command", bound=Callable[..., Any])


def ledger_option(command: _Command) -> _Command:
    """The ledger that a command works on."""
    return click.option(
        "--ledger",
        envvar="DPOLICY_LEDGER",
        required=True,
        help="A path, or a postgresql:// address; DPOLICY_LEDGER if left out.",
    )(command)


def author_option(command: _Command) -> _Command:
    """Who does it, for the record."""
    return click.option("--by", default="", help="Who does it, for the record.")(command)


@contextmanager
def open_decision_point(ledger: str, *, new: bool = False) -> Iterator[DecisionPoint]:
    """A decision point on a ledger, closed at the end; only some commands may make a new one."""
    point = DecisionPoint(open_store(ledger) if new else open_existing(ledger))
    try:
        yield point
    finally:
        point.close()
