"""Writes the reference pages that come from the code: diagnostics, commands and the JSON Schema.

`python docs/generate.py` writes them, `python docs/generate.py --check` says which are stale and
exits with 1. The same code always gives the same pages, whatever the machine.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from dpolicy.cli.main import COMMANDS, dpolicy, exit_code
from dpolicy.policy.diagnostic_codes import CATALOGUE
from dpolicy.policy.json_schema import policy_schema
from dpolicy.service.api.openapi import PROBLEMS_OF_EVERY_ENDPOINT as ANY
from dpolicy.service.api.openapi import plain_path
from dpolicy.service.api.routes import ENDPOINTS
from dpolicy.service.auth.principal import EVERY_ROLE
from dpolicy.service.http.problem_details import PROBLEMS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dpolicy"
EXAMPLES = ROOT / "tests" / "cases" / "diagnostics"

#: Packages from low to high; `tests/test_tidy.py` checks that imports point down.
LAYERS = (
    *("text", "privacy", "releases", "predicates", "policy", "rules", "ledger", "balances"),
    *("decisions", "pdp", "cases", "allocation", "client", "integrations", "evaluation"),
    *("service", "demo", "cli"),
)

#: Help is printed this wide, whatever the terminal.
COLUMNS = 90

#: Codes that no text causes, and what does.
WITHOUT_EXAMPLE = {"P047": "`dpolicy rules --graph` prints it; `--unit` and `--policy` draw less."}

_NOTE = "<!-- Written by docs/generate.py. Do not edit. -->\n"


def example_of(code: str) -> Path | None:
    """The smallest text that causes a diagnostic."""
    return next(iter(sorted(EXAMPLES.glob(f"{code}-*.yaml"))), None)


def printed(arguments: list[str], files: dict[str, str]) -> str:
    """What a command prints in a directory that holds just these files."""
    output = StringIO()
    with TemporaryDirectory() as directory, chdir(directory):
        for name, text in files.items():
            Path(name).write_text(text, "utf-8")
        with redirect_stdout(output), redirect_stderr(output):
            exit_code(arguments)
    return output.getvalue().strip("\n")


def output_of(example: Path) -> tuple[str, str]:
    """The command that shows a diagnostic, and what it prints."""
    is_case = example.stem.endswith("_test")
    name = "policy_test.yaml" if is_case else "policy.yaml"
    arguments = ["test" if is_case else "check", name]
    return f"dpolicy {' '.join(arguments)}", printed(arguments, {name: example.read_text("utf-8")})


def diagnostics_page() -> str:
    """Every code: what it means, why it is one, a text that causes it, and what is printed."""
    parts = [
        f"{_NOTE}\n# Diagnostics\n",
        "Every mistake in a text is told at once: file, line, column, the line itself with the",
        "place underlined, a stable code, and help where there is a remedy. Codes below P100 are",
        "errors and keep the text from being used (exit code 3); the others are warnings. After",
        "a hundred errors the rest is not told.\n",
        "| code | | |\n|---|---|---|",
    ]
    for code, (title, _) in CATALOGUE.items():
        parts.append(f"| [{code}](#{code.lower()}) | {_severity(code)} | {title} |")
    return "\n".join([*parts, *(_section(code) for code in CATALOGUE)]) + "\n"


def _severity(code: str) -> str:
    return "warning" if code >= "P100" else "error"


def _section(code: str) -> str:
    title, why = CATALOGUE[code]
    lines = ["", f"## {code}", "", f"**{title[:1].upper()}{title[1:]}.** {why}"]
    example = example_of(code)
    if example is None:
        return "\n".join([*lines, "", WITHOUT_EXAMPLE[code]])
    command, output = output_of(example)
    text = example.read_text("utf-8").rstrip("\n")
    shown = ["", "```yaml", text, "```", "", "```console", f"$ {command}", output, "```"]
    return "\n".join([*lines, *shown])


def commands_page() -> str:
    """Every command with its help."""
    group = click.Context(dpolicy, info_name="dpolicy")
    parts = [f"{_NOTE}\n# Commands\n", "```text", _help(dpolicy), "```"]
    for name in sorted(COMMANDS):
        command = dpolicy.get_command(group, name)
        if command is not None:
            parts += ["", f"## dpolicy {name}", "", "```text", _help(command, name), "```"]
    return "\n".join(parts) + "\n"


def _help(command: click.Command, name: str | None = None) -> str:
    path = "dpolicy" if name is None else f"dpolicy {name}"
    context = click.Context(command, info_name=path, terminal_width=COLUMNS)
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def api_page() -> str:
    """Return the page with every endpoint of the HTTP API and every problem code."""
    parts = [
        f"{_NOTE}\n# The HTTP API\n",
        "[http.md](http.md) explains how to use the API. The server returns its OpenAPI document",
        "at `/openapi.json`.\n",
        "| endpoint | summary | roles | further problem codes |\n|---|---|---|---|",
    ]
    for e in ENDPOINTS:
        roles = (
            "all" if e.roles == EVERY_ROLE else ", ".join(sorted(e.roles)) or "no authentication"
        )
        codes = ", ".join(f"`{code}`" for code in e.problems)
        parts.append(f"| `{e.method} {plain_path(e)}` | {e.summary} | {roles} | {codes} |")
    codes = ", ".join(f"`{code}`" for code in ANY)
    parts.append(f"\n## Problems\n\nEvery endpoint can return {codes}.\n")
    parts.append("| code | status | title |\n|---|---|---|")
    for code, kind in PROBLEMS.items():
        parts.append(f"| `{code}` | {kind.status} | {kind.title} |")
    return "\n".join(parts) + "\n"


def modules_page() -> str:
    """Return the index of all modules: one table for each directory, low layers first."""
    directories = sorted({path.parent for path in SOURCE.rglob("*.py")}, key=_layer)
    parts = [
        f"{_NOTE}\n# Modules\n",
        "The first sentence of every module's docstring. Layers and data flow are in",
        "[ARCHITECTURE.md](../ARCHITECTURE.md); paths are relative to `src/dpolicy/`.",
    ]
    for directory in directories:
        name = directory.relative_to(SOURCE).as_posix()
        modules = [p for p in sorted(directory.glob("*.py")) if p.name != "__init__.py"]
        if modules:
            title = "Top level" if name == "." else f"`{name}/`"
            parts += ["", f"## {title}", "", _summary(directory / "__init__.py"), ""]
            parts += ["| module | content |", "|---|---|"]
            parts += [f"| `{path.name}` | {_summary(path)} |" for path in modules]
    return "\n".join(parts) + "\n"


def _layer(directory: Path) -> tuple[int, str]:
    """Sort directories by layer, then by path."""
    relative = directory.relative_to(SOURCE)
    return (LAYERS.index(relative.parts[0]) if relative.parts else -1, relative.as_posix())


def _summary(module: Path) -> str:
    """Return the first sentence of a module's docstring on one line."""
    text = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence = re.match(r".+?\.(?= |$)", paragraph)
    return (sentence.group(0) if sentence else paragraph).replace("|", "\\|")


def schema_text() -> str:
    """The JSON Schema that is shipped for editors."""
    return json.dumps(policy_schema(), ensure_ascii=False, indent=2) + "\n"


PAGES: dict[Path, Callable[[], str]] = {
    ROOT / "docs" / "modules.md": modules_page,
    ROOT / "docs" / "diagnostics.md": diagnostics_page,
    ROOT / "docs" / "commands.md": commands_page,
    ROOT / "docs" / "http-api.md": api_page,
    ROOT / "src" / "dpolicy" / "policy" / "policy.schema.json": schema_text,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or only say which are stale."""
    texts = {path: write() for path, write in PAGES.items()}
    stale = [p for p, text in texts.items() if not p.exists() or p.read_text("utf-8") != text]
    for path in stale:
        if "--check" not in arguments:
            path.write_text(texts[path], "utf-8")
        print(f"{'stale' if '--check' in arguments else 'wrote'}: {path.relative_to(ROOT)}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
