"""A verdict → reasons that people can read, and what would fit instead.

Counter-offers are found by asking `decide` about the changed release, cheapest change first: more
noise, one attribute left out, one mechanism left out. None of them looks at data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from dpolicy.decisions.decide import EnforcedSection, RuleChecks, Verdict
from dpolicy.privacy.budget import budget_to_json
from dpolicy.privacy.loss_arrays import add_saturating
from dpolicy.releases.body import Body, with_more_noise, without_attribute, without_mechanism
from dpolicy.releases.decision import Reason
from dpolicy.releases.regions import Point

#: An allowed release shows this many of its tightest rules; a denied one all that are broken.
MAX_REASONS = 3
#: To find what fits is to decide again and again, so only for releases of ordinary size,
MAX_OFFER_MECHANISMS = 64
#: and only so many attributes are left out in turn.
MAX_OFFER_ATTRIBUTES = 32
#: Noise past this factor is no counter-offer.
MAX_OFFER_NOISE_FACTOR = Fraction(1000)


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


def search_counter_offers(
    body: Body, fits: Callable[[Body], bool]
) -> tuple[Mapping[str, Any], ...]:
    """What would fit instead, cheapest first."""
    offers: list[Mapping[str, Any]] = []
    many = len(body["mechanisms"])
    if many > MAX_OFFER_MECHANISMS:
        return ()
    factor = _noise_that_fits(body, fits)
    if factor is not None:
        offers.append({"change": "scale every noise parameter by", "factor": float(factor)})
    attributes = sorted({a for said in body["mechanisms"] for a in said.get("attributes", ())})
    for attribute in attributes[:MAX_OFFER_ATTRIBUTES]:
        if fits(without_attribute(body, attribute)):
            offers.append({"change": "leave out attribute", "attribute": attribute})
    for position, said in enumerate(body["mechanisms"]):
        if many > 1 and fits(without_mechanism(body, position)):
            name = said.get("name", f"mechanism {position + 1}")
            offers.append({"change": "leave out mechanism", "mechanism": name})
    return tuple(offers)


def _noise_that_fits(body: Body, fits: Callable[[Body], bool]) -> Fraction | None:
    """The smallest factor, to a hundredth, with which the release fits."""

    def enough(hundredths: int) -> bool:
        changed = with_more_noise(body, Fraction(hundredths, 100))
        return changed is not None and fits(changed)

    low, high = 100, 101
    while not enough(high):
        low, high = high, 2 * high
        if high > 100 * MAX_OFFER_NOISE_FACTOR:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return Fraction(high, 100)
