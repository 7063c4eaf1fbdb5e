"""Turns CEL text into syntax trees with the help of `cel-expr-python`, the only module to know it.

The library is imported when the first expression is read: it is 17 MB, and a program that only
compares losses should not pay for it. One environment is kept for each vocabulary.
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

#: A process that reads many policies in turn (the tests do) should not keep all vocabularies.
ENVIRONMENTS_KEPT = 32

_REPORT = re.compile(r"ERROR: [^:\n]*:(-?\d+):(-?\d+): (.*)")


@dataclass(frozen=True, slots=True)
class CelError:
    """Something the library refuses: its own words, and where (None: the whole text)."""

    message: str
    offset: int | None


def parse_cel(text: str) -> CelSyntax | tuple[CelError, ...]:
    """The tree of `text` before names and types are looked at."""
    return _compile(text, (), unchecked=True)


def check_cel(text: str, variables: Mapping[str, str]) -> CelSyntax | tuple[CelError, ...]:
    """The tree of `text` with the type of every node; `variables` names each type in words."""
    return _compile(text, tuple(sorted(variables.items())), unchecked=False)


def evaluate_cel(text: str, variables: Mapping[str, str], values: Mapping[str, object]) -> object:
    """What `text` comes to, by the library's own evaluator."""
    environment = _environment(tuple(sorted(variables.items())))
    result = environment.compile(text).eval(data=dict(values))
    # An error is an ordinary, truthy value here: the type is the only sign of it.
    if result.type() in (_library().Type.ERROR, _library().Type.UNKNOWN):
        raise PredicateFailed(_plain(str(result.value())))
    return result.plain_value()


def _compile(
    text: str, variables: tuple[tuple[str, str], ...], *, unchecked: bool
) -> CelSyntax | tuple[CelError, ...]:
    try:
        compiled = _environment(variables).compile(text, disable_check=unchecked)
    except RuntimeError as error:
        return _complaints(str(error), text)
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


def _complaints(report: str, text: str) -> tuple[CelError, ...]:
    """Take apart `ERROR: <input>:LINE:COLUMN: message`, of which one report can hold many."""
    starts = [0]
    starts.extend(match.end() for match in re.finditer("\n", text))
    found: dict[CelError, None] = {}
    for match in _REPORT.finditer(report):
        line, column = int(match[1]), int(match[2])
        inside = 1 <= line <= len(starts)
        offset = starts[line - 1] + column - 1 if inside else None
        found[CelError(_plain(match[3]), offset)] = None
    return tuple(found) or (CelError(_plain(report), None),)


def _plain(message: str) -> str:
    message = message.replace(" (in container '')", "")
    message = re.sub(r" *\[[A-Z_]+\]$", "", message.split("\n")[0])
    return re.sub(r"^[A-Z_]+: ", "", message)
