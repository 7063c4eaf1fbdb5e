"""Gate for SmartNoise SQL: reserves all mechanisms of a query before the query reads data.

`Privacy(epsilon=…)` is the loss of one mechanism, not of a query: an average consists of a sum, a
count and a count of users. The gate takes the mechanisms from the rewritten query, after SmartNoise
has read its options and before it reads a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from threading import Lock
from typing import Any

from snsql._ast.expressions.sql import AggFunction
from snsql._ast.tokens import Column
from snsql.sql.private_reader import PrivateReader

from dpolicy.errors import OperationRejected
from dpolicy.integrations.declared_attributes import Names, check_attributes, columns_named_in
from dpolicy.integrations.float_rounding import epsilon_delta_mechanism
from dpolicy.integrations.gate import Gate, GatedObject


class GatedReader(GatedObject):
    """SQL reader that holds the connection and runs a query only if the policy allows it.

    The unit of the gate must be the entity that the metadata marks as `private_id`, or a row under
    `row_privacy`. `columns` maps columns to attributes with other names. Set `selected` if the
    connection contains only the data that `where` and `time` of the gate select. Set
    `public_groups` if all values that queries group by are public, and the metadata therefore does
    not censor them.
    """

    def __init__(
        self,
        gate: Gate,
        connection: Any,
        *,
        privacy: Any,
        metadata: Any,
        columns: Names | None = None,
        selected: bool = False,
        public_groups: bool = False,
        name: str = "smartnoise",
        **options: Any,
    ) -> None:
        if gate.relation not in (None, "add-remove"):
            raise OperationRejected(f"SmartNoise protects `add-remove`, not `{gate.relation}`")
        if (gate.where or gate.time) and not selected:
            raise OperationRejected(
                "the gate has `where` or `time`; help: restrict the connection to that selection "
                "and pass `selected=True`"
            )
        self._gate = replace(gate, relation="add-remove")
        # A copy, because the caller could change ε of the original between or during queries.
        self._inner = _PrivateReader.from_connection(
            connection, privacy=deepcopy(privacy), metadata=metadata, **options
        )
        if self._inner.engine == "spark":
            raise OperationRejected(
                "Spark is not supported: it draws new noise each time a result is evaluated"
            )
        self._names = columns or {}
        self._public_groups = public_groups
        self._name = name
        self._lock = Lock()  # SmartNoise stores the options of a query in the reader.

    def execute(self, query: str) -> list[Any]:
        """Run a query and return its rows; the first row contains the column names."""
        parsed = self._inner.parse_query_string(query)
        self._check_query(parsed, query)
        with self._lock, ExitStack() as stack:
            self._inner.reserve_mechanisms = lambda mechanisms: stack.enter_context(
                self._gate.reserve(self._name, *map(self._mechanism_fields, mechanisms))
            )
            rows: list[Any] = self._inner._execute_ast(parsed)
            return rows

    def execute_df(self, query: str) -> Any:
        """Run a query and return a pandas DataFrame."""
        return self._inner._to_df(self.execute(query))

    def _check_query(self, parsed: Any, query: str) -> None:
        """Refuse a query that costs more than its mechanisms state."""
        if parsed.use_dpsu:
            raise OperationRejected("`use_dpsu` spends a separate ε that is not part of any query")
        if parsed.agg is not None and not (parsed.censor_dims or self._public_groups):
            raise OperationRejected(
                "without `censor_dims` the answer reveals which groups exist; help: enable it, or "
                "pass `public_groups=True` if all groups are public"
            )
        if not parsed.clamp_columns or not (parsed.sample_max_ids or parsed.row_privacy):
            raise OperationRejected(
                "without `clamp_columns` and `sample_max_ids`, SmartNoise does not enforce the "
                "limits that its noise assumes; help: enable both in the metadata"
            )
        self._check_clamped_columns(parsed)
        tables = self._inner.metadata.tables()
        for table in tables:
            for column in table.columns():
                _check_sensitivity(column)
        columns = [column.name for table in tables for column in table.columns()]
        check_attributes(columns_named_in(query, columns), self._names, self._gate.attributes)

    def _check_clamped_columns(self, parsed: Any) -> None:
        """Refuse sums over grouping columns and the `private_id`.

        SmartNoise scales the noise to the bounds of these columns but does not clamp their values.
        """
        grouped = parsed.agg.groupedColumns() if parsed.agg is not None else []
        keys = [c.name for t in self._inner.metadata.tables() for c in t.columns() if c.is_key]
        unclamped = {_column_key(name) for name in (*(c.name for c in grouped), *keys)}
        for function in parsed.find_nodes(AggFunction):
            if function.name.upper() == "COUNT":
                continue
            for column in function.find_nodes(Column):
                if _column_key(column.name) in unclamped:
                    raise OperationRejected(
                        f"SmartNoise does not clamp `{column.name}` in `{function.name}`, because "
                        "it is a grouping column or the private id; help: use another column"
                    )

    def _mechanism_fields(self, mechanism: Any) -> dict[str, Any]:
        return self._gate.mechanism_fields(
            epsilon_delta_mechanism(mechanism.epsilon, mechanism.delta)
        )


class _PrivateReader(PrivateReader):  # type: ignore[misc]
    """SmartNoise's reader, which reserves the cost at the last moment before it reads."""

    reserve_mechanisms: Callable[[list[Any]], object]

    def _get_reader(self, query_ast: Any) -> Any:
        """Reserve the mechanisms of the query, then return the reader of the data.

        SmartNoise calls this after it has fixed the options and mechanisms of the query.
        """
        symbols = query_ast._select_symbols
        unprotected = [s.name for s in symbols if s.mechanism is None and not s.is_grouping_column]
        if unprotected:
            raise OperationRejected(f"column `{unprotected[0]}` of the answer has no mechanism")
        mechanisms = [symbol.mechanism for symbol in symbols if symbol.mechanism is not None]
        if any(m.sensitivity is not None and math.isinf(m.sensitivity) for m in mechanisms):
            raise OperationRejected(
                "a column without bounds has no bounded loss; help: state its bounds"
            )
        self.reserve_mechanisms(mechanisms)
        return super()._get_reader(query_ast)


def _check_sensitivity(column: Any) -> None:
    """Refuse a sensitivity below the bounds: SmartNoise clamps to the bounds and ignores it."""
    sensitivity = getattr(column, "sensitivity", None)
    if sensitivity is None:
        return
    bounds = [abs(bound) for bound in (column.lower, column.upper) if bound is not None]
    if len(bounds) < 2 or not sensitivity >= max(bounds):  # Also true for NaN.
        raise OperationRejected(
            f"column `{column.name}` has `sensitivity: {sensitivity}`, below the values that its "
            "bounds allow; help: state bounds, and omit the sensitivity"
        )


def _column_key(name: str) -> str:
    """Return the last part of a column name in the form that SQL compares."""
    return name.rpartition(".")[2].strip('"`[]').casefold()
