"""Group privacy: closure, counter-examples, and the Wikimedia numbers (T4, theory 0.1)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from fractions import Fraction
from functools import reduce
from itertools import product

import pytest

from dpolicy.errors import InvalidValue
from dpolicy.privacy.certificates import MU_SQUARED, PURE, QUANTA_PER_UNIT, RHO, renyi
from dpolicy.privacy.cost import cost
from dpolicy.privacy.loss import Loss, add_losses, amount_in, is_at_most, unbounded_loss
from dpolicy.privacy.mechanisms.cost_rules import CostRules
from dpolicy.privacy.mechanisms.declared import DeclaredPure, DeclaredZcdp
from dpolicy.privacy.mechanisms.gaussian import (
    DiscreteGaussian,
    DpSgd,
    Gaussian,
    Pate,
    TreeAggregation,
)
from dpolicy.privacy.mechanisms.laplace import Laplace
from dpolicy.privacy.mechanisms.mechanism import Mechanism
from dpolicy.privacy.mechanisms.randomized_response import RandomizedResponse
from dpolicy.privacy.units.calendar import DAY, MONTH, QUARTER, WEEK, YEAR, sliding
from dpolicy.privacy.units.group_privacy import GroupContext, cost_by_unit, steps_from
from dpolicy.privacy.units.privacy_units import (
    NeighbouringRelation,
    PrivacyUnit,
    TouchedDays,
    period_within,
    touched_days,
)

AR, CH, RP = (
    NeighbouringRelation.ADD_REMOVE,
    NeighbouringRelation.CHANGE,
    NeighbouringRelation.REPLACE,
)
CERTIFICATES = (PURE, RHO, MU_SQUARED, renyi(2), renyi(8))
PERIODS = {"user": None, "user-month": MONTH, "user-week": WEEK, "user-day": DAY}


def units(relation: NeighbouringRelation, entity: str = "user") -> tuple[PrivacyUnit, ...]:
    return tuple(PrivacyUnit(name, entity, period, relation) for name, period in PERIODS.items())


def unit_named(name: str, relation: NeighbouringRelation) -> PrivacyUnit:
    return next(unit for unit in units(relation) if unit.name == name)


def rho_in(loss: Loss) -> Fraction | None:
    quanta = amount_in(loss, RHO)
    return None if quanta is None else Fraction(quanta, QUANTA_PER_UNIT)


def costs(
    m: Mechanism,
    stated: str,
    relation: NeighbouringRelation,
    days: TouchedDays | None = None,
    *,
    additive: bool = False,
    restatements: Mapping[str, Mechanism] | None = None,
) -> dict[str, Loss]:
    return cost_by_unit(
        m,
        unit_named(stated, relation),
        relation,
        GroupContext(units(relation), additive, days),
        CERTIFICATES,
        restatements,
    )


def one_day(day: date) -> TouchedDays:
    return touched_days((day, day))


def test_wikimedia_daily_releases_compose() -> None:
    """31 daily releases of ρ = 0.015: 31ρ for a month, not 961ρ (theory 4.3)."""
    m = DeclaredZcdp(Fraction("0.015"))
    start = date(2026, 10, 1)
    daily_costs = [costs(m, "user-day", AR, one_day(start + timedelta(days=n))) for n in range(31)]
    for name in ("user-month", "user"):
        spent = reduce(add_losses, [daily[name] for daily in daily_costs])
        assert rho_in(spent) == Fraction("0.465")
    assert rho_in(daily_costs[0]["user-day"]) == Fraction("0.015")


def test_wikimedia_static_statement_needs_group_privacy() -> None:
    by_unit = costs(DeclaredZcdp(Fraction("0.015")), "user-day", AR)
    assert rho_in(by_unit["user-month"]) == Fraction("14.415")
    assert rho_in(by_unit["user-week"]) == Fraction("0.735")
    assert rho_in(by_unit["user"]) is None


def test_a_restated_sensitivity_for_the_month() -> None:
    """Theory 5.2: 70 a month instead of 10 a day is 49 times the ρ, not 961 times."""
    day, month = Gaussian(Fraction("57.8"), Fraction(10)), Gaussian(Fraction("57.8"), Fraction(70))
    by_unit = costs(day, "user-day", AR, restatements={"user-month": month})
    rho = rho_in(cost(day, 1, AR, CERTIFICATES))
    assert rho is not None
    assert rho_in(by_unit["user-month"]) == rho_in(cost(month, 1, AR, CERTIFICATES))
    assert rho_in(by_unit["user-day"]) == rho
    assert costs(day, "user-day", AR)["user-month"] == cost(day, 31, AR, CERTIFICATES)


def test_n1_a_user_guarantee_is_no_month_guarantee_under_add_remove() -> None:
    """g = ±1 by the parity of a user's last active month: 1 for a user, 2 for a month of one."""

    def g(months: frozenset[int]) -> int:
        return 0 if not months else 1 if max(months) % 2 == 0 else -1

    users = [frozenset(n for n in range(4) if bits >> n & 1) for bits in range(16)]
    whole = max(abs(g(u)) for u in users)
    part = max(abs(g(u) - g(u - {n})) for u in users for n in range(4))
    assert (whole, part) == (1, 2)
    stated = Laplace(Fraction(1))
    assert amount_in(costs(stated, "user", AR)["user-month"], PURE) == part * QUANTA_PER_UNIT
    additive = costs(stated, "user", AR, additive=True)
    assert amount_in(additive["user-month"], PURE) == QUANTA_PER_UNIT
    assert amount_in(costs(stated, "user", CH)["user-month"], PURE) == QUANTA_PER_UNIT


