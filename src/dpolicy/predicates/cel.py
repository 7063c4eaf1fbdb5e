"""Adapter to `cel-expr-python`: parsing, type checking and evaluation of CEL text.

No other module imports the library. This module imports it when the first expression is parsed:
it takes 17 MB, which a program that only compares losses does not need. One environment is cached
per vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from dpolicy.errors import PredicateFailed
from dpolicy.predicates.cel_decoder import CelSyntax, decode_syntax

#: Size of the environment cache. A process that reads many policies must not keep all of them.
ENVIRONMENTS_KEPT = 32

_REPORT = re.compile(r"ERROR: [^:\n]*:(-?\d+):(-?\d+): (.*)")


@dataclass(frozen=True, slots=True)
class CelError:
    """Error of the library: its message, and the offset in the text (None: the whole text)."""

    message: str
    offset: int | None


def parse_cel(text: str) -> CelSyntax | tuple[CelError, ...]:
    """Parse `text` without checking names and types."""
    return _compile(text, (), unchecked=True)


def check_cel(text: str, variables: Mapping[str, str]) -> CelSyntax | tuple[CelError, ...]:
    """Parse and type-check `text`; `variables` maps each name to a type such as `list(string)`."""
    return _compile(text, tuple(sorted(variables.items())), unchecked=False)


def evaluate_cel(text: str, variables: Mapping[str, str], values: Mapping[str, object]) -> object:
    """Evaluate `text` with the evaluator of the library. Raise `PredicateFailed` on an error."""
    environment = _environment(tuple(sorted(variables.items())))
    result = environment.compile(text).eval(data=dict(values))
    # The library returns an error as an ordinary, truthy value; only its type differs.
    if result.type() in (_library().Type.ERROR, _library().Type.UNKNOWN):
        raise PredicateFailed(_clean_message(str(result.value())))
    return result.plain_value()


def _compile(
    text: str, variables: tuple[tuple[str, str], ...], *, unchecked: bool
) -> CelSyntax | tuple[CelError, ...]:
    try:
        compiled = _environment(variables).compile(text, disable_check=unchecked)
    except RuntimeError as error:
        return _parse_errors(str(error), text)
    return decode_syntax(compiled.serialize())


@cache
def _library() -> Any:
    return import_module("cel_expr_python.cel")


@lru_cache(maxsize=ENVIRONMENTS_KEPT)
def _environment(variables: tuple[tuple[str, str], ...]) -> Any:
    kinds = _library().Type
    types = {
        "bool": kinds.BOOL,
        "double": kinds.DOUBLE,
        "string": kinds.STRING,
        "list(string)": kinds.List(kinds.STRING),
    }
    return _library().NewEnv(variables={name: types[kind] for name, kind in variables})


def _parse_errors(report: str, text: str) -> tuple[CelError, ...]:
    """Split a report into its errors, `ERROR: <input>:LINE:COLUMN: message`, without duplicates."""
    starts = [0]
    starts.extend(match.end() for match in re.finditer("\n", text))
    errors: dict[CelError, None] = {}
    for match in _REPORT.finditer(report):
        line, column = int(match[1]), int(match[2])
        inside = 1 <= line <= len(starts)
        offset = starts[line - 1] + column - 1 if inside else None
        errors[CelError(_clean_message(match[3]), offset)] = None
    return tuple(errors) or (CelError(_clean_message(report), None),)


def _clean_message(message: str) -> str:
    """Remove the container, the status code and further lines from a message of the library."""
    message = message.replace(" (in container '')", "")
    message = re.sub(r" *\[[A-Z_]+\]$", "", message.split("\n")[0])
    return re.sub(r"^[A-Z_]+: ", "", message)
