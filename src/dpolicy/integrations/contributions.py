"""Limits on what one person contributes, for several units at once → sensitivities (theory 5).

The transformation (`frames.py`) keeps the first so many records of every unit, the finest limit
first. What a change of one unit then does to a histogram of kept records follows from one fact: if
r records of a group are taken out and s are put in, keeping the first k of the group takes out and
puts in at most min(max(r, s), k) records each. With a second limit above, a record that is taken
out lets another of the group in, of another day: counts double for add-remove, and the other days
of the group are read (theory 5.4).

Assumed, not checked: that the order of two records depends on these two alone, that days are of one
time zone, and that every kept record adds one to at most one cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from itertools import pairwise
from math import isqrt
from typing import Any

from dpolicy.errors import InvariantBroken, OperationRejected
from dpolicy.privacy.units.calendar import Period, block_index, block_start, is_window
from dpolicy.privacy.units.privacy_units import (
    NeighbouringRelation,
    PrivacyUnit,
    TouchedDays,
    add_remove_size,
    group_size,
    period_within,
    touched_days,
)

#: The first and the last of some days.
Days = tuple[date, date]

#: Irrational sensitivities are rounded up to so many decimals.
DECIMALS = 9


@dataclass(frozen=True, slots=True)
class ContributionLimit:
    """The most records of one unit that are kept."""

    unit: PrivacyUnit
    most: int


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How many kept records one change can take out and put in, and how many of one cell."""

    removed: int
    added: int
    of_one_cell: int

    @property
    def l1(self) -> Fraction:
        """The most that a histogram changes in the sum of its cells."""
        return Fraction(self.removed + self.added)

    @property
    def l2(self) -> Fraction:
        """The same as a Euclidean length, rounded up.

        What is taken out and what is put in have no negative cell, so their lengths add squared.
        """
        square = sum(count * min(count, self.of_one_cell) for count in (self.removed, self.added))
        return _root(square)


#: Kinds of mechanisms, and the sensitivity that each is stated with.
NORMS: Mapping[str, Callable[[Sensitivity], Fraction]] = {
    "gaussian": lambda sensitivity: sensitivity.l2,
    "discrete-gaussian": lambda sensitivity: sensitivity.l2,
    "laplace": lambda sensitivity: sensitivity.l1,
    "discrete-laplace": lambda sensitivity: sensitivity.l1,
}


