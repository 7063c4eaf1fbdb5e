"""Tables of spending: by unit, by category, by month, by author and by release.

ε is that of `dpolicy spent`: an accounting value of all releases together, at the place with the
largest loss, rounded up. The guarantee of a rule is its budget (theory 2.2).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from dpolicy.pdp.decision_point import DecisionPoint
from dpolicy.pdp.spending.spending import Spending
from dpolicy.policy.model import PolicySet
from dpolicy.privacy.cost_report import CostReport, compose_reports
from dpolicy.privacy.risk.attacker_risk import attacker_risk
from dpolicy.releases.texts.amount_text import location_text
from dpolicy.reports.document import (
    BELIEF_TITLE,
    RARE_BELIEF_TITLE,
    Cell,
    CellKind,
    DocumentTable,
    TableColumn,
)
from dpolicy.reports.ledger_facts import LedgerFacts
from dpolicy.text.spans import LocatedText, Source, Span

#: Largest number of releases for which the trend is computed: their costs are added one by one.
MAX_RELEASES_IN_TREND = 5_000
#: Largest number of months, authors, releases and attributes in a table.
MAX_MONTHS = 36
MAX_SPENDERS = 10
MAX_ATTRIBUTES = 20

_EPSILON = TableColumn("ε", CellKind.LOSS, "no bound")
_RELEASES = TableColumn("Releases", CellKind.COUNT)


@dataclass(frozen=True, slots=True)
class SpendingAnswers:
    """Answers of `spent` that several tables use: all releases, by unit of the policy."""

    point: DecisionPoint
    facts: LedgerFacts
    by_unit: dict[str, Spending]

    @property
    def main_unit(self) -> str:
        """The first unit without a period, else the first unit."""
        units = self.facts.policy.units
        return next(
            (name for name, unit in units.items() if unit.period is None), next(iter(units))
        )

    @property
    def main(self) -> Spending:
        """All releases, for the main unit."""
        return self.by_unit[self.main_unit]


def ask_spending(point: DecisionPoint, facts: LedgerFacts) -> SpendingAnswers:
    """Ask what all releases spent for each unit of the policy."""
    limit = MAX_RELEASES_IN_TREND + 1
    answers = {unit: point.spent(unit=unit, limit=limit) for unit in facts.policy.units}
    return SpendingAnswers(point, facts, answers)


def unit_table(answers: SpendingAnswers) -> DocumentTable:
    """Return what was spent for each unit, and what an attacker can learn at most."""
    columns = (
        TableColumn("For each", is_short=True),
        TableColumn("Most used at", is_short=True),
        _RELEASES,
        _EPSILON,
        TableColumn("δ", CellKind.DELTA),
        TableColumn(BELIEF_TITLE, CellKind.CHANCE),
        TableColumn(RARE_BELIEF_TITLE, CellKind.CHANCE),
    )
    rows: list[tuple[Cell, ...]] = []
    for unit, spending in answers.by_unit.items():
        risk = attacker_risk(spending.cost, spending.delta)
        place = location_text(spending.location) or "everywhere"
        beliefs = (risk.posterior(0.5), risk.posterior(0.01))
        count, delta = spending.release_count, float(spending.delta)
        rows.append((unit, place, count, spending.epsilon, delta, *beliefs))
    return DocumentTable(columns, tuple(rows))


def category_table(answers: SpendingAnswers) -> DocumentTable:
    """Return what was spent in each category for each unit; by attribute without categories."""
    policies, units = answers.facts.policy.policy_set, list(answers.facts.policy.units)
    groups = dict(_category_members(policies))
    if not groups:
        used = {name for fact in answers.facts.releases for name in fact.attributes}
        groups = {name: (name,) for name in sorted(used)[:MAX_ATTRIBUTES]}
    word = "Category" if policies.categories else "Attribute"
    columns = (
        TableColumn(word),
        TableColumn("Attributes", CellKind.COUNT),
        _RELEASES,
        *(TableColumn(f"ε for each {unit}", CellKind.LOSS, "no bound") for unit in units),
    )
    rows: list[tuple[Cell, ...]] = []
    for name, members in groups.items():
        spent = [_spent_on(answers.point, members, unit) for unit in units]
        count = max((answer.release_count for answer in spent if answer), default=0)
        epsilons = [0.0 if answer is None else answer.epsilon for answer in spent]
        rows.append((name, len(members), count, *epsilons))
    return DocumentTable(columns, tuple(rows), "The policy has no categories.")


def closest_level(policies: PolicySet) -> LocatedText:
    """Return the closest membership level, as a key of the memberships of attributes."""
    span = Span(Source("", ""), 1, 1, 1, 1)
    return LocatedText(policies.membership_levels[0], span)


def _category_members(policies: PolicySet) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the attributes of each category at its closest membership level."""
    level = closest_level(policies)
    for category in policies.categories:
        members = [
            str(name)
            for name, attribute in policies.attributes.items()
            if category in attribute.memberships.get(level, ())
        ]
        yield str(category), tuple(members)


