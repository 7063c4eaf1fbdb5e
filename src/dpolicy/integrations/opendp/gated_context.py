"""An OpenDP query → a release with its exact loss for every unit, asked for before data is read.

A `GatedContext` stands where OpenDP's `Context` does, with a policy instead of a budget of its own.
Each unit says how far its neighbours are apart in the data; the measurement's own map gives the
loss at that distance (theory 5), in the measure of the context, and it is stated rounded up.
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
from dpolicy.integrations.gate import Gate
from dpolicy.integrations.opendp.polars_columns import columns_used

#: A unit as `dp.unit_of` makes it: a metric, and the distance of neighbours in it.
NeighbourDistance = tuple[Any, Any]

#: How neighbours differ in each metric (theory 0.1). Of the others the gate must say it.
_RELATIONS = {
    "SymmetricDistance": "add-remove",
    "InsertDeleteDistance": "add-remove",
    "SymmetricIdDistance": "add-remove",
    "ChangeOneDistance": "replace",
    "HammingDistance": "replace",
    "ChangeOneIdDistance": "replace",
}

#: The orders at which a Rényi curve is stated; between them it is interpolated.
_ORDERS = (1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024)

_UNLIMITED = float("inf")


class GatedContext:
    """Answers OpenDP queries on data that is kept here, each of them if the policy allows it.

    `units` maps the units of the policy to `dp.unit_of(…)`; noise is fitted to the first of them.
    `columns` maps columns to attributes, where these are not of the same name. `where` and `time`
    of the gate are applied to a frame, `day` being the column with the date, unless `selected` says
    that the data holds nothing else.
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
        metric, distance = _checked(units, margins)
        self._gate = replace(gate, unit=next(iter(units)), relation=_relation(gate, metric))
        self._distances = {unit: far for unit, (_, far) in units.items()}
        self._attributes = columns or {}
        self._name = name
        frame = isinstance(data, pl.LazyFrame)
        if frame and domain is not None:
            raise OperationRejected(
                "a domain of a frame may hold an invariant; help: describe it by margins"
            )
        if (gate.where or gate.time) and not selected:
            if not frame:
                raise OperationRejected(
                    "the gate selects `where` or `time`, which only a frame can be"
                )
            data = data.filter(_selection(gate, day))
        self._known = frozenset(data.collect_schema().names()) if frame else frozenset()
        approximate = "Approximate" in str(measure)
        self._inner = dp.Context.compositor(
            data=data,
            privacy_unit=(metric, distance),
            privacy_loss=(measure, (_UNLIMITED, 1.0) if approximate else _UNLIMITED),
            domain=domain,
            margins=list(margins) or None,
        )

    def query(self, *, attributes: Sequence[str] | None = None, **losses: float) -> Any:
        """A query as of OpenDP's context; `attributes` are all it may use, or else the gate's."""
        query = self._inner.query(**losses)
        declared = self._gate.attributes if attributes is None else attributes
        asking = _Asking(self._run, tuple(declared), self._known)
        if isinstance(query, LazyFrameQuery):
            object.__getattribute__(query, "_query")._context = asking
            return _gated(query)
        query._context = asking
        return query

    def __call__(self, measurement: Any) -> Any:
        """The answer of a measurement that was built by hand: it may use every column."""
        return self._run(measurement, tuple(self._gate.attributes), self._known)

    @property
    def queryable(self) -> Any:
        """OpenDP's own way to the data, which asks nobody."""
        raise OperationRejected("`queryable` asks no policy; use `query()`")

    def _run(self, measurement: Any, declared: tuple[str, ...], columns: frozenset[str]) -> Any:
        """Reserve what a measurement costs, and only then let it see the data."""
        if not isinstance(measurement, Measurement):
            raise OperationRejected(
                "what has no bound on its loss, such as an odometer, cannot be reserved"
            )
        check_attributes(columns, self._attributes, declared)
        gate = replace(self._gate, attributes=declared)
        (_, stated), *others = self._losses(measurement).items()
        mechanism = gate.mechanism_fields({"kind": "declared", **stated}, also=dict(others))
        with gate.reserve(self._name, mechanism):
            answer = self._inner(measurement)
            # A frame that is collected here cannot be collected again with fresh noise.
            return answer.collect().lazy() if isinstance(answer, OnceFrame) else answer

    def _losses(self, measurement: Any) -> dict[str, dict[str, Any]]:
        """The loss for every unit, as `declared` states it."""
        kind = str(measurement.output_measure)
        return {unit: _loss(kind, measurement.map(far)) for unit, far in self._distances.items()}


