"""Rules of the source code: layers, sizes, names, and docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dpolicy"

#: Layers from low to high (ARCHITECTURE.md). A package imports only from lower layers.
LAYERS = (
    ("errors",),
    ("text",),
    ("privacy",),
    ("releases",),
    ("predicates",),
    ("policy",),
    ("rules", "ledger"),  # independent of each other; `balances` and `pdp` join them
    ("balances",),
    ("decisions",),
    ("pdp",),
    ("cases", "integrations", "allocation", "client", "proofs", "reports"),
    ("evaluation",),
    ("service",),
    ("demo",),
    ("cli",),
)
LEVEL = {name: height for height, names in enumerate(LAYERS) for name in names}

MAX_MODULE, MAX_FUNCTION, MAX_COLUMNS = 400, 50, 100
BANNED_MODULES = {"utils", "util", "helpers", "common", "misc", "base", "manager", "core"}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path, ast.parse(path.read_text("utf-8"))


def package(dotted: str) -> str:
    return dotted.split(".")[1] if "." in dotted else ""


def imported_modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)


def is_upward(importer: str, imported: str) -> bool:
    return LEVEL[imported] > LEVEL[importer] or (
        imported != importer and LEVEL[imported] == LEVEL[importer]
    )


def test_imports_point_down() -> None:
    violations = []
    for path, tree in modules():
        package_name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for line, name in imported_modules(tree):
            imported = package(name) if name.startswith("dpolicy.") else ""
            if package_name != "__init__" and imported and is_upward(package_name, imported):
                violations.append(
                    f"{path.relative_to(ROOT)}:{line} imports {name}, which lies above it"
                )
    assert not violations, "\n".join(violations)


def test_the_layer_check_detects_upward_imports() -> None:
    assert is_upward("privacy", "rules")
    assert is_upward("ledger", "rules") and is_upward("rules", "ledger")
    assert not is_upward("rules", "privacy")


def test_every_package_has_a_layer() -> None:
    packages = {p.name for p in SOURCE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert packages | {"errors"} == set(LEVEL)


def test_modules_and_functions_have_a_maximum_length() -> None:
    violations = []
    for path, tree in modules():
        text = path.read_text("utf-8")
        name = path.relative_to(ROOT)
        if text.count("\n") > MAX_MODULE:
            violations.append(f"{name} has more than {MAX_MODULE} lines")
        if path.stem in BANNED_MODULES:
            violations.append(f"{name} has a name that does not describe its content")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.end_lineno:
                length = node.end_lineno - node.lineno + 1
                if length > MAX_FUNCTION:
                    violations.append(f"{name}:{node.lineno} `{node.name}` has {length} lines")
    assert not violations, "\n".join(violations)


def test_every_module_and_public_definition_has_a_docstring() -> None:
    violations = []
    for path, tree in modules():
        name = path.relative_to(ROOT)
        if not ast.get_docstring(tree):
            violations.append(f"{name} has no docstring")
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            if not node.name.startswith("_") and not ast.get_docstring(node):
                violations.append(f"{name}:{node.lineno} `{node.name}` has no docstring")
    assert not violations, "\n".join(violations)


def test_imports_are_at_the_top_of_a_module() -> None:
    violations = []
    for path, tree in modules():
        if path.is_relative_to(SOURCE / "cli") or path.is_relative_to(SOURCE / "client"):
            continue  # imports inside functions keep the start-up time short
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                inner = [n for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)]
                names = {name for n in inner for name in _library_names(n)}
                if names - LAZY:
                    violations.append(f"{path.relative_to(ROOT)}:{node.lineno} imports inside")
    assert not violations, "\n".join(violations)


#: Heavy or optional libraries that are loaded on first use.
LAZY = {"cel_expr_python", "numpy", "polars", "psycopg", "z3"}


def _library_names(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").split(".")[0]}
    return {alias.name.split(".")[0] for alias in node.names}


TRACKED = [
    path for pattern in ("*.md", "*.toml", "Makefile", ".ci/run") for path in ROOT.glob(pattern)
] + [
    path
    for folder in ("src", "tests", "docs", "examples", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".md", ".yaml", ".json"}
]


@pytest.mark.parametrize("pattern", [r"(?<![a-z])/(?:work|farm|root|home)/"])
def test_no_file_contains_a_machine_path(pattern: str) -> None:
    files = [
        str(path.relative_to(ROOT))
        for path in TRACKED
        if path != Path(__file__) and re.search(pattern, path.read_text("utf-8"))
    ]
    assert not files, "\n".join(files)


def test_every_package_has_a_section_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    headings = "\n".join(line for line in text.splitlines() if line.startswith("### "))
    missing = [name for name in LEVEL if name != "errors" and f"`{name}/`" not in headings]
    assert not missing, f"ARCHITECTURE.md has no section for {missing}"


def test_every_design_decision_is_in_the_index() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text("utf-8")
    for path in sorted((ROOT / "docs" / "decisions").glob("0*.md")):
        assert path.name in index
