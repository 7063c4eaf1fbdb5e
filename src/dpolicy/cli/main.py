"""Entry point of `dpolicy`: run a command and return its exit code.

0 success   1 internal or I/O failure   2 denied or conflict   3 errors in a text
4 failed case   5 damaged ledger   6 undecided   64 wrong usage
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from dpolicy import __version__
from dpolicy.cli.exit_codes import FAILURE, REJECTED, TAMPERED, USAGE
from dpolicy.cli.output.output_format import OutputFormat
from dpolicy.errors import (
    DPolicyError,
    InvalidValue,
    InvariantBroken,
    LedgerDamaged,
    OperationRejected,
    PolicyRejected,
    ReleaseRejected,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class CommandEntry(NamedTuple):
    """Row of the table of commands: the module below `commands`, and the first line of the help."""

    module: str
    short_help: str


#: All commands. A module is imported only when its command runs: help and completion need the table
#: only.
COMMANDS = {
    "allocate": CommandEntry(
        "allocation.allocate",
        "Select releases from FILE (a YAML list or a directory) that fit the remaining budget.",
    ),
    "apply": CommandEntry(
        "policy.apply",
        "Activate the policy set POLICY.",
    ),
    "budgets": CommandEntry(
        "ledger.budgets",
        "Print spent loss and budget of each cumulative rule, most used first.",
    ),
    "calibrate": CommandEntry(
        "releases.calibrate",
        "Print the least noise of a mechanism, rounded up.",
    ),
    "check": CommandEntry(
        "policy.check",
        "Compile the policy set PATH (a file or a directory).",
    ),
    "commit": CommandEntry(
        "releases.commit",
        "End the reservation RELEASE as used, completely or in part.",
    ),
    "copy": CommandEntry(
        "ledger.copy",
        "Copy the ledger to TARGET, a path or a postgresql:// URL, while it is in use.",
    ),
    "cost": CommandEntry(
        "releases.cost",
        "Print the cost of each mechanism of the release FILE for each privacy unit.",
    ),
    "demo": CommandEntry(
        "service.demo",
        "Serve a dashboard with one year of sample data, on this machine only, until Ctrl-C.",
    ),
    "diff": CommandEntry(
        "policy.diff",
        "Print which rules the policy set NEW adds, removes, tightens or loosens against OLD.",
    ),
    "export": CommandEntry(
        "ledger.export",
        "Export the ledger: events as JSON lines, mechanisms as CSV, or registry entries as YAML.",
    ),
    "fmt": CommandEntry(
        "policy.fmt",
        "Rewrite the files of the policy set PATH in canonical layout.",
    ),
    "headroom": CommandEntry(
        "releases.headroom",
        "Print how many more releases like RELEASE `submit` would allow now, for each rule.",
    ),
    "implies": CommandEntry(
        "policy.implies",
        "Check whether the scope of the rule SMALLER is inside the scope of LARGER.",
    ),
    "import": CommandEntry(
        "releases.import_",
        "Record the past releases FILES and charge them, even if a budget is exceeded.",
    ),
    "init": CommandEntry(
        "policy.init",
        "Write a commented starter policy, a release and a case into DIRECTORY.",
    ),
    "log": CommandEntry(
        "ledger.log",
        "Print every event of the ledger, oldest first.",
    ),
    "paper": CommandEntry(
        "allocation.paper",
        "Run the scenarios of the paper for DPolicy and for Cohere's single budget.",
    ),
    "prove": CommandEntry(
        "policy.prove",
        "Print the smallest bounds that the policy set POLICY implies for a scope.",
    ),
    "registry": CommandEntry(
        "releases.registry",
        "Print the attacker risk of the entries in FILES of the OpenDP deployments registry.",
    ),
    "report": CommandEntry(
        "ledger.report",
        "Write a report about a ledger: for a board, as a dossier, or as a public statement.",
    ),
    "risk": CommandEntry(
        "releases.risk",
        "Print how much the best attacker can learn within a budget.",
    ),
    "rules": CommandEntry(
        "policy.rules",
        "Print the rules of the policy set PATH that are enforced.",
    ),
    "schema": CommandEntry(
        "policy.schema",
        "Print the JSON Schema of policy files, for editors.",
    ),
    "serve": CommandEntry(
        "service.serve",
        "Serve the HTTP API and the dashboard of a ledger until SIGTERM or Ctrl-C.",
    ),
    "simulate": CommandEntry(
        "allocation.simulate",
        "Simulate the rounds of SCENARIO and print the result of each; no ledger is written.",
    ),
    "spent": CommandEntry(
        "ledger.spent",
        "Print what recorded releases spent in a scope, and who spent it.",
    ),
    "submit": CommandEntry(
        "releases.submit",
        "Decide RELEASES in the given order, and charge the allowed ones.",
    ),
    "test": CommandEntry(
        "policy.test",
        "Run the cases in PATHS: files, or directories with `*_test.yaml` files.",
    ),
    "token": CommandEntry(
        "service.token",
        "Generate a bearer token.",
    ),
    "tune": CommandEntry(
        "policy.tune",
        "Print the shares of δ that the policy set POLICY is tuned to.",
    ),
    "verify": CommandEntry(
        "ledger.verify",
        "Verify the hash chain and recompute every decision from the first record.",
    ),
    "void": CommandEntry(
        "releases.void",
        "Void the reservation RELEASE and return its budget.",
    ),
}


#: Headings of the commands in the help, by the package of their modules.
GROUPS = {
    "policy": "Write policies",
    "releases": "Submit releases",
    "ledger": "Look at a ledger",
    "allocation": "Allocate budget",
    "service": "Run a server",
}


class _LazyCommands(click.Group):
    """Group that imports a command only when it runs, so that every start is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(
            f"dpolicy.cli.commands.{COMMANDS[cmd_name].module}"
        ).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the arguments; suggest the closest one if there is none."""
        name = click.utils.make_str(args[0])
        if name not in COMMANDS and not name.startswith("-"):
            from dpolicy.text.did_you_mean import suggest_closest

            hint = suggest_closest(name, COMMANDS)
            ctx.fail(f"no command `{name}`" + (f"; {hint}" if hint else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by group with the helps of the table, cut to the terminal's width."""
        longest = max(map(len, COMMANDS))
        limit = formatter.width - 6 - longest
        for package, title in GROUPS.items():
            names = [n for n in sorted(COMMANDS) if COMMANDS[n].module.startswith(f"{package}.")]
            rows = [(name.ljust(longest), _short_help(name, limit)) for name in names]
            with formatter.section(title):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin with a text."""
        from click.shell_completion import CompletionItem

        names = [name for name in sorted(COMMANDS) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=_short_help(name)) for name in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)


def _short_help(name: str, limit: int = 45) -> str:
    """Return the help of a command in at most `limit` characters, as click shortens it."""
    return click.Command(name, help=COMMANDS[name].short_help).get_short_help_str(limit)


@click.command(cls=_LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dpolicy")
def dpolicy() -> None:
    """Keep the cumulative privacy risk of all differentially private releases under control.

    Start here: `dpolicy init tour` writes a policy, a release and a case into a directory, and
    prints the next commands. `dpolicy demo` serves a dashboard with sample data.
    """


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
        from dpolicy.cli.output.printing import print_rejection

        print_rejection(error, output)
        return REJECTED
    except ReleaseRejected as error:
        from dpolicy.cli.output.printing import print_problems

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
