"""A query of Tumult Analytics → a release, asked for before Spark reads a row.

A `GatedSession` stands where Tumult's `Session` does, with a policy instead of a budget of its own.
It holds a session without a limit and lets nothing else out of it: what Tumult's own constructors
return, and what it makes of partitions, would ask nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
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
from dpolicy.integrations.gate import Gate
from dpolicy.integrations.tumult.query_columns import ColumnUse, NameBindings, column_use

#: A session of each notion that never says no: the policy does.
_UNLIMITED = {
    PureDPBudget: PureDPBudget(float("inf")),
    ApproxDPBudget: ApproxDPBudget(float("inf"), 1),
    RhoZCDPBudget: RhoZCDPBudget(float("inf")),
}


class GatedSession:
    """Answers Tumult's queries on data that is kept here, each of them if the policy allows it."""

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
        """Not for use: `from_dataframe` makes the first, `partition_and_create` those of parts."""
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
        """A session on one table, whose protected change is that of the gate's unit.

        `columns` maps columns to attributes, where these are not of the same name. `where` and
        `time` of the gate are applied to the table, `day` being the column with the date, unless
        `selected` says that the table holds nothing else.
        """
        if gate.relation not in (None, "add-remove"):
            raise OperationRejected(f"Tumult protects `add-remove`, not `{gate.relation}`")
        if (gate.where or gate.time) and not selected:
            dataframe = dataframe.filter(_selection(gate, day))
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
        """The answer to a query, if the policy allows its loss. Spark has then computed it."""
        use = column_use(query_expr._query_expr, self._known())
        check_attributes(use.columns, self._names, self._gate.attributes)
        self._session._activate_accountant()
        # What cannot be compiled, or has no finite loss, is refused before anything is reserved.
        _, adjusted, _ = self._session._compile_and_get_info(query_expr._query_expr, privacy_budget)
        mechanism = self._gate.mechanism_fields({"kind": "declared", **_loss(adjusted)})
        with self._gate.reserve(self._name, mechanism):
            return self._session.evaluate(query_expr, privacy_budget)

    def create_view(self, query_expr: QueryBuilder, source_id: str, cache: bool = False) -> None:
        """A table made of another; what it uses counts for every query on it."""
        use = column_use(query_expr._query_expr, self._known())
        self._session.create_view(query_expr, source_id, cache)
        self._tables[source_id] = use

    def delete_view(self, source_id: str) -> None:
        """Forget a view."""
        self._session.delete_view(source_id)
        self._tables.pop(source_id)

    def add_public_dataframe(self, source_id: str, dataframe: DataFrame) -> None:
        """A table that needs no protection."""
        self._session.add_public_dataframe(source_id, dataframe)

    def partition_and_create(
        self,
        source_id: str,
        column: str,
        splits: Mapping[str, str] | Mapping[str, int],
        partition: str | None = None,
    ) -> dict[str, GatedSession]:
        """A gated session for each part of a table; each query on each of them asks.

        With `partition`, the column holds that partition of the policy, and a part is charged where
        it is. Without, all parts are charged everywhere: they add up.
        """
        if source_id not in self._tables:
            raise OperationRejected(f"there is no private table `{source_id}`")
        table, part = self._tables[source_id], frozenset({column})
        if partition is not None and not table.as_is:
            raise OperationRejected(
                f"`{source_id}` may have another `{column}` than the data: not a partition"
            )
        if self._session.get_id_column(source_id) is not None:  # rows are kept by a hash over all
            part = self._columns
        children = self._session.partition_and_create(
            source_id, _UNLIMITED[self._notion], column, dict(splits)
        )
        return {
            name: GatedSession(
                _narrowed(self._gate, partition, splits[name]),
                child,
                self._notion,
                self._columns,
                {name: replace(table, columns=table.columns | (part & self._columns))},
                names=self._names,
                name=self._name,
            )
            for name, child in children.items()
        }

    def stop(self) -> None:
        """Let the next part, or the whole, answer."""
        self._session.stop()

    def describe(self) -> None:
        """Print the tables and their columns."""
        self._session.describe()

    def _known(self) -> NameBindings:
        public = self._session.public_source_dataframes
        return NameBindings(
            self._columns,
            self._tables,
            {name: frame.columns for name, frame in public.items()},
            self._session._catalog,
        )


def _loss(budget: Any) -> dict[str, Any]:
    """The loss of a query, in the words of a release."""
    exact = budget.value if isinstance(budget.value, tuple) else (budget.value,)
    first, *rest = (number.to_float(round_up=True) for number in exact)
    if isinstance(budget, RhoZCDPBudget):
        return {"rho": round_loss_up(first)}
    return {
        "epsilon": round_loss_up(first),
        **({"delta": round_up(rest[0])} if rest and rest[0] else {}),
    }


def _narrowed(gate: Gate, partition: str | None, value: str | int) -> Gate:
    """The gate of a part: only where the partition has that value."""
    if partition is None:
        return gate
    boxes = [gate.where] if isinstance(gate.where, Mapping) else list(gate.where or [{}])
    if any(partition in box for box in boxes):
        raise OperationRejected(f"the gate already says where `{partition}` is")
    said = {"from": value, "to": value} if isinstance(value, int) else [value]
    return replace(gate, where=[{**box, partition: said} for box in boxes])


def _selection(gate: Gate, day: str | None) -> Any:
    """Exactly what the gate says is read, row by row."""
    boxes = [gate.where] if isinstance(gate.where, Mapping) else list(gate.where or [{}])
    chosen = reduce(lambda a, b: a | b, (_box(box) for box in boxes))
    if not gate.time:
        return chosen
    if day is None:
        raise OperationRejected("the gate says its `time`: say which column is the `day`")
    when = sf.to_date(sf.col(day))
    ends = {"from": when.__ge__, "to": when.__le__}
    return reduce(
        lambda a, b: a & b, (ends[end](sf.lit(str(d))) for end, d in gate.time.items()), chosen
    )


def _box(box: Mapping[str, Any]) -> Any:
    tests = [_chosen(column, selection) for column, selection in box.items()]
    return reduce(lambda a, b: a & b, tests, sf.lit(True))


def _chosen(column: str, selection: Any) -> Any:
    if isinstance(selection, Mapping):
        return sf.col(column).between(selection["from"], selection["to"])
    values: Sequence[Any] = [selection] if isinstance(selection, str) else list(selection)
    return sf.col(column).cast("string").isin([str(value) for value in values])
