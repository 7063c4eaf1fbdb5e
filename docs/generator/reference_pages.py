"""Pages generated from the code: commands, HTTP API, modules; and the JSON Schema of policies."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import click

from dpolicy.cli.exit_codes import (
    CASE_FAILED,
    DENIED,
    FAILURE,
    REJECTED,
    TAMPERED,
    UNDECIDED,
    USAGE,
)
from dpolicy.cli.main import COMMANDS, dpolicy
from dpolicy.policy.json_schema import policy_schema
from dpolicy.service.api.openapi import PROBLEMS_OF_EVERY_ENDPOINT as COMMON_PROBLEMS
from dpolicy.service.api.openapi import plain_path
from dpolicy.service.api.routes import ENDPOINTS
from dpolicy.service.auth.principal import EVERY_ROLE
from dpolicy.service.http.problem_details import PROBLEMS

SOURCE = Path(__file__).parent.parent.parent / "src" / "dpolicy"

#: Packages from low to high; `tests/test_tidy.py` checks that imports point down.
LAYERS = (
    *("text", "privacy", "releases", "predicates", "policy", "rules", "ledger", "balances"),
    *("decisions", "pdp", "proofs", "cases", "allocation", "client", "integrations", "reports"),
    *("evaluation", "service", "demo", "cli"),
)

#: Width of help texts, independent of the terminal.
COLUMNS = 90

#: Meaning of each exit code of a command.
EXIT_CODES = {
    0: "success",
    FAILURE: "internal or I/O failure",
    DENIED: "release denied, policy in conflict with recorded releases, or broken claim",
    REJECTED: "errors in a file or a release ([diagnostics](diagnostics.md))",
    CASE_FAILED: "failed case",
    TAMPERED: "damaged ledger",
    UNDECIDED: "neither a proof nor a history that breaks the claim",
    USAGE: "wrong usage",
}


def commands_page() -> str:
    """Return the page with the help of every command, and the exit codes."""
    group = click.Context(dpolicy, info_name="dpolicy")
    parts = ["# Commands\n", "```text", _help(dpolicy), "```"]
    parts += ["", "## Exit codes", "", "| exit code | meaning |", "|---|---|"]
    parts += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
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
        "# The HTTP API\n",
        "[http.md](http.md) explains how to use the API. The server returns its OpenAPI document",
        "at `/openapi.json`.\n",
        "| endpoint | summary | roles | further problem codes |\n|---|---|---|---|",
    ]
    for endpoint in ENDPOINTS:
        if endpoint.roles == EVERY_ROLE:
            roles = "all"
        else:
            roles = ", ".join(sorted(endpoint.roles)) or "no authentication"
        codes = ", ".join(f"`{code}`" for code in endpoint.problems)
        path = f"{endpoint.method} {plain_path(endpoint)}"
        parts.append(f"| `{path}` | {endpoint.summary} | {roles} | {codes} |")
    codes = ", ".join(f"`{code}`" for code in COMMON_PROBLEMS)
    parts.append(f"\n## Problems\n\nEvery endpoint can return {codes}.\n")
    parts.append("| code | status | title |\n|---|---|---|")
    for code, kind in PROBLEMS.items():
        parts.append(f"| `{code}` | {kind.status} | {kind.title} |")
    return "\n".join(parts) + "\n"


def modules_page() -> str:
    """Return the index of all modules: one table for each directory, low layers first."""
    directories = sorted({path.parent for path in SOURCE.rglob("*.py")}, key=_layer)
    parts = [
        "# Modules\n",
        "This page lists every module with the first sentence of its docstring. Paths are relative",
        "to `src/dpolicy/`. [ARCHITECTURE.md](../ARCHITECTURE.md) explains layers and data flow.",
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
    """Return the JSON Schema of policies, which editors use for completion."""
    return json.dumps(policy_schema(), ensure_ascii=False, indent=2) + "\n"
