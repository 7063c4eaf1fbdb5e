"""A query of SmartNoise SQL → a release of all that it really runs, asked for before it reads.

`Privacy(epsilon=…)` is the loss of one mechanism and not of a query: an average is a sum, a count
and a count of people. The mechanisms are taken from the rewritten query that is about to run, after
SmartNoise has read its options and before it reads a row.
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
from dpolicy.integrations.float_rounding import round_loss_up, round_up
from dpolicy.integrations.gate import Gate


class GatedReader:
    """Answers SQL on a connection that is kept here, each query if the policy allows it.

    The gate's `unit` is whoever the metadata calls `private_id`, or a row under `row_privacy`.
    `columns` maps columns to attributes, where these are not of the same name. `selected` says that
    the connection shows only what `where` and `time` of the gate name, and `public_groups` that the
    values by which queries group are known beforehand, where the metadata censors none.
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
        **more: Any,
    ) -> None:
        if gate.relation not in (None, "add-remove"):
            raise OperationRejected(f"SmartNoise protects `add-remove`, not `{gate.relation}`")
        if (gate.where or gate.time) and not selected:
            raise OperationRejected(
                "say with `selected` that the connection shows only that selection"
            )
        self._gate = replace(gate, relation="add-remove")
        # A copy: whoever made it could change ε between two queries, or during one.
        self._inner = _Reader.from_connection(
            connection, privacy=deepcopy(privacy), metadata=metadata, **more
        )
        if self._inner.engine == "spark":
            raise OperationRejected("Spark draws fresh noise whenever an answer is looked at again")
        self._names = columns or {}
        self._public_groups = public_groups
        self._name = name
        self._turn = Lock()  # SmartNoise keeps the options of a query in the reader

    def execute(self, query: str) -> list[Any]:
        """The rows of the answer, the names of its columns first."""
        parsed = self._inner.parse_query_string(query)
        self._check(parsed, query)
        with self._turn, ExitStack() as stack:
            self._inner.ask = lambda mechanisms: stack.enter_context(
                self._gate.reserve(self._name, *map(self._stated, mechanisms))
            )
            rows: list[Any] = self._inner._execute_ast(parsed)
            return rows

    def execute_df(self, query: str) -> Any:
        """The answer as a pandas frame."""
        return self._inner._to_df(self.execute(query))

    def _check(self, parsed: Any, query: str) -> None:
        """Refuse what would cost more than its mechanisms say."""
        if parsed.use_dpsu:
            raise OperationRejected("`use_dpsu` spends an ε of its own that no query is charged")
        if parsed.agg is not None and not (parsed.censor_dims or self._public_groups):
            raise OperationRejected(
                "without `censor_dims` the groups that exist are told as they are; help: turn it "
                "on, or say `public_groups`"
            )
        self._check_clamped(parsed)
        tables = self._inner.metadata.tables()
        known = [column.name for table in tables for column in table.columns()]
        check_attributes(columns_named_in(query, known), self._names, self._gate.attributes)

    def _check_clamped(self, parsed: Any) -> None:
        """Refuse sums over columns that SmartNoise fits noise to the bounds of and does not clamp:
        those that a query groups by, and whoever is protected.
        """
        grouped = parsed.agg.groupedColumns() if parsed.agg is not None else []
        keys = [c.name for t in self._inner.metadata.tables() for c in t.columns() if c.is_key]
        bare = {_folded(name) for name in (*(column.name for column in grouped), *keys)}
        for called in parsed.find_nodes(AggFunction):
            if called.name.upper() != "COUNT":
                for column in called.find_nodes(Column):
                    if _folded(column.name) in bare:
                        said = f"`{called.name}` of `{column.name}`, which it groups by or protects"
                        raise OperationRejected(
                            f"SmartNoise does not clamp {said}; help: use other columns"
                        )

    def _stated(self, mechanism: Any) -> dict[str, Any]:
        said = {"kind": "declared", "epsilon": round_loss_up(mechanism.epsilon)}
        return self._gate.mechanism_fields(
            {**said, "delta": round_up(mechanism.delta)} if mechanism.delta else said
        )


class _Reader(PrivateReader):  # type: ignore[misc]
    """SmartNoise's reader, which asks at the last moment before it reads."""

    ask: Callable[[list[Any]], object]

    def _get_reader(self, query_ast: Any) -> Any:
        """The way to the data, for a query whose options and mechanisms are now settled."""
        symbols = query_ast._select_symbols
        bare = [s.name for s in symbols if s.mechanism is None and not s.is_grouping_column]
        if bare:
            raise OperationRejected(f"nothing protects the column `{bare[0]}` of the answer")
        mechanisms = [symbol.mechanism for symbol in symbols if symbol.mechanism is not None]
        if any(m.sensitivity is not None and math.isinf(m.sensitivity) for m in mechanisms):
            raise OperationRejected(
                "a column without bounds has no bounded loss; help: state its bounds"
            )
        self.ask(mechanisms)
        return super()._get_reader(query_ast)


def _folded(name: str) -> str:
    """The last part of a column's name, as SQL compares it."""
    return name.rpartition(".")[2].strip('"`[]').casefold()
