"""Sensitivities of histograms under contribution limits for several units (theory 5).

`contribution_bounding.py` keeps the first records of every unit up to its limit, the finest limit
first. The effect of a change of one unit on a histogram of kept records follows from one fact: if r
records of a group are removed and s are added, the first k of the group lose and gain at most
min(max(r, s), k) records each. With a second, coarser limit, a removed record lets in another
record of the group, on another day. Counts then double for add-remove, and the other days of the
group are read as well (theory 5.4).

Three assumptions are not checked: the order of two records depends on these two alone, all days are
in one time zone, and every kept record adds one to at most one cell.
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

#: First and last day of a range.
Days = tuple[date, date]

#: Number of decimals to which irrational sensitivities are rounded up.
DECIMALS = 9


@dataclass(frozen=True, slots=True)
class ContributionLimit:
    """Maximum number of records of one unit that are kept."""

    unit: PrivacyUnit
    maximum: int


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Kept records that one change can remove and add, and how many of them can be in one cell."""

    removed: int
    added: int
    in_one_cell: int

    @property
    def l1(self) -> Fraction:
        """L1 sensitivity of the histogram."""
        return Fraction(self.removed + self.added)

    @property
    def l2(self) -> Fraction:
        """L2 sensitivity of the histogram, rounded up.

        The removed and the added records are two vectors without negative cells, so the square of
        the length of their difference is at most the sum of the squares of their lengths.
        """
        square = sum(count * min(count, self.in_one_cell) for count in (self.removed, self.added))
        return _sqrt_rounded_up(square)


#: Norm of the sensitivity, by kind of mechanism.
NORMS: Mapping[str, Callable[[Sensitivity], Fraction]] = {
    "gaussian": lambda sensitivity: sensitivity.l2,
    "discrete-gaussian": lambda sensitivity: sensitivity.l2,
    "laplace": lambda sensitivity: sensitivity.l1,
    "discrete-laplace": lambda sensitivity: sensitivity.l1,
}


@dataclass(frozen=True, slots=True)
class Contributions:
    """Nested limits, finest first, on records of the days `first` to `last`; others are dropped.

    `per_cell` also limits the number of records of the finest unit in one cell. `units` are the
    units for which `mechanism_statement` states sensitivities.
    """

    units: tuple[PrivacyUnit, ...]
    limits: tuple[ContributionLimit, ...]
    first: date
    last: date
    per_cell: int | None = None

    @property
    def entity(self) -> str:
        """Entity whose contributions are limited."""
        return self.limits[0].unit.entity

    def without_sharing(self) -> Contributions:
        """Replace the limits by one fixed quota for each block of the finest unit.

        The quota implies all limits. A record of one day then never replaces a record of another,
        so a histogram of a day reads that day only. In return, people with records on few days keep
        fewer of them. Raise `OperationRejected` if the quota would be 0.
        """
        finest, days = self.limits[0], touched_days((self.first, self.last))
        quotas = [
            limit.maximum // _block_count(finest.unit.period, limit.unit.period, days)
            for limit in self.limits
        ]
        if min(quotas) == 0:
            limit = self.limits[quotas.index(0)]
            raise OperationRejected(
                f"{limit.maximum} records of a `{limit.unit.name}` leave none for each of its "
                f"`{finest.unit.name}`; help: raise the limit, or do not use fixed quotas"
            )
        return replace(self, limits=(ContributionLimit(finest.unit, min(quotas)),))

    def days_read(self, about: Days | None = None) -> Days:
        """Return the days that influence a histogram of the days `about` (theory 5.4)."""
        first, last = self._histogram_days(about)
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
        """Return how much one change of a unit changes a histogram of the days `about`."""
        if unit.entity != self.entity or relation is NeighbouringRelation.REPLACE:
            raise OperationRejected(
                f"limits on `{self.entity}` do not bound `{unit.name}` under `{relation}`; "
                "group privacy may bound it"
            )
        histogram_days = touched_days(self._histogram_days(about))
        read_days = touched_days(self.days_read(about))
        coarsest = self.limits[-1]
        groups = _block_count(coarsest.unit.period, unit.period, read_days)
        whole = add_remove_size(coarsest.unit.period, unit.period, read_days) == groups
        # If the unit covers only part of a group, kept records outside the unit change as well,
        # somewhere on the days of the histogram.
        reached = unit.period if whole else None
        count = min(self._max_kept(unit.period, read_days), self._max_kept(reached, histogram_days))
        added = count
        if relation is NeighbouringRelation.ADD_REMOVE:
            # Only a group that the unit covers in part lets in other records.
            added = 0 if whole else min(count, coarsest.maximum * min(groups, 2))
        in_one_cell = count
        if self.per_cell is not None:
            blocks = _block_count(self.limits[0].unit.period, reached, histogram_days)
            in_one_cell = self.per_cell * blocks
        return Sensitivity(count, added, in_one_cell)

    def mechanism_statement(
        self,
        mechanism: Mapping[str, Any],
        relation: NeighbouringRelation | None = None,
        about: Days | None = None,
    ) -> dict[str, Any]:
        """Return the fields of a release for noise on a histogram of kept records.

        The fields state the sensitivity for every unit, and the days that are read. They do not
        state `additive`, because parts of the entity share the limits.
        """
        norm = NORMS.get(str(mechanism.get("kind")))
        if norm is None or "sensitivity" in mechanism:
            kinds = ", ".join(NORMS)
            raise OperationRejected(
                f"`mechanism` must be the noise of one of {kinds}, without its sensitivity"
            )
        finest = self.limits[0].unit
        stated_relation = relation or finest.relation
        sensitivities = {
            unit.name: norm(self.sensitivity(unit, stated_relation, about))
            for unit in (finest, *self.units)
            if unit.entity == self.entity
        }
        finest_sensitivity = sensitivities.pop(finest.name)
        first, last = self.days_read(about)
        return {
            "mechanism": {**mechanism, "sensitivity": finest_sensitivity},
            "unit": finest.name,
            "relation": str(stated_relation),
            "also": {name: {"sensitivity": value} for name, value in sensitivities.items()},
            "time": {"from": first, "to": last},
        }

    def _histogram_days(self, about: Days | None) -> Days:
        first, last = about or (self.first, self.last)
        if not self.first <= first <= last <= self.last:
            raise OperationRejected(
                f"the range `{first}` to `{last}` is not within `{self.first}` to `{self.last}`"
            )
        return first, last

    def _max_kept(self, period: Period | None, days: TouchedDays) -> int:
        """Return the maximum number of kept records of one block of a period on these days."""
        return min(
            limit.maximum * _block_count(limit.unit.period, period, days) for limit in self.limits
        )


