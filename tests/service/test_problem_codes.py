"""Every code of a rejected operation or refused request is a documented problem of the API."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import dpolicy
from dpolicy.service.http.problem_details import PROBLEMS

SOURCE = Path(dpolicy.__file__).parent

#: Position of the code among the arguments of each exception.
POSITIONS = {"OperationRejected": 1, "RequestRefused": 0}


def raised_codes(tree: ast.Module) -> Iterator[str]:
    """Yield the literal codes of the exceptions that a module creates."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            position = POSITIONS.get(node.func.id)
            if position is not None and len(node.args) > position:
                argument = node.args[position]
                if isinstance(argument, ast.Constant):
                    yield str(argument.value)


def test_every_raised_code_is_a_problem() -> None:
    raised = {
        code
        for path in SOURCE.rglob("*.py")
        for code in raised_codes(ast.parse(path.read_text("utf-8")))
    }
    assert len(raised) > 10
    assert raised <= PROBLEMS.keys()


def test_an_unknown_code_is_detected() -> None:
    tree = ast.parse('raise OperationRejected("release is pending", "waiting")')
    assert not set(raised_codes(tree)) <= PROBLEMS.keys()
