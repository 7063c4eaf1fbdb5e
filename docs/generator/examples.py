"""Examples of diagnostics: small files, and the commands that print a diagnostic about them.

The examples are in `tests/cases/diagnostics`. An example consists of all files with the same stem,
which starts with the code of the diagnostic:

    CODE-name.yaml          input of the command of the family
    CODE-name.policy.yaml   policy that replaces the shared one
    CODE-name.py            script that runs first
    CODE-name.command       command that replaces the command of the family
"""

from __future__ import annotations

import runpy
import shlex
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from docs.generator.code_families import CodeFamily
from dpolicy.cli.main import exit_code

EXAMPLES = Path(__file__).parent.parent.parent / "tests" / "cases" / "diagnostics"
SHARED_FILES = EXAMPLES / "shared"

#: Name of a script in the directory in which it runs.
SCRIPT = "example.py"


@dataclass(frozen=True, slots=True)
class Example:
    """Files and commands of one example.

    The page shows `files`, and `commands` with their output. `shared` files and `setup` commands
    are the same for all examples of a family; the page shows them once.
    """

    files: Mapping[str, str]
    commands: tuple[str, ...]
    shared: Mapping[str, str]
    setup: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command with everything that it printed, and its exit code."""

    command: str
    output: str
    exit_code: int


def example_names() -> tuple[str, ...]:
    """Return the names of all examples, sorted."""
    return tuple(sorted({path.name.split(".")[0] for path in EXAMPLES.iterdir() if path.is_file()}))


def example_code(name: str) -> str:
    """Return the code that an example causes."""
    return name.split("-")[0]


def load_shared_files(family: CodeFamily) -> dict[str, str]:
    """Return the files that all examples of a family use, by name."""
    return {name: (SHARED_FILES / name).read_text("utf-8") for name in family.shared_files}


def load_example(name: str, family: CodeFamily) -> Example:
    """Read the files of an example and select its commands."""
    input_file, command = family.input_file, family.command
    if name.endswith("_test"):
        input_file, command = "policy_test.yaml", "dpolicy test policy_test.yaml"
    texts = {
        file_name: _read(f"{name}{suffix}")
        for suffix, file_name in (
            (".policy.yaml", "policy.yaml"),
            (".py", SCRIPT),
            (".yaml", input_file),
        )
    }
    files = {file_name: text for file_name, text in texts.items() if text is not None}
    setup = family.setup
    commands: tuple[str, ...] = ()
    if "policy.yaml" in files and setup:
        setup, commands = (), setup
    if SCRIPT in files:
        commands += (f"python {SCRIPT}",)
    own_command = _read(f"{name}.command")
    if own_command is not None:
        commands += (own_command.strip(),)
    elif input_file in files:
        commands += (command,)
    return Example(files, commands, load_shared_files(family), setup)


def _read(name: str) -> str | None:
    path = EXAMPLES / name
    return path.read_text("utf-8") if path.exists() else None


def run_example(example: Example) -> tuple[CommandResult, ...]:
    """Run the commands of an example in a directory that contains only its files."""
    with TemporaryDirectory() as directory, chdir(directory):
        for name, text in {**example.shared, **example.files}.items():
            Path(name).write_text(text, "utf-8")
        for command in example.setup:
            _run(command)
        return tuple(_run(command) for command in example.commands)


def _run(command: str) -> CommandResult:
    """Run a command in this process, because starting one for each example would be slow."""
    program, *arguments = shlex.split(command)
    output = StringIO()
    code = 0
    with redirect_stdout(output), redirect_stderr(output):
        if program == "python":
            runpy.run_path(arguments[0])
        else:
            code = exit_code(arguments)
    return CommandResult(command, output.getvalue().strip("\n"), code)
