"""The gate for OpenDP with the real library: charges, selections and attempts to bypass it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import opendp.prelude as dp
import polars as pl
import pytest
from opendp.extras.polars import Bound, Margin
from tests.gated.balances import balance, statuses
from tests.gated.pages import run_example
from tests.pdp.builders import started

from dpolicy.errors import Denied, OperationRejected, ReleaseRejected
from dpolicy.integrations.gate import Gate
from dpolicy.integrations.opendp import GatedContext
from dpolicy.integrations.opendp.polars_columns import columns_used
from dpolicy.pdp.decision_point import DecisionPoint

dp.enable_features("contrib")

HEAD = """
dpolicy: 1
accounting: {delta: 1e-7}
units: {user: {relation: add-remove}, user-day: {period: day, relation: add-remove}}
schema:
  attributes: {income: {risk: high}, page: {risk: low}, country: {risk: low}}
  partitions:
    country: {values: [AT, CH]}
    age: {from: 0, to: 119}
"""
USER = "  - {name: users, kind: custom, when: always, unit: user, budget: %s}\n"
DAY = "  - {name: days, kind: custom, when: always, unit: user-day, budget: %s}\n"
INCOME = (
    "  - {name: incomes, kind: custom, when: '\"income\" in attributes', unit: user, budget: %s}\n"
)

PAGES = ["a", "b", "c"]
NUMBERS = dp.vector_domain(dp.atom_domain(T=float, nan=False))
RHO = dp.zero_concentrated_divergence()
ONE = {"user": dp.unit_of(contributions=1)}


def visits(rows: int = 300) -> pl.LazyFrame:
    """Return data with the columns of the policy."""
    return pl.LazyFrame(
        {
            "page": [PAGES[row % 3] for row in range(rows)],
            "income": [row % 10 for row in range(rows)],
            "country": ["AT" if row % 2 else "CH" for row in range(rows)],
            "age": [row % 100 for row in range(rows)],
            "day": [date(2026, 10, 1 + row % 30) for row in range(rows)],
        }
    )


def point_with(*policies: str) -> DecisionPoint:
    return started(*policies, head=HEAD)


def make_gate(point: DecisionPoint, **fields: Any) -> Gate:
    return Gate(point, by="ada", attributes=["page", "income", "country"], **fields)


def page_counts(context: GatedContext, **losses: Any) -> Any:
    counts = context.query(**losses).group_by("page").agg(dp.len(signed=True))
    return counts.with_keys(pl.LazyFrame({"page": PAGES}))


def make_context(point: DecisionPoint, data: Any = None, **arguments: Any) -> GatedContext:
    defaults = {"units": ONE, "measure": dp.max_divergence()}
    frame = visits() if data is None else data
    return GatedContext(make_gate(point), frame, **{**defaults, **arguments})


# Charges of allowed queries


@pytest.mark.parametrize(
    ("bounds", "factor"),
    [
        ([Bound(per_group=70)], 49),  # all records of a month on one page: ρ grows with 7²
        ([Bound(by=["page"], per_group=10, num_groups=7)], 3),  # ten on each of three pages: 3
    ],
)
def test_every_unit_is_charged_its_own_loss(bounds: list[Bound], factor: int) -> None:
    point = point_with(USER % "{rho: 10}", DAY % "{rho: 10}")
    day = [Bound(by=["page"], per_group=10, num_groups=1)]
    context = make_context(
        point,
        units={
            "user-day": dp.unit_of(contributions=day),
            "user": dp.unit_of(contributions=bounds),
        },
        measure=RHO,
    )
    query = page_counts(context, rho=0.015)
    (scale,) = query.summarize()["scale"]
    released = query.release().collect()
    assert sorted(released["page"]) == PAGES
    assert statuses(point) == ["committed"]
    rho = 10**2 / (2 * scale**2)  # Δ²/2σ², by hand
    assert math.isclose(rho, 0.015, rel_tol=1e-6)
    assert balance(point, "days", "rho") == pytest.approx(rho, rel=1e-6)
    assert balance(point, "users", "rho") == pytest.approx(factor * rho, rel=1e-6)


def test_pure_losses() -> None:
    point = point_with(USER % "{epsilon: 2}")
    context = make_context(point, units={"user": dp.unit_of(contributions=3)})
    query = context.query(epsilon=0.5).select(dp.len(signed=True))
    (scale,) = query.summarize()["scale"]
    query.release()
    assert balance(point, "users", "epsilon") == pytest.approx(3 / scale, rel=1e-6)


def test_approximate_losses_with_unknown_groups() -> None:
    point = point_with(USER % "{epsilon: 2, delta: 1e-6}")
    measure = dp.approximate(dp.max_divergence())
    margin = Margin(by=["page"], max_length=1000)
    context = make_context(point, measure=measure, margins=[margin])
    query = context.query(epsilon=0.5, delta=1e-7).group_by("page").agg(dp.len(signed=True))
    assert query.release().collect().height <= 3
    assert balance(point, "users", "epsilon") == pytest.approx(0.5, rel=1e-6)


def test_losses_of_plain_data() -> None:
    """Data that is not a frame has no columns, so the declared attributes are charged."""
    point = point_with(USER % "{epsilon: 2}", INCOME % "{epsilon: 0.7}")
    context = make_context(point, [1.0, 2.0, 3.0], domain=NUMBERS)
    query = context.query(epsilon=0.5).clamp((0.0, 10.0)).sum().laplace()
    assert isinstance(query.release(), float)
    assert balance(point, "incomes", "epsilon") == pytest.approx(0.5)


def test_renyi_curves() -> None:
    """OpenDP composes Rényi curves but has no measurement with one, so the test defines one."""
    point = point_with(USER % "{renyi: {8: 10}}")
    dp.enable_features("honest-but-curious")
    context = make_context(point, [1.0, 2.0], domain=NUMBERS, measure=dp.renyi_divergence())
    gaussian = dp.m.then_user_measurement(
        dp.renyi_divergence(),
        lambda total: total,
        lambda shift: lambda order: order * shift**2 / 8,  # Δ²α/2σ² with σ = 2
        TO=float,
    )
    space = (NUMBERS, dp.symmetric_distance())
    context(space >> dp.t.then_clamp((0.0, 1.0)) >> dp.t.then_sum() >> gaussian)
    (status,) = point.budgets()
    assert status.spent == {"renyi 8": pytest.approx(1.0, rel=1e-6)}
    dp.disable_features("honest-but-curious")


def test_nested_contexts_are_paid_in_advance() -> None:
    point = point_with(USER % "{epsilon: 2}")
    context = make_context(point, [1.0, 2.0, 3.0], domain=NUMBERS)
    inner = context.query(epsilon=1.0).compositor(split_evenly_over=2).release()
    assert balance(point, "users", "epsilon") == pytest.approx(1.0)
    for _ in range(2):
        inner.query().clamp((0.0, 10.0)).sum().laplace().release()
    assert balance(point, "users", "epsilon") == pytest.approx(1.0)
    with pytest.raises(ValueError, match="exhausted"):
        inner.query()


# No data is read before the reservation; data that was read is charged


@pytest.fixture
def vanishing(tmp_path: Path) -> Iterator[pl.LazyFrame]:
    """Yield a frame with a known schema whose file is deleted: any read of its rows fails."""
    file = tmp_path / "visits.csv"
    visits().collect().write_csv(file)
    frame = pl.scan_csv(file, schema=visits().collect_schema())
    frame.collect_schema()
    file.unlink()
    yield frame


def test_a_denied_query_reads_nothing(vanishing: pl.LazyFrame) -> None:
    point = point_with(USER % "{epsilon: 1}")
    context = make_context(point, vanishing)
    with pytest.raises(Denied):
        context.query(epsilon=3.0).select(dp.len(signed=True)).release()
    assert statuses(point) == ["denied"]


def test_a_crash_while_reading_stays_charged(vanishing: pl.LazyFrame) -> None:
    point = point_with(USER % "{epsilon: 1}")
    query = make_context(point, vanishing).query(epsilon=0.5).select(dp.len(signed=True))
    with pytest.raises(dp.OpenDPException):
        query.release()
    assert statuses(point) == ["committed"]
    assert balance(point, "users", "epsilon") == pytest.approx(0.5)


# Attributes of the query plan


def test_an_undeclared_attribute_is_refused() -> None:
    point = point_with(USER % "{epsilon: 1}")
    context = make_context(point)
    query = context.query(epsilon=0.1, attributes=["page"])
    rich = query.filter(pl.col("income") > 5).select(dp.len(signed=True))
    with pytest.raises(OperationRejected, match="uses `income`"):
        rich.release()
    assert not point.entries
    renamed = query.with_columns(x=pl.col("income") + 1).filter(pl.col("x") > 5)
    with pytest.raises(OperationRejected, match="uses `income`"):
        renamed.select(dp.len(signed=True)).release()


def test_only_declared_attributes_are_charged() -> None:
    point = point_with(USER % "{epsilon: 1}", INCOME % "{epsilon: 0.7}")
    context = make_context(point)
    query = context.query(epsilon=0.1, attributes=["page"]).filter(pl.col("page") == "a")
    query.select(dp.len(signed=True)).release()
    assert balance(point, "users", "epsilon") == pytest.approx(0.1)
    assert balance(point, "incomes", "epsilon") == 0


def test_columns_can_have_other_names() -> None:
    point = point_with(USER % "{epsilon: 1}", INCOME % "{epsilon: 0.7}")
    frame = visits().rename({"income": "salary"}).with_columns(id=pl.lit(1))
    context = make_context(point, frame, columns={"salary": "income", "id": ()})
    query = context.query(epsilon=0.1).filter((pl.col("salary") > 5) & (pl.col("id") > 0))
    query.select(dp.len(signed=True)).release()
    assert balance(point, "incomes", "epsilon") == pytest.approx(0.1)


PLANS: dict[str, tuple[Callable[[pl.LazyFrame], pl.LazyFrame], set[str] | None]] = {
    "filter": (lambda f: f.filter(pl.col("income") > 1), {"income"}),
    "computed": (lambda f: f.with_columns(x=pl.col("income") + pl.col("age")), {"income", "age"}),
    "grouped": (lambda f: f.group_by("page").agg(pl.len()), {"page"}),
    "over": (lambda f: f.filter(pl.len().over("page") > 1), {"page"}),
    "struct": (lambda f: f.select(pl.struct("page", "age")), {"page", "age"}),
    "when": (
        lambda f: f.select(pl.when(pl.col("age") > 1).then("page").otherwise(None)),
        {"age", "page"},
    ),
    "sorted": (lambda f: f.sort("age"), {"age"}),
    "joined": (lambda f: pl.LazyFrame({"page": PAGES}).join(f, on="page"), {"page"}),
    "several": (lambda f: f.select(pl.col("page", "age")), {"page", "age"}),
    "by time": (
        lambda f: f.group_by_dynamic("day", every="1mo", group_by="page").agg(pl.len()),
        {"day", "page"},
    ),
    "in SQL": (lambda f: f.filter(pl.sql_expr("income > 3 AND age < 5")), {"income", "age"}),
    "renamed": (
        lambda f: f.with_columns(x=pl.col("age")).group_by("x").agg(pl.col("page").first()),
        {"age", "page"},
    ),
    "of two frames": (lambda f: f.join(f, on="page", how="left"), {"page"}),
    "of many frames": (lambda f: pl.concat([f, f]), None),
    "nothing": (lambda f: f.select(pl.len()), set()),
    "all": (lambda f: f.select(pl.all()), None),
    "by type": (lambda f: f.select(pl.col(pl.String)), None),
    "by pattern": (lambda f: f.select(pl.col("^in.*$")), None),
    "by place": (lambda f: f.select(pl.nth(1)), None),
    "all but one": (lambda f: f.select(pl.exclude("page")), None),
    "unknown step": (lambda f: f.unique(["age"]), None),
    "sliced": (lambda f: f.select(pl.len()).head(3), None),
}


@pytest.mark.parametrize("name", PLANS)
def test_columns_of_plans(name: str) -> None:
    build, expected = PLANS[name]
    columns = frozenset(visits().collect_schema().names())
    assert columns_used(build(visits()), columns) == (columns if expected is None else expected)


MISSING = (pl.exceptions.ColumnNotFoundError, pl.exceptions.SchemaFieldNotFoundError)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_does_not_need_the_columns_that_it_does_not_use(name: str) -> None:
    """Polars confirms the result: the plan is valid on a frame with only the used columns."""
    build, _ = PLANS[name]
    columns = frozenset(visits().collect_schema().names())
    used = columns_used(build(visits()), columns)
    build(visits().drop(columns - used)).collect_schema()
    for column in PLANS[name][1] or ():
        with pytest.raises(MISSING):
            build(visits().drop(column)).collect_schema()


# `where` and `time` of the gate


def test_the_selection_is_applied() -> None:
    point = point_with(USER % "{epsilon: 40000}")
    selective_gate = make_gate(
        point,
        where=[{"country": "CH", "age": {"from": 0, "to": 49}}, {"country": ["AT"]}],
        time={"from": "2026-10-01", "to": "2026-10-15"},
    )
    context = GatedContext(
        selective_gate, visits(), units=ONE, measure=dp.max_divergence(), day="day"
    )
    ((count,),) = (
        context.query(epsilon=10_000.0).select(dp.len(signed=True)).release().collect().rows()
    )
    rows = [r for r in visits().collect().rows(named=True) if r["day"] <= date(2026, 10, 15)]
    assert count == sum(r["country"] == "AT" or r["age"] <= 49 for r in rows)


def test_a_selection_needs_a_frame_and_a_day() -> None:
    point = point_with(USER % "{epsilon: 1}")
    where = make_gate(point, where={"country": "CH"})
    time = make_gate(point, time={"from": "2026-10-01"})
    arguments: dict[str, Any] = {"units": ONE, "measure": dp.max_divergence()}
    with pytest.raises(OperationRejected, match="only a frame"):
        GatedContext(where, [1.0], **arguments)
    with pytest.raises(OperationRejected, match="`day`"):
        GatedContext(time, visits(), **arguments)


# Attempts to bypass the gate


def test_the_queryable_is_not_accessible() -> None:
    context = make_context(point_with(USER % "{epsilon: 1}"))
    with pytest.raises(OperationRejected, match="would bypass the policy"):
        _ = context.queryable


def test_a_bare_measurement_counts_as_using_every_column() -> None:
    point = point_with(USER % "{epsilon: 1}")
    context = make_context(point, visits().select("page", "income"))
    query = context.query(epsilon=0.1, attributes=["page"]).select(dp.len(signed=True))
    measurement = query.resolve()
    query.release()
    target = object.__getattribute__(query, "_query")._context
    with pytest.raises(OperationRejected, match="uses `income`"):
        target(measurement)
    context(measurement)  # the gate declares both columns


def test_an_answer_cannot_be_computed_twice() -> None:
    point = point_with(USER % "{epsilon: 1}")
    answer = make_context(point).query(epsilon=0.1).select(dp.len(signed=True)).release()
    assert answer.collect().equals(answer.collect())


def test_an_odometer_is_refused() -> None:
    context = make_context(point_with(USER % "{epsilon: 1}"), [1.0], domain=NUMBERS)
    odometer = dp.c.make_fully_adaptive_composition(
        NUMBERS, dp.symmetric_distance(), dp.max_divergence()
    )
    with pytest.raises(OperationRejected, match="odometer"):
        context.query(epsilon=0.1)._context(odometer)


def test_invariants_are_refused() -> None:
    margin = Margin(by=["page"], invariant="keys")
    with pytest.raises(OperationRejected, match="invariant"):
        make_context(point_with(USER % "{epsilon: 1}"), margins=[margin])


def test_a_domain_could_hide_an_invariant() -> None:
    data = visits()
    with pytest.raises(OperationRejected, match="margins"):
        make_context(point_with(USER % "{epsilon: 1}"), data, domain=dp.lazyframe_domain([]))


def test_the_metric_determines_the_relation() -> None:
    point = point_with(USER % "{epsilon: 1}")
    with pytest.raises(OperationRejected, match="are `add-remove`, not `change`"):
        GatedContext(make_gate(point, relation="change"), visits(), units=ONE, measure=RHO)
    mixed = {**ONE, "user-day": dp.unit_of(changes=1)}
    with pytest.raises(OperationRejected, match="same metric"):
        make_context(point, units=mixed)
    with pytest.raises(OperationRejected, match="at least one unit"):
        make_context(point, units={})
    with pytest.raises(ReleaseRejected):
        make_context(point, units={"house": ONE["user"]}).query(epsilon=0.1).select(
            dp.len(signed=True)
        ).release()


def test_losses_that_cannot_be_stated_are_refused() -> None:
    point = point_with(USER % "{epsilon: 1}")
    context = make_context(point, measure=dp.approximate(RHO))
    query = context.query(rho=0.1, delta=1e-7).select(dp.len(signed=True))
    with pytest.raises(OperationRejected, match="cannot be stated"):
        query.release()
    assert not point.entries


def test_the_example_of_the_page() -> None:
    point = point_with(USER % "{rho: 1}", DAY % "{rho: 0.1}")
    variables = run_example("opendp", point=point, visits=visits())
    assert variables["counts"].height == 3
    assert balance(point, "days", "rho") == pytest.approx(0.015)
    assert balance(point, "users", "rho") == pytest.approx(0.735)
