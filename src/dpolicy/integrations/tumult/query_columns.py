"""Columns of the data that can influence the answer of a Tumult Analytics query (theory 0.2).

A step that does not name its columns counts as using all columns at that point: functions of whole
rows, joins of private tables, and constraints, which select rows by a hash over all columns. The
result can be too large but never too small. A step that is not on the list of steps is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tmlt.analytics import _query_expr as steps

from dpolicy.errors import OperationRejected
from dpolicy.integrations.declared_attributes import columns_named_in
from dpolicy.integrations.tumult.filter_condition import check_condition

#: Steps that drop rows or columns and change no value.
_DROPPING_STEPS = (
    steps.PrivateSource,
    steps.Select,
    steps.Filter,
    steps.DropNullAndNan,
    steps.DropInfinity,
    steps.EnforceConstraint,
)


#: All steps whose rows and loss the gate knows.
_KNOWN_STEPS = frozenset(
    {
        *_DROPPING_STEPS,
        steps.GetGroups,
        steps.GetBounds,
        steps.Rename,
        steps.Map,
        steps.FlatMap,
        steps.FlatMapByID,
        steps.JoinPrivate,
        steps.JoinPublic,
        steps.ReplaceNullAndNan,
        steps.ReplaceInfinity,
        steps.GroupByCount,
        steps.GroupByCountDistinct,
        steps.GroupByQuantile,
        steps.GroupByBoundedSum,
        steps.GroupByBoundedAverage,
        steps.GroupByBoundedVariance,
        steps.GroupByBoundedStdev,
        steps.SuppressAggregates,
    }
)


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """Columns of the data that a table depends on, and column names that its steps created.

    `as_is` is True if every row is an unchanged row of the data.
    """

    columns: frozenset[str]
    created: frozenset[str] = frozenset()
    as_is: bool = True


@dataclass(frozen=True, slots=True)
class NameBindings:
    """Columns of the data, private tables with their column use, and columns of public tables."""

    columns: frozenset[str]
    tables: Mapping[str, ColumnUse]
    public: Mapping[str, Collection[str]]
    catalog: Any


def column_use(query: Any, bindings: NameBindings) -> ColumnUse:
    """Return the columns that a query uses, including those that its tables depend on.

    Raise `OperationRejected` if the query has an unknown step, or a filter that is not a condition
    on one row.
    """
    query.schema(bindings.catalog)  # Raises the error of Tumult if the query is not valid.
    nodes = list(_nodes(query))
    for node in nodes:
        _check_step(node, bindings)
    tables = [bindings.tables[node.source_id] for node in nodes if _is_table(node)]
    created = {name for table in tables for name in table.created}
    created |= {name for node in nodes for name in _names_created(node, bindings)}
    named = {name for node in nodes for name in _names_used(node, bindings)}
    used = named & bindings.columns
    if named - bindings.columns - created:  # Unknown origin, such as `x_left` after a join.
        used = set(bindings.columns)
    as_is = all(isinstance(node, _DROPPING_STEPS) for node in nodes)
    return ColumnUse(
        frozenset(used.union(*(table.columns for table in tables))),
        frozenset(created),
        as_is and all(table.as_is for table in tables),
    )


def _check_step(node: Any, bindings: NameBindings) -> None:
    if type(node) not in _KNOWN_STEPS:
        raise OperationRejected(f"the step `{type(node).__name__}` of the query is not supported")
    if isinstance(node, steps.Filter):
        check_condition(node.condition, _input_columns(node, bindings))


def _nodes(query: Any) -> Iterator[Any]:
    yield query
    for child in _children(query):
        yield from _nodes(child)


def _children(node: Any) -> list[Any]:
    names = ("child", "left_child", "right_child")
    return [getattr(node, name) for name in names if hasattr(node, name)]


def _is_table(node: Any) -> bool:
    return isinstance(node, steps.PrivateSource)


def _names_created(node: Any, bindings: NameBindings) -> Collection[str]:
    """Return the names that a step creates from columns that it names or from public tables."""
    match node:
        case steps.Rename():
            return list(dict(node.column_mapper).values())
        case steps.Map() | steps.FlatMap() | steps.FlatMapByID():
            return list(node.schema_new_columns)
        case steps.JoinPublic():
            table = node.public_table
            return bindings.public[table] if isinstance(table, str) else list(table.columns)
    return ()


def _names_used(node: Any, bindings: NameBindings) -> Collection[str]:
    """Return the names of the columns that a step uses."""
    match node:
        case (
            steps.PrivateSource()
            | steps.Select()
            | steps.ReplaceNullAndNan()
            | steps.ReplaceInfinity()
            | steps.SuppressAggregates()
        ):
            return ()
        case steps.Rename():
            return list(dict(node.column_mapper))
        case steps.Filter():
            return columns_named_in(node.condition, _input_columns(node, bindings))
        case steps.GetGroups() | steps.DropNullAndNan() | steps.DropInfinity():
            return node.columns or _input_columns(node, bindings)
        case steps.JoinPublic() if node.join_columns:
            return list(node.join_columns)
        case steps.GroupByCountDistinct():
            return [*_keys(node), *(node.columns_to_count or _input_columns(node, bindings))]
        case steps.GroupByCount():
            return _keys(node)
        case (
            steps.GetBounds()
            | steps.GroupByQuantile()
            | steps.GroupByBoundedSum()
            | steps.GroupByBoundedAverage()
            | steps.GroupByBoundedVariance()
            | steps.GroupByBoundedStdev()
        ):
            return [*_keys(node), node.measure_column]
    return _input_columns(node, bindings)


def _keys(node: Any) -> list[str]:
    keys = node.groupby_keys
    return list(keys if isinstance(keys, tuple) else keys.columns())


def _input_columns(node: Any, bindings: NameBindings) -> list[str]:
    """Return all columns of the inputs of a step."""
    return [name for child in _children(node) for name in child.schema(bindings.catalog)]