def _spent_on(point: DecisionPoint, attributes: tuple[str, ...], unit: str) -> Spending | None:
    """Return what releases spent that use one of the attributes; None without attributes."""
    if not attributes:
        return None
    names = ", ".join(json.dumps(name) for name in attributes)
    return point.spent(f"attributes.exists(a, a in [{names}])", unit=unit, limit=0)


def trend_table(answers: SpendingAnswers) -> DocumentTable:
    """Return releases and ε of each month, and ε of all releases up to its end."""
    spending, days = answers.main, answers.facts.days
    columns = (
        TableColumn("Month", is_short=True),
        _RELEASES,
        TableColumn("ε of the month", CellKind.LOSS, "no bound"),
        TableColumn("ε of all until then", CellKind.LOSS, "no bound"),
    )
    if spending.release_count > MAX_RELEASES_IN_TREND:
        text = f"More than {MAX_RELEASES_IN_TREND:,} releases: no trend is computed."
        return DocumentTable(columns, (), text)
    months: dict[str, list[CostReport]] = {}
    for share in spending.releases:
        months.setdefault(days[share.name][:7], []).append(share.cost)
    rows: list[tuple[Cell, ...]] = []
    total = compose_reports(())
    for month in sorted(months):
        own = compose_reports((cost, 1) for cost in months[month])
        total = compose_reports(((total, 1), (own, 1))) if rows else own
        epsilons = (own.epsilon(spending.delta), total.epsilon(spending.delta))
        rows.append((month, len(months[month]), *epsilons))
    return DocumentTable(columns, tuple(rows[-MAX_MONTHS:]))


def author_table(answers: SpendingAnswers) -> DocumentTable:
    """Return the authors whose releases spent most, with their share of the largest."""
    columns = (TableColumn("By", is_short=True), _RELEASES, _EPSILON)
    rows = [(a.by or "unknown", a.count, a.epsilon) for a in answers.main.authors[:MAX_SPENDERS]]
    return DocumentTable(columns, tuple(rows))


def release_table(answers: SpendingAnswers) -> DocumentTable:
    """Return the releases that spent most."""
    days, delta = answers.facts.days, answers.main.delta
    columns = (
        TableColumn("Release", is_short=True),
        TableColumn("Date", is_short=True),
        TableColumn("By", is_short=True),
        TableColumn("Attributes"),
        TableColumn("ε alone", CellKind.LOSS, "no bound"),
    )
    facts = {fact.release.id: fact for fact in answers.facts.releases}
    rows: list[tuple[Cell, ...]] = [
        (s.name, days[s.name], s.by, ", ".join(facts[s.name].attributes), s.cost.epsilon(delta))
        for s in answers.main.releases[:MAX_SPENDERS]
    ]
    return DocumentTable(columns, tuple(rows))