@dataclass(frozen=True, slots=True)
class _Asking:
    """What a query is released to. Of a bare measurement nobody knows which columns it uses."""

    run: Callable[[Any, tuple[str, ...], frozenset[str]], Any]
    declared: tuple[str, ...]
    columns: frozenset[str]

    def __call__(self, measurement: Any) -> Any:
        return self.run(measurement, self.declared, self.columns)


class _GatedQuery(LazyFrameQuery):  # type: ignore[misc]
    """A query on a frame that is released with its plan, and stays one whatever is added to it."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("release", "resolve") or name.startswith("__") or not callable(found):
            return found
        return lambda *args, **named: _gated(found(*args, **named))

    def release(self) -> Any:
        """The answer, if the policy allows it."""
        plan, query = (object.__getattribute__(self, name) for name in ("polars_plan", "_query"))
        asking = query._context
        return asking.run(self.resolve(), asking.declared, columns_used(plan, asking.known))


class _GatedGroups(LazyGroupByQuery):  # type: ignore[misc]
    """A query that groups, on its way to be one that aggregates."""

    def agg(self, *args: Any, **named: Any) -> Any:
        """A query again."""
        return _gated(super().agg(*args, **named))


def _gated(made: Any) -> Any:
    """OpenDP makes queries of its own classes, whatever class they are made from."""
    if type(made) is LazyFrameQuery:
        made.__class__ = _GatedQuery
    elif type(made) is LazyGroupByQuery:
        made.__class__ = _GatedGroups
    return made


def _checked(units: Mapping[str, NeighbourDistance], margins: Sequence[Any]) -> NeighbourDistance:
    """The first unit, if all are measured alike and nothing is left unprotected."""
    if not units:
        raise OperationRejected("a context needs at least one unit")
    (metric, distance), *others = units.values()
    if any(other != metric for other, _ in others):
        raise OperationRejected("all units of a context must be stated in the same metric")
    if any(margin.invariant for margin in margins):
        raise OperationRejected(
            "a margin with an `invariant` is not protected, so its loss would be more than its map"
            " says; help: name the groups by `with_keys`, or give a δ to find them"
        )
    return metric, distance


def _relation(gate: Gate, metric: Any) -> str:
    inner = str(metric).removeprefix("FrameDistance(")
    relation = _RELATIONS.get(re.split(r"\W", inner, maxsplit=1)[0], gate.relation)
    if relation is None:
        raise OperationRejected(f"say the gate's `relation`: `{metric}` can mean any")
    if gate.relation not in (None, relation):
        raise OperationRejected(f"neighbours in `{metric}` are `{relation}`, not `{gate.relation}`")
    return relation


def _loss(measure: str, value: Any) -> dict[str, Any]:
    """The loss at a distance, in the words of a release."""
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
    raise OperationRejected(f"a loss in `{measure}` cannot be stated; help: use ε, (ε, δ) or ρ")


def _selection(gate: Gate, day: str | None) -> pl.Expr:
    """Exactly what the gate says is read, row by row."""
    boxes = [gate.where] if isinstance(gate.where, Mapping) else list(gate.where or [{}])
    chosen = reduce(pl.Expr.or_, (_box(box) for box in boxes))
    if not gate.time:
        return chosen
    if day is None:
        raise OperationRejected("the gate says its `time`: say which column is the `day`")
    ends = {"from": pl.Expr.ge, "to": pl.Expr.le}
    when = pl.col(day).dt.date()  # in the column's own zone; a cast would take the day in UTC
    limits = [ends[end](when, date.fromisoformat(str(value))) for end, value in gate.time.items()]
    return reduce(pl.Expr.and_, limits, chosen)


def _box(box: Mapping[str, Any]) -> pl.Expr:
    return reduce(pl.Expr.and_, (_chosen(*item) for item in box.items()), pl.lit(True))


def _chosen(column: str, selection: Any) -> pl.Expr:
    if isinstance(selection, Mapping):
        return pl.col(column).is_between(selection["from"], selection["to"])
    values = [selection] if isinstance(selection, str) else [str(value) for value in selection]
    return pl.col(column).cast(pl.String).is_in(values)
