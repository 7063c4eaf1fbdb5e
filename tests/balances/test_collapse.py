"""Time collapse (theory 6.3): no balance decreases, and a restart gives the same balances."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dpolicy.ledger.stores.memory import MemoryStore
from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.rules.compiler import CompiledPolicy, compile_policy
from dpolicy.text.yaml_reader import Source

POLICY = """
dpolicy: 1
accounting: {delta: 1e-7, ACCOUNTING}
units: {user: {}, user-day: {period: day}, user-month: {period: month}, user-week: {period: week}}
schema:
  attributes: {views: {}}
  partitions: {country: {values: [AT, CH]}}
policies:
  - {name: day, kind: custom, when: always, unit: user-day, budget: {rho: 1001}}
  - {name: week, kind: custom, when: always, unit: user-week, budget: {rho: 1002}}
  - {name: month, kind: custom, when: always, unit: user-month, budget: {rho: 1003}}
  - {name: all, kind: custom, when: always, unit: user, budget: {rho: 1004}}
"""


def policy(accounting: str) -> CompiledPolicy:
    return compile_policy([Source("p.yaml", POLICY.replace("ACCOUNTING", accounting))])


EXACT = policy("relation: change")
COLLAPSED = policy("relation: change, collapse: {after: 24 months, into: year}")
DAYS = [date(year, month, 15) for year in (2023, 2024, 2026) for month in (1, 2, 12)]


class Clock:
    """A clock that tests set."""

    now = datetime(2024, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def body(number: int, first: date | None, length: int, country: str, rho: int) -> dict[str, Any]:
    mechanism: dict[str, Any] = {
        "mechanism": {"kind": "declared", "rho": Fraction(rho)},
        "unit": "user",
        "where": {"country": [country]},
    }
    if first is not None:
        last = first + timedelta(days=length)
        mechanism["time"] = {"from": first.isoformat(), "to": last.isoformat()}
    return {"release": f"r{number}", "mechanisms": [mechanism]}


RELEASES = st.lists(
    st.tuples(
        st.integers(0, 400),  # days until it is submitted
        st.sampled_from([*DAYS, None]),
        st.sampled_from([0, 0, 1, 40]),
        st.sampled_from(["AT", "CH"]),
        st.integers(1, 3),
        st.booleans(),  # whether it is reserved and voided
    ),
    min_size=1,
    max_size=8,
)


def run(
    compiled: CompiledPolicy, story: list[Any], store: MemoryStore, clock: Clock | None = None
) -> DecisionPoint:
    clock = clock or Clock()
    point = DecisionPoint(store, clock)
    point.apply(compiled)
    for number, (later, first, length, country, rho, voided) in enumerate(story):
        clock.now += timedelta(days=later)
        request = body(number, first, length, country, rho)
        if voided:
            assert point.reserve(request).allowed
            point.void(f"r{number}", "nothing was read")
        else:
            assert point.submit(request).allowed
    return point


def spent(point: DecisionPoint, at: dict[str, str]) -> list[float]:
    return [value for b in point.budgets(at) for value in b.spent.values() if value is not None]


@settings(deadline=None, max_examples=40)
@given(RELEASES)
def test_collapse_never_lowers_a_balance_and_survives_a_restart(story: list[Any]) -> None:
    store, clock = MemoryStore(), Clock()
    exact, together = run(EXACT, story, MemoryStore()), run(COLLAPSED, story, store, clock)
    again = DecisionPoint(MemoryStore(list(store.records_after(0))), clock)
    for day in [*DAYS, date(2023, 5, 1), date(2030, 1, 1)]:
        for country in ("AT", "CH"):
            at = {"country": country, "time": day.isoformat()}
            pairs = zip(spent(exact, at), spent(together, at), strict=True)
            assert all(fine <= coarse for fine, coarse in pairs), at
            assert spent(together, at) == spent(again, at), at


def test_a_collapsed_year_has_the_balance_of_its_fullest_day() -> None:
    days = [(0, date(2023, 1, 15), 0, "AT", 1, False), (0, date(2023, 2, 15), 0, "AT", 2, False)]
    later = [*days, (1000, date(2026, 1, 15), 0, "AT", 1, False)]
    point = run(COLLAPSED, later, MemoryStore())
    for day, rho in (("2023-01-15", 2.0), ("2023-07-01", 2.0), ("2026-01-15", 1.0)):
        spent_by_unit = {
            b.rule.unit: b.spent["rho"] for b in point.budgets({"country": "AT", "time": day})
        }
        assert spent_by_unit["user-day"] == spent_by_unit["user-month"] == rho
        assert spent_by_unit["user"] == 4.0
    # A charge to one day of a collapsed year is a charge to the whole year.
    point.submit(body(9, date(2023, 12, 31), 0, "AT", 3))
    january = {b.rule.unit: b.spent["rho"] for b in point.budgets({"time": "2023-01-15"})}
    assert january["user-day"] == 5.0
    assert january["user-week"] == 1.0  # weeks run across years, so they stay as they are


def test_collapse_reduces_the_number_of_cells() -> None:
    days = [(0, date(2022, 1, 1) + timedelta(days=2 * n), 0, "AT", 1, False) for n in range(60)]
    now = [*days, (1500, date(2026, 1, 15), 0, "AT", 1, False)]
    cells = [
        len(
            run(compiled, now, MemoryStore())
            .read_state(lambda state: state.balances)
            .segments_for(0)
        )
        for compiled in (EXACT, COLLAPSED)
    ]
    assert cells[1] < 10 < 60 < cells[0]
