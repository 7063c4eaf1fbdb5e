"""Gate for Tumult Analytics: reserves the cost of a query before Spark reads a row.

Use a `GatedSession` instead of Tumult's `Session`; a policy replaces the budget of the session. It
wraps a session with an unlimited budget and does not expose it, because queries on that session, or
on sessions that it creates for partitions, would bypass the policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from tmlt.analytics import (
    ApproxDPBudget,
    PrivacyBudget,
    ProtectedChange,
    PureDPBudget,
    Query,
    QueryBuilder,
    RhoZCDPBudget,
    Session,
)

from dpolicy.errors import OperationRejected
from dpolicy.integrations.declared_attributes import Names, check_attributes
from dpolicy.integrations.float_rounding import round_loss_up, round_up
from dpolicy.integrations.gate import Gate, GatedObject
from dpolicy.integrations.tumult.query_columns import ColumnUse, NameBindings, column_use

#: Budget of each notion that never denies; the policy decides instead.
_UNLIMITED = {
    PureDPBudget: PureDPBudget(float("inf")),
    ApproxDPBudget: ApproxDPBudget(float("inf"), 1),
    RhoZCDPBudget: RhoZCDPBudget(float("inf")),
}


class GatedSession(GatedObject):
    """Session that holds the data and evaluates a query only if the policy allows it."""

    def __init__(
        self,
        gate: Gate,
        session: Session,
        notion: type[PrivacyBudget],
        columns: frozenset[str],
        tables: Mapping[str, ColumnUse],
        *,
        names: Names,
        name: str,
    ) -> None:
        """Internal: use `from_dataframe`, or `partition_and_create` for parts of a table."""
        self._gate = gate
        self._session = session
        self._notion = notion
        self._columns = columns
        self._tables = dict(tables)
        self._names = names
        self._name = name

    @classmethod
    def from_dataframe(
        cls,
        gate: Gate,
        source_id: str,
        dataframe: DataFrame,
        protected_change: ProtectedChange,
        *,
        notion: type[PrivacyBudget] = PureDPBudget,
        columns: Names | None = None,
        day: str | None = None,
        selected: bool = False,
        name: str = "tumult",
    ) -> GatedSession:
        """Create a session on one table.

        `protected_change` must correspond to the unit of the gate. `columns` maps columns to
        attributes with other names. The session filters the table by `where` and `time` of the
        gate, with the dates of the column `day`. Set `selected` if the table contains nothing else.
        """
        if gate.relation not in (None, "add-remove"):
            raise OperationRejected(f"Tumult protects `add-remove`, not `{gate.relation}`")
        if (gate.where or gate.time) and not selected:
            dataframe = dataframe.filter(_row_filter(gate, day))
        session = Session.from_dataframe(_UNLIMITED[notion], source_id, dataframe, protected_change)
        return cls(
            replace(gate, relation="add-remove"),
            session,
            notion,
            frozenset(dataframe.columns),
            {source_id: ColumnUse(frozenset())},
            names=columns or {},
            name=name,
        )

    def evaluate(self, query_expr: Query, privacy_budget: PrivacyBudget) -> Any:
        """Return the computed answer of a query, or raise `Denied`."""
        use = column_use(query_expr._query_expr, self._name_bindings())
        check_attributes(use.columns, self._names, self._gate.attributes)
        self._session._activate_accountant()
        # Tumult refuses a query that does not compile or has no finite loss before the reservation.
        _, adjusted, _ = self._session._compile_and_get_info(query_expr._query_expr, privacy_budget)
        mechanism = self._gate.mechanism_fields({"kind": "declared", **_loss_parameters(adjusted)})
        with self._gate.reserve(self._name, mechanism):
            return self._session.evaluate(query_expr, privacy_budget)

    def create_view(self, query_expr: QueryBuilder, source_id: str, cache: bool = False) -> None:
        """Create a view; every query on it uses the columns of the view as well."""
        use = column_use(query_expr._query_expr, self._name_bindings())
        self._session.create_view(query_expr, source_id, cache)
        self._tables[source_id] = use

    def delete_view(self, source_id: str) -> None:
        """Delete a view."""
        self._session.delete_view(source_id)
        self._tables.pop(source_id)

    def add_public_dataframe(self, source_id: str, dataframe: DataFrame) -> None:
        """Add a table that needs no protection."""
        self._session.add_public_dataframe(source_id, dataframe)

    def partition_and_create(
        self,
        source_id: str,
        column: str,
        splits: Mapping[str, str] | Mapping[str, int],
        partition: str | None = None,
    ) -> dict[str, GatedSession]:
        """Return a gated session for each part of a table.

        With `partition`, which must be the name of the column, the column must contain that
        partition of the policy, and a query on a part is charged to its block only. Without it,
        queries are charged to every block, so the costs of the parts add up.
        """
        if source_id not in self._tables:
            raise OperationRejected(f"there is no private table `{source_id}`")
        table, used = self._tables[source_id], frozenset({column})
        if partition not in (None, column):
            raise OperationRejected(
                f"the column `{column}` is not the partition `{partition}`; help: split by a "
                f"column `{partition}`, or omit `partition`"
            )
        if partition is not None and not table.as_is:
            raise OperationRejected(
                f"`{column}` of `{source_id}` may differ from the data, so it is not a partition"
            )
        if self._session.get_id_column(source_id) is not None:
            used = self._columns  # Tumult selects rows by a hash over all columns.
        children = self._session.partition_and_create(
            source_id, _UNLIMITED[self._notion], column, dict(splits)
        )
        return {
            name: GatedSession(
                _restrict_gate(self._gate, partition, splits[name]),
                child,
                self._notion,
                self._columns,
                {name: replace(table, columns=table.columns | (used & self._columns))},
                names=self._names,
                name=self._name,
            )
            for name, child in children.items()
        }

    def stop(self) -> None:
        """Stop this session, so that the next part or the original session can evaluate queries."""
        self._session.stop()

    def describe(self) -> None:
        """Print the tables and their columns."""
        self._session.describe()

    def _name_bindings(self) -> NameBindings:
        public = self._session.public_source_dataframes
        return NameBindings(
            self._columns,
            self._tables,
            {name: frame.columns for name, frame in public.items()},
            self._session._catalog,
        )


def _loss_parameters(budget: Any) -> dict[str, Any]:
    """Return the loss of a query as parameters of a declared mechanism, rounded up."""
    exact = budget.value if isinstance(budget.value, tuple) else (budget.value,)
    numbers = [number.to_float(round_up=True) for number in exact]
    if isinstance(budget, RhoZCDPBudget):
        return {"rho": round_loss_up(numbers[0])}
    delta = numbers[1] if len(numbers) > 1 else 0
    return {
        "epsilon": round_loss_up(numbers[0]),
        **({"delta": round_up(delta)} if delta else {}),
    }


def _restrict_gate(gate: Gate, partition: str | None, value: str | int) -> Gate:
    """Return the gate of a part of a table, restricted to one value of the partition."""
    if partition is None:
        return gate
    if any(partition in box for box in gate.boxes):
        raise OperationRejected(f"`where` of the gate already restricts `{partition}`")
    selection = {"from": value, "to": value} if isinstance(value, int) else [value]
    return replace(gate, where=[{**box, partition: selection} for box in gate.boxes])


def _row_filter(gate: Gate, day: str | None) -> Any:
    """Return a condition for exactly the rows that `where` and `time` of the gate select."""
    condition = reduce(or_, (_box_condition(box) for box in gate.boxes))
    if not gate.time:
        return condition
    if day is None:
        raise OperationRejected("the gate has a `time`; help: pass the date column as `day`")
    row_date = sf.to_date(sf.col(day))
    comparisons = {"from": row_date.__ge__, "to": row_date.__le__}
    for end, limit in gate.time.items():
        condition = condition & comparisons[end](sf.lit(str(limit)))
    return condition


def _box_condition(box: Mapping[str, Any]) -> Any:
    tests = [_column_condition(column, selection) for column, selection in box.items()]
    return reduce(and_, tests, sf.lit(True))


def _column_condition(column: str, selection: Any) -> Any:
    if isinstance(selection, Mapping):
        return sf.col(column).between(selection["from"], selection["to"])
    values: Sequence[Any] = [selection] if isinstance(selection, str) else list(selection)
    return sf.col(column).cast("string").isin([str(value) for value in values])