def contributions_from_limits(
    units: Mapping[str, PrivacyUnit],
    limits: Mapping[str, int],
    days: Days,
    per_cell: int | None = None,
) -> Contributions:
    """Create limits from names of the policy's units: `{"user-day": 10, "user-month": 70}`.

    List the finest unit first. Raise `OperationRejected` for limits that are not nested: a week can
    lie in two months, so records of one month could then replace records of another.
    """
    for name, maximum in {**limits, "one cell": 1 if per_cell is None else per_cell}.items():
        if not isinstance(maximum, int) or maximum < 1:
            raise OperationRejected(
                f"the limit of `{name}` must be an integer of at least 1, got `{maximum}`"
            )
    if not limits:
        raise OperationRejected("give at least one limit")
    for name in limits:
        if name not in units:
            raise OperationRejected(f"there is no unit `{name}`")
    nested = tuple(ContributionLimit(units[name], maximum) for name, maximum in limits.items())
    _check_nested(nested)
    touched_days(days)  # Raises `InvalidValue` if the range is empty or out of bounds.
    return Contributions(tuple(units.values()), nested, *days, per_cell=per_cell)


def _check_nested(limits: tuple[ContributionLimit, ...]) -> None:
    for limit in limits:
        if limit.unit.period is not None and is_window(limit.unit.period):
            raise OperationRejected(
                f"`{limit.unit.name}` does not split time into blocks; help: limit another unit"
            )
    for fine, coarse in pairwise(limits):
        is_nested = period_within(fine.unit.period, coarse.unit.period)
        if fine.unit.entity != coarse.unit.entity or not is_nested:
            raise OperationRejected(
                f"a `{fine.unit.name}` does not lie in one `{coarse.unit.name}`"
            )


def _block_count(src: Period | None, dst: Period | None, days: TouchedDays) -> int:
    """Return the maximum number of blocks of `src` in one block of `dst` on these days."""
    size = group_size(src, dst, days)
    if size is None:
        raise InvariantBroken("a finite range of days must have a bounded number of blocks")
    return size


def _sqrt_rounded_up(square: int) -> Fraction:
    scale: int = 10**DECIMALS
    root = isqrt(square * scale**2)
    return Fraction(root + (root * root < square * scale**2), scale)
