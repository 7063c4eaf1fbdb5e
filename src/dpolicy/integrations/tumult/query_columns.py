"""A query of Tumult Analytics → the columns of the data that can influence its answer (theory 0.2).

Steps that are not known to name their columns use all columns there are at that point: functions of
whole rows, joins of private tables, and constraints, which keep rows by a hash over all of them.
What is found may be too much and never too little.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tmlt.analytics import _query_expr as steps

from dpolicy.integrations.declared_attributes import columns_named_in

#: Steps that leave rows or columns out, and change none.
_LEAVING_OUT = (
    steps.PrivateSource,
    steps.Select,
    steps.Filter,
    steps.DropNullAndNan,
    steps.DropInfinity,
    steps.EnforceConstraint,
)


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """The columns of the data that were used so far, and names that were made on the way.

    `as_is` says that every row is one of the data, with nothing in it changed.
    """

    columns: frozenset[str]
    made: frozenset[str] = frozenset()
    as_is: bool = True


@dataclass(frozen=True, slots=True)
class NameBindings:
    """What names mean: the columns of the data, each table's use so far, and public tables."""

    columns: frozenset[str]
    tables: Mapping[str, ColumnUse]
    public: Mapping[str, Collection[str]]
    catalog: Any


def column_use(query: Any, bindings: NameBindings) -> ColumnUse:
    """All that a query uses, with what its tables already used."""
    query.schema(
        bindings.catalog
    )  # raises what Tumult has to say about a query that makes no sense
    nodes = list(_nodes(query))
    tables = [bindings.tables[node.source_id] for node in nodes if _is_table(node)]
    made = {name for table in tables for name in table.made}
    made |= {name for node in nodes for name in _made(node, bindings)}
    named = {name for node in nodes for name in _named(node, bindings)}
    used = named & bindings.columns
    if named - bindings.columns - made:  # such as `x_left` after a join: nobody knows of what
        used = set(bindings.columns)
    as_is = all(isinstance(node, _LEAVING_OUT) for node in nodes)
    return ColumnUse(
        frozenset(used.union(*(table.columns for table in tables))),
        frozenset(made),
        as_is and all(table.as_is for table in tables),
    )


def _nodes(query: Any) -> Iterator[Any]:
    yield query
    for child in _children(query):
        yield from _nodes(child)


def _children(node: Any) -> list[Any]:
    names = ("child", "left_child", "right_child")
    return [getattr(node, name) for name in names if hasattr(node, name)]


def _is_table(node: Any) -> bool:
    return isinstance(node, steps.PrivateSource)


def _made(node: Any, bindings: NameBindings) -> Collection[str]:
    """Names that a step makes, of columns that it names or of public tables."""
    match node:
        case steps.Rename():
            return list(dict(node.column_mapper).values())
        case steps.Map() | steps.FlatMap() | steps.FlatMapByID():
            return list(node.schema_new_columns)
        case steps.JoinPublic():
            table = node.public_table
            return bindings.public[table] if isinstance(table, str) else list(table.columns)
    return ()


def _named(node: Any, bindings: NameBindings) -> Collection[str]:
    """The columns that a step uses."""
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
            return columns_named_in(node.condition, _all(node, bindings))
        case steps.GetGroups() | steps.DropNullAndNan() | steps.DropInfinity():
            return node.columns or _all(node, bindings)
        case steps.JoinPublic() if node.join_columns:
            return list(node.join_columns)
        case steps.GroupByCountDistinct():
            return [*_keys(node), *(node.columns_to_count or _all(node, bindings))]
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
    return _all(node, bindings)


def _keys(node: Any) -> list[str]:
    keys = node.groupby_keys
    return list(keys if isinstance(keys, tuple) else keys.columns())


def _all(node: Any, bindings: NameBindings) -> list[str]:
    """Every column that a step is given."""
    return [name for child in _children(node) for name in child.schema(bindings.catalog)]