def test_a_month_cuts_weeks_so_six_week_steps_are_not_enough() -> None:
    """g = ±1 by the parity of a week's active days: removing July 2000 moves Σg by 8."""
    july = [date(2000, 7, 1) + timedelta(days=n) for n in range(31)]

    def g(days: set[date]) -> int:
        return 0 if not days else 1 if len(days) % 2 == 0 else -1

    change = 0
    for week in {d - timedelta(days=d.weekday()) for d in july}:
        days = [week + timedelta(days=n) for n in range(7)]
        subsets = [{d for n, d in enumerate(days) if bits >> n & 1} for bits in range(128)]
        change += max(abs(g(s) - g(s - set(july))) for s in subsets)
    assert change == 8
    by_unit = costs(Laplace(Fraction(1)), "user-week", AR)
    assert amount_in(by_unit["user-month"], PURE) == 8 * QUANTA_PER_UNIT
    assert amount_in(costs(Laplace(Fraction(1)), "user-week", CH)["user-month"], PURE) == (
        6 * QUANTA_PER_UNIT
    )


def test_relations_of_one_unit() -> None:
    m = Gaussian(Fraction(10))
    mixed = (
        PrivacyUnit("a", "user", None, AR),
        PrivacyUnit("c", "user", None, CH),
        PrivacyUnit("r", "user", None, RP),
    )
    by_unit = cost_by_unit(m, mixed[0], AR, GroupContext(mixed), CERTIFICATES)
    assert by_unit["a"] == cost(m, 1, AR, CERTIFICATES)
    assert by_unit["c"] == by_unit["r"] == cost(m, 2, AR, CERTIFICATES)
    changed = cost_by_unit(m, mixed[1], CH, GroupContext(mixed), CERTIFICATES)
    assert changed["a"] == changed["c"] == cost(m, 1, CH, CERTIFICATES)
    replaced = cost_by_unit(m, mixed[2], RP, GroupContext(mixed), CERTIFICATES)
    assert replaced["a"] == unbounded_loss(CERTIFICATES)  # nothing follows from replacement


def test_underived_costs_are_infinite() -> None:
    by_unit = costs(Gaussian(Fraction(10)), "user-day", AR)
    assert by_unit["user"] == unbounded_loss(CERTIFICATES)
    stranger = PrivacyUnit("device", "device", None, AR)
    by_unit = cost_by_unit(
        Gaussian(Fraction(10)), stranger, AR, GroupContext(units(AR)), CERTIFICATES
    )
    assert set(by_unit) == set(PERIODS)
    assert all(loss == unbounded_loss(CERTIFICATES) for loss in by_unit.values())


