"""Rules about the code, as tests: layers, sizes, words, and that everything is documented."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "dpolicy"

#: Low to high (ARCHITECTURE.md). A package may import from lower ones only.
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
    ("cases", "integrations", "allocation", "client"),
    ("evaluation",),
    ("service",),
    ("demo",),
    ("cli",),
)
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}

MAX_MODULE, MAX_FUNCTION, MAX_COLUMNS = 400, 50, 100
BANNED_MODULES = {"utils", "util", "helpers", "common", "misc", "base", "manager", "core"}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path, ast.parse(path.read_text("utf-8"))


def package(dotted: str) -> str:
    return dotted.split(".")[1] if "." in dotted else ""


def imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)


def points_up(own: str, other: str) -> bool:
    return HEIGHT[other] > HEIGHT[own] or (other != own and HEIGHT[other] == HEIGHT[own])


def test_imports_point_down() -> None:
    wrong = []
    for path, tree in modules():
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for line, name in imported(tree):
            other = package(name) if name.startswith("dpolicy.") else ""
            if own != "__init__" and other and points_up(own, other):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}, which lies above it")
    assert not wrong, "\n".join(wrong)


def test_the_layer_test_can_fail() -> None:
    assert points_up("privacy", "rules")
    assert points_up("ledger", "rules") and points_up("rules", "ledger")
    assert not points_up("rules", "privacy")


def test_every_package_has_a_layer() -> None:
    packages = {p.name for p in SOURCE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert packages | {"errors"} == set(HEIGHT)


def test_modules_and_functions_fit_a_mind() -> None:
    wrong = []
    for path, tree in modules():
        text = path.read_text("utf-8")
        name = path.relative_to(ROOT)
        if text.count("\n") > MAX_MODULE:
            wrong.append(f"{name} has more than {MAX_MODULE} lines")
        if path.stem in BANNED_MODULES:
            wrong.append(f"{name} is not named after a thing")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.end_lineno:
                length = node.end_lineno - node.lineno + 1
                if length > MAX_FUNCTION:
                    wrong.append(f"{name}:{node.lineno} `{node.name}` has {length} lines")
    assert not wrong, "\n".join(wrong)


def test_everything_public_says_what_it_is() -> None:
    wrong = []
    for path, tree in modules():
        name = path.relative_to(ROOT)
        if not ast.get_docstring(tree):
            wrong.append(f"{name} has no docstring")
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            if not node.name.startswith("_") and not ast.get_docstring(node):
                wrong.append(f"{name}:{node.lineno} `{node.name}` has no docstring")
    assert not wrong, "\n".join(wrong)


def test_imports_stand_at_the_top() -> None:
    wrong = []
    for path, tree in modules():
        if path.is_relative_to(SOURCE / "cli") or path.is_relative_to(SOURCE / "client"):
            continue  # start-up time
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                inner = [n for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)]
                names = {name for n in inner for name in _names(n)}
                if names - LAZY:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} imports inside")
    assert not wrong, "\n".join(wrong)


#: Heavy or optional libraries that are loaded when they are first needed.
LAZY = {"cel_expr_python", "numpy", "polars", "psycopg", "z3"}


def _names(node: ast.Import | ast.ImportFrom) -> set[str]:
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
def test_no_machine_paths(pattern: str) -> None:
    found = [
        str(path.relative_to(ROOT))
        for path in TRACKED
        if path != Path(__file__) and re.search(pattern, path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


def test_every_package_has_a_section_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    headings = "\n".join(line for line in text.splitlines() if line.startswith("### "))
    missing = [name for name in HEIGHT if name != "errors" and f"`{name}/`" not in headings]
    assert not missing, f"ARCHITECTURE.md has no section for {missing}"


def test_every_decision_is_listed() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text("utf-8")
    for path in sorted((ROOT / "docs" / "decisions").glob("0*.md")):
        assert path.name in index
