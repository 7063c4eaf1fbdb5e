"""Entry point of `dpolicy`: run a command and return its exit code.

0 success   1 internal or I/O failure   2 denied or conflict   3 errors in a text
4 failed case   5 damaged ledger   64 wrong usage
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import NoReturn

import click

from dpolicy import __version__
from dpolicy.cli.exit_codes import FAILURE, REJECTED, TAMPERED, USAGE
from dpolicy.errors import (
    DPolicyError,
    InvalidValue,
    InvariantBroken,
    LedgerDamaged,
    OperationRejected,
    PolicyRejected,
    ReleaseRejected,
)

#: Module of each command. A module is imported only when its command is called.
COMMANDS = {
    "allocate": "dpolicy.cli.commands.allocation.allocate",
    "apply": "dpolicy.cli.commands.policy.apply",
    "budgets": "dpolicy.cli.commands.ledger.budgets",
    "calibrate": "dpolicy.cli.commands.releases.calibrate",
    "check": "dpolicy.cli.commands.policy.check",
    "commit": "dpolicy.cli.commands.releases.commit",
    "copy": "dpolicy.cli.commands.ledger.copy",
    "cost": "dpolicy.cli.commands.releases.cost",
    "demo": "dpolicy.cli.commands.service.demo",
    "diff": "dpolicy.cli.commands.policy.diff",
    "export": "dpolicy.cli.commands.ledger.export",
    "fmt": "dpolicy.cli.commands.policy.fmt",
    "implies": "dpolicy.cli.commands.policy.implies",
    "import": "dpolicy.cli.commands.releases.import_",
    "init": "dpolicy.cli.commands.policy.init",
    "log": "dpolicy.cli.commands.ledger.log",
    "paper": "dpolicy.cli.commands.allocation.paper",
    "rules": "dpolicy.cli.commands.policy.rules",
    "schema": "dpolicy.cli.commands.policy.schema",
    "serve": "dpolicy.cli.commands.service.serve",
    "simulate": "dpolicy.cli.commands.allocation.simulate",
    "submit": "dpolicy.cli.commands.releases.submit",
    "test": "dpolicy.cli.commands.policy.test",
    "token": "dpolicy.cli.commands.service.token",
    "verify": "dpolicy.cli.commands.ledger.verify",
    "void": "dpolicy.cli.commands.releases.void",
}


class _LazyCommands(click.Group):
    """Group that imports a command only when it is called, so that every start is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name]).command
        return command


@click.command(cls=_LazyCommands)
@click.version_option(__version__, prog_name="dpolicy")
def dpolicy() -> None:
    """Keep the cumulative privacy risk of all differentially private releases under control."""


def run(arguments: list[str] | None = None) -> NoReturn:
    """Run a command and exit. Input from outside never causes a traceback."""
    if any(_has_invalid_bytes(argument) for argument in arguments or sys.argv[1:]):
        click.echo("error: an argument is not valid UTF-8", err=True)
        sys.exit(USAGE)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # an ASCII terminal cannot print ε and ×
            stream.reconfigure(errors="backslashreplace")
    sys.exit(exit_code(arguments))


def _has_invalid_bytes(argument: str) -> bool:
    """Return whether Python decoded bytes of an argument that are not UTF-8 as surrogates."""
    return any("\ud800" <= character <= "\udfff" for character in argument)


def exit_code(arguments: list[str] | None) -> int:
    """Run a command and return its exit code."""
    from dpolicy.cli.output.printing import OutputFormat, print_problems, print_rejection

    output = OutputFormat()
    try:
        code = dpolicy.main(arguments, standalone_mode=False, obj=output)
        if sys.stdout is not None:  # None if the caller closed it
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.UsageError as error:
        error.show()
        return USAGE
    except click.Abort:
        return FAILURE
    except PolicyRejected as error:
        print_rejection(error, output)
        return REJECTED
    except ReleaseRejected as error:
        print_problems(error, output)
        return REJECTED
    except (InvalidValue, OperationRejected) as error:
        click.echo(f"error: {error}", err=True)
        return USAGE
    except LedgerDamaged as error:
        click.echo(f"error: {error}", err=True)
        return TAMPERED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except OSError as error:
        file = f": {error.filename}" if error.filename else ""
        click.echo(f"error: {error.strerror or error}{file}", err=True)
        return FAILURE
    except InvariantBroken as error:
        click.echo(f"internal error: {error}", err=True)
        return FAILURE
    except DPolicyError as error:
        click.echo(f"error: {error}", err=True)
        return FAILURE
