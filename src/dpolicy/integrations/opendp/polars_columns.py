"""Columns of the data that can influence the result of a Polars query plan (theory 0.2).

The module reads the plan as the tree that Polars serialises. A step or expression that is not
recognised counts as using all columns, so the result can be too large but never too small.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import polars as pl

#: Steps of a plan that name every column they use, with the keys of their inputs.
_STEPS = {
    "Filter": ("input",),
    "GroupBy": ("input",),
    "HStack": ("input",),
    "Join": ("input_left", "input_right"),
    "Select": ("input",),
    "Sort": ("input",),
}

#: Expressions that select columns without naming them.
_UNNAMED_SELECTIONS = {
    "Columns",
    "DtypeColumn",
    "Exclude",
    "IndexColumn",
    "Nth",
    "SubPlan",
    "Wildcard",
}


def columns_used(plan: pl.LazyFrame, columns: frozenset[str]) -> frozenset[str]:
    """Return the columns that a plan uses to filter, join, group, compute or order."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # JSON plans are specific to one Polars version, like this module.
        tree = json.loads(plan.serialize(format="json"))
    named = frozenset(_names_in_plan(tree))
    return columns if None in named else frozenset(name for name in named if name in columns)


def _names_in_plan(node: Any) -> Iterator[str | None]:
    """Yield names of columns; None represents all columns."""
    if not isinstance(node, dict) or len(node) != 1:
        yield None
        return
    ((kind, fields),) = node.items()
    if kind == "IR":
        yield from _names_in_plan(fields["dsl"])
    elif kind in _STEPS:
        for name, value in fields.items():
            yield from (
                _names_in_plan(value) if name in _STEPS[kind] else _names_in_expression(value)
            )
    elif kind != "DataFrameScan":
        yield None


def _names_in_expression(expression: Any) -> Iterator[str | None]:
    """Yield every string of an expression, because any of them can be the name of a column."""
    if isinstance(expression, list):
        for item in expression:
            yield from _names_in_expression(item)
    elif isinstance(expression, dict):
        for key, value in expression.items():
            yield from _names_in_expression(key)
            yield from (
                _names_in_selector(value) if key == "Selector" else _names_in_expression(value)
            )
    elif isinstance(expression, str):
        yield None if expression in _UNNAMED_SELECTIONS else expression


def _names_in_selector(expression: Any) -> Iterator[str | None]:
    if isinstance(expression, dict) and set(expression) == {"ByName"}:
        yield from expression["ByName"]["names"]
    else:
        yield None