@dataclass(frozen=True, slots=True)
class Contributions:
    """Nested limits, finest first, on the records of the days `first` to `last`; others are left.

    `per_cell` further limits how many records of the finest unit fall into one cell. `units` are
    all that sensitivities are wanted for.
    """

    units: tuple[PrivacyUnit, ...]
    limits: tuple[ContributionLimit, ...]
    first: date
    last: date
    per_cell: int | None = None

    @property
    def entity(self) -> str:
        """Whose contributions are limited."""
        return self.limits[0].unit.entity

    def without_sharing(self) -> Contributions:
        """The same limits by one fixed quota for every block of the finest unit.

        No day can then take the place of another, so days stay apart; in exchange, people whose
        records are of few days keep fewer of them.
        """
        finest, every = self.limits[0], touched_days((self.first, self.last))
        shares = [
            limit.most // _size(finest.unit.period, limit.unit.period, every)
            for limit in self.limits
        ]
        if min(shares) == 0:
            tight = self.limits[shares.index(0)]
            raise OperationRejected(
                f"{tight.most} records of a `{tight.unit.name}` leave none for each of its "
                f"`{finest.unit.name}`; help: raise the limit, or share"
            )
        return replace(self, limits=(ContributionLimit(finest.unit, min(shares)),))

    def days_read(self, about: Days | None = None) -> Days:
        """The days that influence a histogram of the days `about` (theory 5.4)."""
        first, last = self._about(about)
        period = self.limits[-1].unit.period
        if period is None:
            return self.first, self.last
        low = block_start(period, block_index(period, first.toordinal()))
        high = block_start(period, block_index(period, last.toordinal()) + 1) - 1
        return (
            max(self.first, date.fromordinal(low)),
            min(self.last, date.fromordinal(high)),
        )

    def sensitivity(
        self, unit: PrivacyUnit, relation: NeighbouringRelation, about: Days | None = None
    ) -> Sensitivity:
        """What one change of a unit does to a histogram of the days `about`."""
        if unit.entity != self.entity or relation is NeighbouringRelation.REPLACE:
            what = f"`{unit.name}` under `{relation}`"
            raise OperationRejected(
                f"limits on `{self.entity}` say nothing of {what}; the closure may"
            )
        shown, read = touched_days(self._about(about)), touched_days(self.days_read(about))
        coarsest = self.limits[-1]
        groups = _size(coarsest.unit.period, unit.period, read)
        whole = add_remove_size(coarsest.unit.period, unit.period, read) == groups
        # What happens outside of the changed unit happens somewhere in the days that are shown.
        reached = unit.period if whole else None
        count = min(self._most(unit.period, read), self._most(reached, shown))
        added = count
        if (
            relation is NeighbouringRelation.ADD_REMOVE
        ):  # only a group that is cut lets other records in
            added = 0 if whole else min(count, coarsest.most * min(groups, 2))
        cell = count
        if self.per_cell is not None:
            cell = self.per_cell * _size(self.limits[0].unit.period, reached, shown)
        return Sensitivity(count, added, cell)

    def mechanism_statement(
        self,
        mechanism: Mapping[str, Any],
        relation: NeighbouringRelation | None = None,
        about: Days | None = None,
    ) -> dict[str, Any]:
        """Noise on a histogram of kept records as a release states it: for every unit, with time.

        It is not stated as additive: that would also speak of parts of the entity that share slots.
        """
        norm = NORMS.get(str(mechanism.get("kind")))
        if norm is None or "sensitivity" in mechanism:
            raise OperationRejected(
                f"give the noise of one of {', '.join(NORMS)}, without its sensitivity"
            )
        finest = self.limits[0].unit
        under = relation or finest.relation
        sizes = {
            unit.name: norm(self.sensitivity(unit, under, about))
            for unit in (finest, *self.units)
            if unit.entity == self.entity
        }
        own = sizes.pop(finest.name)
        first, last = self.days_read(about)
        return {
            "mechanism": {**mechanism, "sensitivity": own},
            "unit": finest.name,
            "relation": str(under),
            "also": {name: {"sensitivity": size} for name, size in sizes.items()},
            "time": {"from": first, "to": last},
        }

    def _about(self, about: Days | None) -> Days:
        first, last = about or (self.first, self.last)
        if not self.first <= first <= last <= self.last:
            raise OperationRejected(
                f"`{first}` to `{last}` is not within `{self.first}` to `{self.last}`"
            )
        return first, last

    def _most(self, period: Period | None, days: TouchedDays) -> int:
        """The most records that are kept of one block of a period, within some days."""
        return min(limit.most * _size(limit.unit.period, period, days) for limit in self.limits)


def contributions_from_limits(
    units: Mapping[str, PrivacyUnit],
    limits: Mapping[str, int],
    days: Days,
    per_cell: int | None = None,
) -> Contributions:
    """Limits by the names of a policy's units, finest first: `{"user-day": 10, "user-month": 70}`.

    Raises `Misused` for limits that are not nested: a week that lies in two months would let
    records of one month take the place of those of another.
    """
    for name, most in {**limits, "one cell": 1 if per_cell is None else per_cell}.items():
        if not isinstance(most, int) or most < 1:
            raise OperationRejected(
                f"the limit of `{name}` must be a whole number from 1, not `{most}`"
            )
    unknown = [name for name in limits if name not in units]
    if unknown or not limits:
        raise OperationRejected(
            f"there is no unit `{unknown[0]}`" if unknown else "give at least one limit"
        )
    found = tuple(ContributionLimit(units[name], most) for name, most in limits.items())
    for limit in found:
        if limit.unit.period is not None and is_window(limit.unit.period):
            raise OperationRejected(
                f"`{limit.unit.name}` does not split time into blocks: limit another unit"
            )
    for fine, coarse in pairwise(found):
        nested = period_within(fine.unit.period, coarse.unit.period)
        if fine.unit.entity != coarse.unit.entity or not nested:
            raise OperationRejected(
                f"a `{fine.unit.name}` does not lie in one `{coarse.unit.name}`"
            )
    touched_days(days)
    return Contributions(tuple(units.values()), found, *days, per_cell=per_cell)


def _size(src: Period | None, dst: Period | None, days: TouchedDays) -> int:
    size = group_size(src, dst, days)
    if size is None:
        raise InvariantBroken("days that end have no bound on their blocks")
    return size


def _root(square: int) -> Fraction:
    """The square root of a whole number, rounded up."""
    scale: int = 10**DECIMALS
    root = isqrt(square * scale**2)
    return Fraction(root + (root * root < square * scale**2), scale)
