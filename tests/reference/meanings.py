"""Naive model of recorded meanings: every release keeps what it stated under its own policy.

The model stores each meaning as plain values when a release is recorded. It computes the charge of
a rule from the stored meanings and the definitions of the current policy, point by point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import date

from dpolicy.privacy.certificates import RHO
from dpolicy.privacy.mechanisms.registry import parse_mechanism
from dpolicy.privacy.units.group_privacy import GroupContext, cost_by_unit
from dpolicy.privacy.units.privacy_units import (
    NeighbouringRelation,
    PrivacyUnit,
    parse_period,
    touched_days,
)

#: The days of data that releases can read; None is static data.
DAYS: tuple[date | None, ...] = (None, date(2026, 1, 5), date(2026, 1, 20))
#: Days at which the model computes charges: those of `DAYS`, and one that no release names.
POINTS = (date(2026, 1, 5), date(2026, 1, 20), date(2026, 3, 9))


@dataclass(frozen=True)
class Definitions:
    """Definitions of a policy: units by period, relation, one label and one partition."""

    units: tuple[tuple[str, str | None], ...]
    relation: str
    stages: tuple[str, ...]
    default: str | None
    countries: tuple[str, ...]
    stable: bool

    def unit(self, name: str) -> PrivacyUnit:
        """Return a unit of the policy."""
        period = dict(self.units)[name]
        return PrivacyUnit(
            name,
            "user",
            None if period is None else parse_period(period),
            NeighbouringRelation(self.relation),
        )

    def text(self) -> str:
        """Return the policy file."""
        units = ", ".join(
            f"{name}: {{}}" if period is None else f"{name}: {{period: {period}}}"
            for name, period in self.units
        )
        stages = ", ".join(self.stages)
        default = "" if self.default is None else f", default: {self.default}"
        rules = [("every user", "always", "user", 90_000)]
        rules += [(f"stage {s}", f"'labels.stage == \"{s}\"'", "user", 60_000) for s in self.stages]
        if "user-span" in dict(self.units):
            rules.append(("every span", "always", "user-span", 30_000))
        lines = "\n".join(
            f"  - {{name: {name}, kind: custom, when: {when}, unit: {unit}, "
            f"budget: {{rho: {budget}}}}}"
            for name, when, unit, budget in rules
        )
        return f"""
dpolicy: 1
accounting: {{delta: 1e-7, relation: {self.relation}}}
units: {{{units}}}
schema:
  labels: {{stage: {{values: [{stages}]{default}}}}}
  partitions:
    country: {{values: [{", ".join(self.countries)}], of: user, stable: {str(self.stable).lower()}}}
policies:
{lines}
"""


@dataclass(frozen=True)
class Meaning:
    """Meaning of one recorded release."""

    release: str
    unit: PrivacyUnit
    relation: str
    stage: str | None
    countries: tuple[str, ...] | None
    stable: bool
    day: date | None


@dataclass
class MeaningModel:
    """All recorded meanings, and the current definitions."""

    now: Definitions
    meanings: list[Meaning] = field(default_factory=list)

    def record(
        self,
        release: str,
        unit: str | None,
        relation: str | None,
        stage: str | None,
        countries: tuple[str, ...] | None,
        day: date | None,
    ) -> None:
        """Record a release; the current definitions complete what it leaves out."""
        name = unit if unit is not None else self.now.units[0][0]
        self.meanings.append(
            Meaning(
                release,
                self.now.unit(name),
                relation or self.now.relation,
                stage or self.now.default,
                countries,
                self.now.stable,
                day,
            )
        )

    def redefined(self, new: Definitions) -> set[tuple[str, str]]:
        """Return the pairs of a redefined name and a release that used it."""
        units = dict(new.units)
        pairs = set()
        for meaning in self.meanings:
            period = None if meaning.unit.period is None else str(meaning.unit.period)
            if meaning.unit.name in units and units[meaning.unit.name] != period:
                pairs.add((f"unit {meaning.unit.name}", meaning.release))
            if meaning.stage is not None and meaning.stage not in new.stages:
                pairs.add(("label stage", meaning.release))
            if not self._has_same_country(meaning, new):
                pairs.add(("partition country", meaning.release))
        return pairs

    def conflicts(self, new: Definitions) -> set[str]:
        """Return the names that a new policy redefines, without those of the active policy."""
        known = set()
        for name, release in self.redefined(self.now):
            same = {
                "label stage": (self.now.stages, self.now.default) == (new.stages, new.default),
                "partition country": (self.now.countries, self.now.stable)
                == (new.countries, new.stable),
            }
            is_same_unit = dict(self.now.units).get(name.removeprefix("unit "), "") == dict(
                new.units
            ).get(name.removeprefix("unit "), "-")
            if same.get(name, is_same_unit):
                known.add((name, release))
        return {name for name, _ in self.redefined(new) - known}

    @staticmethod
    def _has_same_country(meaning: Meaning, new: Definitions) -> bool:
        return meaning.countries is None or (
            (meaning.stable or not new.stable) and set(meaning.countries) <= set(new.countries)
        )

    def charge(self, rule: str, unit: str) -> float:
        """Return the largest ρ of a rule at any point."""
        return max(
            sum(
                self._cost(meaning, unit)
                for meaning in self.meanings
                if self._may_match(meaning, rule)
                and self._touches_country(meaning, country)
                and self._touches_time(meaning, unit, day)
            )
            for country in self.now.countries
            for day in POINTS
        )

    def recorded_loss(self, unit: str) -> float:
        """Return the largest ρ for a unit by the recorded definitions of partitions alone.

        It is a lower bound of every charge to a rule for everything: no policy may charge less.
        """
        countries = {country for meaning in self.meanings for country in meaning.countries or ()}
        return max(
            sum(
                self._cost(meaning, unit)
                for meaning in self.meanings
                if meaning.countries is None or country in meaning.countries
            )
            for country in countries or {""}
        )

    def _may_match(self, meaning: Meaning, rule: str) -> bool:
        """Return whether a release matches a rule, or may: its label has no value of today."""
        if not rule.startswith("stage ") or meaning.stage not in self.now.stages:
            return True
        return rule == f"stage {meaning.stage}"

    def _touches_country(self, meaning: Meaning, country: str) -> bool:
        if not self.now.stable or meaning.countries is None:
            return True
        return not self._has_same_country(meaning, self.now) or country in meaning.countries

    def _touches_time(self, meaning: Meaning, unit: str, day: date) -> bool:
        period = dict(self.now.units)[unit]
        if period is None or meaning.day is None:
            return True
        return _block(period, meaning.day) == _block(period, day)

    def _cost(self, meaning: Meaning, unit: str) -> float:
        mechanism, _ = parse_mechanism({"kind": "gaussian", "sigma": 1})
        assert mechanism is not None
        target = self.now.unit(unit)
        touched = None if meaning.day is None else touched_days((meaning.day, meaning.day))
        stated = PrivacyUnit(
            "stated",
            meaning.unit.entity,
            meaning.unit.period,
            NeighbouringRelation(meaning.relation),
        )
        context = GroupContext((target,), False, touched)
        loss = cost_by_unit(
            mechanism, stated, NeighbouringRelation(meaning.relation), context, (RHO,)
        )[target.name]
        (amount,) = tuple(loss)[:1]
        return math.inf if amount is None else amount / 10**12


def _block(period: str, day: date) -> object:
    match period:
        case "day":
            return day
        case "week":
            return day.isocalendar()[:2]
    return (day.year, day.month)
