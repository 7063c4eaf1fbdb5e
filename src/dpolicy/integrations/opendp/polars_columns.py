"""A Polars query plan → the columns of the data that can influence its result (theory 0.2).

The plan is read as the tree that Polars serialises. Whatever is not known to name its columns
counts as using all of them, so what is found may be too much and never too little.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import polars as pl

#: Steps of a plan that name every column they use, and where their inputs are.
_STEPS = {
    "Filter": ("input",),
    "GroupBy": ("input",),
    "HStack": ("input",),
    "Join": ("input_left", "input_right"),
    "Select": ("input",),
    "Sort": ("input",),
}

#: Ways to name columns by something else than their names.
_SWEEPING = {"Columns", "DtypeColumn", "Exclude", "IndexColumn", "Nth", "SubPlan", "Wildcard"}


def columns_used(plan: pl.LazyFrame, columns: frozenset[str]) -> frozenset[str]:
    """The columns among those known that a plan uses: to filter, join, group, compute or order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the format is of this version only, as is this reader
        tree = json.loads(plan.serialize(format="json"))
    named = frozenset(_of_plan(tree))
    return columns if None in named else frozenset(name for name in named if name in columns)


def _of_plan(node: Any) -> Iterator[str | None]:
    """Names of columns; None for all of them."""
    if not isinstance(node, dict) or len(node) != 1:
        yield None
        return
    (kind, said), *_ = node.items()
    if kind == "IR":
        yield from _of_plan(said["dsl"])
    elif kind in _STEPS:
        for name, value in said.items():
            yield from _of_plan(value) if name in _STEPS[kind] else _of_expression(value)
    elif kind != "DataFrameScan":
        yield None


def _of_expression(expression: Any) -> Iterator[str | None]:
    """Every word that is said: one that is also the name of a column may well be meant as such."""
    if isinstance(expression, list):
        for item in expression:
            yield from _of_expression(item)
    elif isinstance(expression, dict):
        for key, value in expression.items():
            yield from _of_expression(key)
            yield from _of_selector(value) if key == "Selector" else _of_expression(value)
    elif isinstance(expression, str):
        yield None if expression in _SWEEPING else expression


def _of_selector(expression: Any) -> Iterator[str | None]:
    if isinstance(expression, dict) and set(expression) == {"ByName"}:
        yield from expression["ByName"]["names"]
    else:
        yield None
