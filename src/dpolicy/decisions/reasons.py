"""A verdict → reasons that people can read, and what would fit instead.

Counter-offers are found by asking `decide` about the changed release, cheapest change first: more
noise, one attribute left out, one mechanism left out. None of them looks at data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from dpolicy.balances.enforced_policy import EnforcedSection
from dpolicy.decisions.decide import RuleChecks, Verdict
from dpolicy.privacy.budget import budget_to_json
from dpolicy.privacy.loss_arrays import add_saturating
from dpolicy.releases.decision import Reason
from dpolicy.releases.regions import Point

#: An allowed release shows this many of its tightest rules; a denied one all that are broken.
MAX_REASONS = 3


#: Who spent most of a rule, by its number and where it breaks.
Spenders = Callable[[int, Point | None], tuple[str, ...]]


def reasons_for(verdict: Verdict, spenders: Spenders) -> tuple[Reason, ...]:
    """Every broken rule, or the tightest rules of a release that fits."""
    broken = [
        _reason(checks, position, spenders)
        for checks in verdict.checks
        for position in np.argsort(checks.rule_numbers).tolist()
        if not checks.holds[position]
    ]
    return tuple(broken) if broken else tuple(_tightest(verdict))


def _tightest(verdict: Verdict) -> Iterator[Reason]:
    found: list[tuple[float, int, RuleChecks]] = []
    for checks in verdict.checks:
        room = checks.section.bounds_for(checks.rule_numbers).remaining_share(checks.after)
        some = np.lexsort((checks.rule_numbers, room))[:MAX_REASONS].tolist()
        found += [(float(room[position]), position, checks) for position in some]
    for _, position, checks in sorted(found, key=lambda item: item[0])[:MAX_REASONS]:
        yield _reason(checks, position, None)


def _reason(checks: RuleChecks, position: int, spenders: Spenders | None) -> Reason:
    number = int(checks.rule_numbers[position])
    rule = rule_description(checks.section, number)
    before, more = checks.spent[position], checks.cost[position]
    point, place = None, checks.tightest_cells.get(position)
    if place:
        point, before = place.first_block
    rows = np.stack([before, more, add_saturating(before, more)])
    spent, cost, after = checks.section.formatter_for(number).format_all(rows)
    lasting = spenders is not None and not rule["each_release"]
    return Reason(
        **rule,
        spent=spent,
        cost=cost,
        after=after,
        holds=bool(checks.holds[position]),
        spenders=spenders(number, point) if spenders and lasting else (),
        location=checks.section.granularities.location_for_rule(point, number, checks.cutoff)
        if point
        else {},
    )


@lru_cache(maxsize=16_384)
def rule_description(section: EnforcedSection, number: int) -> dict[str, Any]:
    """What a reason says of a rule whatever happens."""
    rule = section.compiled.rules[number]
    return {
        "rule": rule.name,
        "policies": rule.policies,
        "unit": rule.unit,
        "budget": budget_to_json(rule.budget),
        "source": str(rule.base.span),
        "each_release": rule.each_release,
    }
