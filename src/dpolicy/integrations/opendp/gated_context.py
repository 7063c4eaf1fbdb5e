"""Gate for OpenDP: reserves the exact loss of a query for every unit before data is read.

Use a `GatedContext` instead of OpenDP's `Context`; a policy replaces the budget of the context. For
each unit, the caller states the distance of neighbouring data sets. The privacy map of the
measurement gives the loss at that distance (theory 5), in the measure of the context; the gate
states it rounded up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from typing import Any

import opendp.prelude as dp
import polars as pl
from opendp.extras.polars import LazyFrameQuery, LazyGroupByQuery, OnceFrame
from opendp.mod import Measurement

from dpolicy.errors import OperationRejected
from dpolicy.integrations.declared_attributes import Names, check_attributes
from dpolicy.integrations.float_rounding import round_loss_up, round_up
from dpolicy.integrations.gate import Gate, GatedObject
from dpolicy.integrations.opendp.polars_columns import columns_used

#: Result of `dp.unit_of`: a metric, and the distance of neighbouring data sets in it.
NeighbourDistance = tuple[Any, Any]

#: Neighbouring relation of each metric (theory 0.1). For other metrics the gate must state it.
_RELATIONS = {
    "SymmetricDistance": "add-remove",
    "InsertDeleteDistance": "add-remove",
    "SymmetricIdDistance": "add-remove",
    "ChangeOneDistance": "replace",
    "HammingDistance": "replace",
    "ChangeOneIdDistance": "replace",
}

#: Orders at which a Rényi curve is stated; between them it is interpolated.
_ORDERS = (1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)

_UNLIMITED = float("inf")


class GatedContext(GatedObject):
    """Context that holds the data and releases a query only if the policy allows it.

    `units` maps units of the policy to `dp.unit_of(…)`; OpenDP calibrates the noise for the first.
    `columns` maps columns to attributes with other names. The context filters a frame by `where`
    and `time` of the gate, with the dates of the column `day`. Set `selected` if the data contains
    nothing else.
    """

    def __init__(
        self,
        gate: Gate,
        data: Any,
        *,
        units: Mapping[str, NeighbourDistance],
        measure: Any,
        margins: Sequence[Any] = (),
        domain: Any = None,
        columns: Names | None = None,
        day: str | None = None,
        selected: bool = False,
        name: str = "opendp",
    ) -> None:
        metric, distance = _first_unit(units, margins)
        self._gate = replace(gate, unit=next(iter(units)), relation=_relation(gate, metric))
        self._distances = {unit: unit_distance for unit, (_, unit_distance) in units.items()}
        self._attributes = columns or {}
        self._name = name
        is_frame = isinstance(data, pl.LazyFrame)
        if is_frame and domain is not None:
            raise OperationRejected(
                "a domain of a frame may contain an invariant; help: use margins instead"
            )
        if (gate.where or gate.time) and not selected:
            if not is_frame:
                raise OperationRejected(
                    "the gate has `where` or `time`, and only a frame can be filtered by them"
                )
            data = data.filter(_row_filter(gate, day))
        self._columns = frozenset(data.collect_schema().names()) if is_frame else frozenset()
        approximate = "Approximate" in str(measure)
        self._inner = dp.Context.compositor(
            data=data,
            privacy_unit=(metric, distance),
            privacy_loss=(measure, (_UNLIMITED, 1.0) if approximate else _UNLIMITED),
            domain=domain,
            margins=list(margins) or None,
        )

    def query(self, *, attributes: Sequence[str] | None = None, **losses: float) -> Any:
        """Start a query as in OpenDP's context.

        `attributes` are the attributes that it may use; by default those of the gate.
        """
        query = self._inner.query(**losses)
        declared = self._gate.attributes if attributes is None else attributes
        release_target = _ReleaseTarget(self._release, tuple(declared), self._columns)
        if isinstance(query, LazyFrameQuery):
            object.__getattribute__(query, "_query")._context = release_target
            return _gate_query(query)
        query._context = release_target
        return query

    def __call__(self, measurement: Any) -> Any:
        """Release a measurement that was built by hand; it counts as using every column."""
        return self._release(measurement, tuple(self._gate.attributes), self._columns)

    @property
    def queryable(self) -> Any:
        """Refused: OpenDP's queryable would bypass the policy."""
        raise OperationRejected("`queryable` would bypass the policy; help: use `query()`")

    def _release(self, measurement: Any, declared: tuple[str, ...], columns: frozenset[str]) -> Any:
        """Reserve the cost of a measurement, then run it on the data."""
        if not isinstance(measurement, Measurement):
            raise OperationRejected(
                "only a measurement can be reserved; an odometer, for example, has no bounded loss"
            )
        check_attributes(columns, self._attributes, declared)
        gate = replace(self._gate, attributes=declared)
        (_, loss), *restated = self._losses(measurement).items()
        mechanism = gate.mechanism_fields({"kind": "declared", **loss}, also=dict(restated))
        with gate.reserve(self._name, mechanism):
            answer = self._inner(measurement)
            # Collect here, so that the caller cannot collect again and get fresh noise.
            return answer.collect().lazy() if isinstance(answer, OnceFrame) else answer

    def _losses(self, measurement: Any) -> dict[str, dict[str, Any]]:
        """Return the loss for every unit as parameters of a declared mechanism."""
        measure = str(measurement.output_measure)
        return {
            unit: _loss_parameters(measure, measurement.map(distance))
            for unit, distance in self._distances.items()
        }