def test_entities_that_cover_others() -> None:
    def covers(larger: str, smaller: str) -> bool:
        return (larger, smaller) == ("household", "user")

    m = Gaussian(Fraction(10))
    for relation, steps in ((CH, 1), (AR, 2)):
        home = PrivacyUnit("household", "household", None, relation)
        all_units = (home, *units(relation))
        by_unit = cost_by_unit(
            m, home, relation, GroupContext(all_units, covers=covers), CERTIFICATES
        )
        assert by_unit["user"] == cost(m, steps, relation, CERTIFICATES)
        assert by_unit["user-week"] == cost(m, steps, relation, CERTIFICATES)
        user = next(unit for unit in all_units if unit.name == "user")
        up = cost_by_unit(m, user, relation, GroupContext(all_units, covers=covers), CERTIFICATES)
        assert up["household"] == unbounded_loss(CERTIFICATES)  # its size is unknown
        assert up["user"] == cost(m, 1, relation, CERTIFICATES)


def test_sampling_survives_groups_but_not_change() -> None:
    m = DpSgd(Fraction(1), 100, sampling_rate=Fraction(1, 1000))
    plain = DpSgd(Fraction(1), 100)
    assert costs(m, "user", AR)["user"] != cost(plain, 1, AR, CERTIFICATES)
    assert costs(m, "user", CH)["user"] == cost(plain, 1, CH, CERTIFICATES)


def test_p7_incoherent_statements_are_repaired() -> None:
    """A user that costs less than one of its months bounds the month (theory 1.5, P7)."""
    month, user = DeclaredZcdp(Fraction("14.4")), DeclaredZcdp(Fraction("0.3"))
    by_unit = costs(month, "user-month", CH, restatements={"user": user})
    assert rho_in(by_unit["user-month"]) == rho_in(by_unit["user"]) == Fraction("0.3")


def test_restating_what_is_derived_changes_nothing() -> None:
    m = Laplace(Fraction(10))
    plain = costs(m, "user-day", CH)
    restated = costs(
        m, "user-day", CH, restatements={"user-month": Laplace(Fraction(10), Fraction(31))}
    )
    assert plain == restated


def test_bounds_with_different_delta_sides_are_not_mixed() -> None:
    small = DeclaredPure(Fraction(2), Fraction(1, 10**10))
    large = DeclaredPure(Fraction(1), Fraction(1, 10**9))
    by_unit = costs(small, "user-day", CH, restatements={"user": large})
    day = by_unit["user-day"]
    assert (amount_in(day, PURE), day.delta) == (2 * QUANTA_PER_UNIT, Fraction(1, 10**10))
    # The user's own statement is (1, 1e-9); it is raised so that no larger unit costs less.
    user = by_unit["user"]
    assert (amount_in(user, PURE), user.delta) == (2 * QUANTA_PER_UNIT, Fraction(1, 10**9))
    assert is_at_most(day, user)


def test_unknown_units_are_rejected() -> None:
    with pytest.raises(InvalidValue, match="M018"):
        costs(Gaussian(Fraction(1)), "user", AR, restatements={"usr": Gaussian(Fraction(2))})


MECHANISMS: list[Mechanism] = [
    Gaussian(Fraction(30)),
    Laplace(Fraction(300)),
    DeclaredPure(Fraction(1, 1000), Fraction(1, 10**12)),
    DpSgd(Fraction(4), 50, sampling_rate=Fraction(1, 100)),
    DeclaredZcdp(Fraction(1, 10**5), Fraction(1, 10**5)),
    RandomizedResponse(Fraction(501, 1000)),
    TreeAggregation(Fraction(50), 100, 5),
    DiscreteGaussian(Fraction(5), sampling_rate=Fraction(1, 50)),
]


def random_days(rng: random.Random) -> TouchedDays | None:
    first = date(2026, 1, 1) + timedelta(days=rng.randrange(400))
    last = first + timedelta(days=rng.choice([0, 0, 3, 20, 100]))
    return rng.choice([None, touched_days((first, last)), touched_days((first, None))])


@pytest.mark.parametrize("rules", CostRules)
@pytest.mark.parametrize("seed", range(12))
def test_closure_is_a_fixed_point(seed: int, rules: CostRules) -> None:
    """T4: no path through a third unit is shorter, for every setting of the closure."""
    rng = random.Random(seed)
    all_units = tuple(
        PrivacyUnit(f"{relation}-{period}", "user", period, relation)
        for relation, period in product((AR, CH), (None, DAY, WEEK, MONTH, YEAR, sliding(30)))
    )
    context = GroupContext(all_units, rng.random() < 0.5, random_days(rng), rules=rules)
    rows = [steps_from(context, n, unit.relation) for n, unit in enumerate(all_units)]
    for a, b, c in product(range(len(all_units)), repeat=3):
        first, second, direct = rows[a][b], rows[b][c], rows[a][c]
        if first is not None and second is not None:
            assert direct is not None and direct <= first * second
    assert all(rows[n][n] == 1 for n in range(len(all_units)))


