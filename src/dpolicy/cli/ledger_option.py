"""Options `--ledger` and `--by`, and the decision point of a command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from dpolicy.ledger.store_address import open_existing, open_store
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.journal.journal import Result
from dpolicy.pdp.state.ledger_state import LedgerState
from dpolicy.rules.compiler import CompiledPolicy

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _LedgerOption(click.Option):
    """Option whose error names the environment variable, too."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the option and what to do, for the message of a missing option."""
        return "'--ledger'; help: pass it, or set DPOLICY_LEDGER"


def ledger_option(command: _Command) -> _Command:
    """Add `--ledger` to a command."""
    return click.option(
        "--ledger",
        cls=_LedgerOption,
        envvar="DPOLICY_LEDGER",
        required=True,
        help="Ledger: a path or a postgresql:// URL; default $DPOLICY_LEDGER.",
    )(command)


def author_option(command: _Command) -> _Command:
    """Add `--by` to a command."""
    return click.option(
        "--by", default="", callback=_check_author, help="Author, stored in the ledger."
    )(command)


def _check_author(_: click.Context, __: click.Parameter, value: str) -> str:
    if not value.isprintable():  # a line break would forge a line of `dpolicy log`
        raise click.UsageError("--by must be printable text on one line")
    return value


def read_state(
    ledger: str | None, policy: CompiledPolicy | None, read: Callable[[LedgerState], Result]
) -> Result:
    """Return what `read` computes from a ledger, or from an empty one if there is no `ledger`.

    With `policy`, the state is that of the same records under this policy.
    """
    point = DecisionPoint(open_store(":memory:") if ledger is None else open_existing(ledger))
    try:
        return point.read_state(lambda state: read(state.with_policy(policy) if policy else state))
    finally:
        point.close()


@contextmanager
def open_decision_point(ledger: str, *, new: bool = False) -> Iterator[DecisionPoint]:
    """Open a decision point and close it at the end. With `new`, create a missing ledger."""
    point = DecisionPoint(open_store(ledger) if new else open_existing(ledger))
    try:
        yield point
    finally:
        point.close()