@dataclass(frozen=True, slots=True)
class _ReleaseTarget:
    """Replacement for the context of an OpenDP query; it releases measurements through the gate.

    The columns that a bare measurement uses are unknown, so it counts as using all `columns`.
    """

    release: Callable[[Any, tuple[str, ...], frozenset[str]], Any]
    declared: tuple[str, ...]
    columns: frozenset[str]

    def __call__(self, measurement: Any) -> Any:
        return self.release(measurement, self.declared, self.columns)


class _GatedQuery(LazyFrameQuery):  # type: ignore[misc]
    """Query on a frame that is released with its plan; every method returns a gated query again."""

    def __getattribute__(self, name: str) -> Any:
        attribute = super().__getattribute__(name)
        if name in ("release", "resolve") or name.startswith("__") or not callable(attribute):
            return attribute
        return lambda *args, **named: _gate_query(attribute(*args, **named))

    def release(self) -> Any:
        """Return the answer, or raise `Denied`."""
        plan = object.__getattribute__(self, "polars_plan")
        target = object.__getattribute__(self, "_query")._context
        used = columns_used(plan, target.columns)
        return target.release(self.resolve(), target.declared, used)


class _GatedGroups(LazyGroupByQuery):  # type: ignore[misc]
    """Grouped query, before its aggregation."""

    def agg(self, *args: Any, **named: Any) -> Any:
        """Return the aggregated query, gated again."""
        return _gate_query(super().agg(*args, **named))


def _gate_query(query: Any) -> Any:
    """Change the class of a query to the gated one: methods of OpenDP return ungated classes."""
    if type(query) is LazyFrameQuery:
        query.__class__ = _GatedQuery
    elif type(query) is LazyGroupByQuery:
        query.__class__ = _GatedGroups
    return query


def _first_unit(
    units: Mapping[str, NeighbourDistance], margins: Sequence[Any]
) -> NeighbourDistance:
    """Return the first unit. Refuse units in different metrics, and margins with an invariant."""
    if not units:
        raise OperationRejected("a context needs at least one unit")
    metric, distance = next(iter(units.values()))
    if any(other != metric for other, _ in units.values()):
        raise OperationRejected("all units of a context must be stated in the same metric")
    if any(margin.invariant for margin in margins):
        raise OperationRejected(
            "a margin with an `invariant` is not protected, so the loss is larger than the privacy "
            "map states; help: list the groups with `with_keys`, or give a δ to discover them"
        )
    return metric, distance


def _relation(gate: Gate, metric: Any) -> str:
    inner = str(metric).removeprefix("FrameDistance(")
    relation = _RELATIONS.get(re.split(r"\W", inner, maxsplit=1)[0], gate.relation)
    if relation is None:
        raise OperationRejected(
            f"the metric `{metric}` fits any relation; help: state the `relation` of the gate"
        )
    if gate.relation not in (None, relation):
        raise OperationRejected(
            f"neighbours in the metric `{metric}` are `{relation}`, not `{gate.relation}`"
        )
    return relation


def _loss_parameters(measure: str, value: Any) -> dict[str, Any]:
    """Return a value of a privacy map as parameters of a declared mechanism, rounded up."""
    match measure:
        case "MaxDivergence":
            return {"epsilon": round_loss_up(value)}
        case "Approximate(MaxDivergence)":
            epsilon, delta = value
            return {"epsilon": round_loss_up(epsilon), "delta": round_up(delta)}
        case "ZeroConcentratedDivergence":
            return {"rho": round_loss_up(value)}
        case "RenyiDivergence":
            return {"renyi": {order: round_loss_up(value(float(order))) for order in _ORDERS}}
    raise OperationRejected(
        f"a loss in `{measure}` cannot be stated in a release; help: use ε, (ε, δ), ρ or Rényi"
    )


def _row_filter(gate: Gate, day: str | None) -> pl.Expr:
    """Return a condition for exactly the rows that `where` and `time` of the gate select."""
    condition = reduce(pl.Expr.or_, (_box_condition(box) for box in gate.boxes))
    if not gate.time:
        return condition
    if day is None:
        raise OperationRejected("the gate has a `time`; help: pass the date column as `day`")
    local_date = pl.col(day).dt.date()  # In the time zone of the column; a cast would use UTC.
    comparisons = {"from": pl.Expr.ge, "to": pl.Expr.le}
    for end, limit in gate.time.items():
        condition = condition & comparisons[end](local_date, date.fromisoformat(str(limit)))
    return condition


def _box_condition(box: Mapping[str, Any]) -> pl.Expr:
    tests = [_column_condition(column, selection) for column, selection in box.items()]
    return reduce(pl.Expr.and_, tests, pl.lit(True))


def _column_condition(column: str, selection: Any) -> pl.Expr:
    if isinstance(selection, Mapping):
        return pl.col(column).is_between(selection["from"], selection["to"])
    values = [selection] if isinstance(selection, str) else [str(value) for value in selection]
    return pl.col(column).cast(pl.String).is_in(values)