@pytest.mark.parametrize("rules", CostRules)
@pytest.mark.parametrize("seed", range(30))
def test_costs_grow_with_the_unit(seed: int, rules: CostRules) -> None:
    """T4: under `change`, and for additive mechanisms, a smaller unit never costs more."""
    rng = random.Random(seed)
    relation = rng.choice([AR, CH])
    periods = {**PERIODS, "user-quarter": QUARTER, "user-30": sliding(30)}
    all_units = tuple(
        PrivacyUnit(name, "user", period, relation) for name, period in periods.items()
    )
    stated = rng.choice(all_units)
    restatements = {
        unit.name: rng.choice(MECHANISMS) for unit in rng.sample(all_units, rng.randint(0, 3))
    }
    by_unit = cost_by_unit(
        rng.choice(MECHANISMS),
        stated,
        relation,
        GroupContext(all_units, relation is AR, random_days(rng), rules=rules),
        CERTIFICATES,
        restatements,
    )
    for small, large in product(all_units, repeat=2):
        if period_within(small.period, large.period):
            assert is_at_most(by_unit[small.name], by_unit[large.name]), (small, large)


@pytest.mark.parametrize("m", MECHANISMS, ids=lambda m: type(m).__name__)
def test_a_smaller_statement_gives_smaller_costs(m: Mechanism) -> None:
    for relation in (AR, CH):
        two = replace(m, count=2)
        less, more = costs(m, "user-day", relation), costs(two, "user-day", relation)
        assert all(is_at_most(less[name], more[name]) for name in PERIODS)


ORDERS = (renyi(2), renyi(4), renyi(8))


def user_and_day_losses(
    m: Mechanism, restatement: Mechanism | None = None, *, additive: bool = False
) -> tuple[list[float], list[float]]:
    """Return the losses for a user and for a day of a user, by order, of a statement for users."""
    user, day = unit_named("user", AR), unit_named("user-day", AR)
    restatements = {"user-day": restatement} if restatement else {}
    context = GroupContext((user, day), additive)
    by_unit = cost_by_unit(m, user, AR, context, ORDERS, restatements)
    by_user, by_day = (
        [amount / QUANTA_PER_UNIT for amount in by_unit[unit.name].amounts] for unit in (user, day)
    )
    return by_user, by_day


def test_user_sampling_does_not_amplify_a_restatement_for_days() -> None:
    """P = .99 N(0) + .01 N(1) against Q = .99 N(0) + .01 N(½): exact by quadrature."""
    rate = Fraction(1, 100)
    sampled = Gaussian(Fraction(1), sampling_rate=rate)
    restated = Gaussian(Fraction(1), Fraction(1, 2), sampling_rate=rate)
    exact = (6.873e-5, 1.455e-4, 3.463e-4)
    _, by_day = user_and_day_losses(sampled, restated)
    assert all(loss >= true for loss, true in zip(by_day, exact, strict=True))


def test_user_sampling_does_not_amplify_a_part_of_an_additive_mechanism() -> None:
    """Two days with v = (1, 0) and (−½, √3/2): every subset sum has norm at most 1."""
    sampled = Gaussian(Fraction(1), sampling_rate=Fraction(1, 100))
    by_user, by_day = user_and_day_losses(sampled, additive=True)
    assert by_day[0] >= 2.0507e-4 and by_day[1] >= 4.1388e-4
    assert all(small <= large for small, large in zip(by_day, by_user, strict=True))


def test_one_sample_of_teachers_serves_all_queries() -> None:
    all_queries = Pate(Fraction(40), 1000, sampling_rate=Fraction(1, 100))
    one_query = Gaussian(Fraction(40))
    (sampled, *_), _ = user_and_day_losses(all_queries)
    (unsampled, *_), _ = user_and_day_losses(one_query)
    assert sampled > 1000 * unsampled / 10**4
