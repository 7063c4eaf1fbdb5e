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

from dpolicy.enforcement.check import Checks, Prepared, Verdict
from dpolicy.privacy.budget import as_json
from dpolicy.privacy.rows import added
from dpolicy.releases.body import Body, with_more_noise, without, without_attribute
from dpolicy.releases.decision import Reason
from dpolicy.releases.regions import Point

#: An allowed release shows this many of its tightest rules; a denied one all that are broken.
TIGHTEST = 3
#: To find what fits is to decide again and again, so only for releases of ordinary size,
MOST_MECHANISMS = 64
#: and only so many attributes are left out in turn.
MOST_ATTRIBUTES = 32
#: Noise past this factor is no counter-offer.
MOST_NOISE = Fraction(1000)


#: Who spent most of a rule, by its number and where it breaks.
Spenders = Callable[[int, Point | None], tuple[str, ...]]


def reasons(verdict: Verdict, spenders: Spenders) -> tuple[Reason, ...]:
    """Every broken rule, or the tightest rules of a release that fits."""
    broken = [
        _reason(checks, position, spenders)
        for checks in verdict.checks
        for position in np.argsort(checks.numbers).tolist()
        if not checks.holds[position]
    ]
    return tuple(broken) if broken else tuple(_tightest(verdict))


def _tightest(verdict: Verdict) -> Iterator[Reason]:
    found: list[tuple[float, int, Checks]] = []
    for checks in verdict.checks:
        room = checks.of.gates_of(checks.numbers).room(checks.after)
        some = np.lexsort((checks.numbers, room))[:TIGHTEST].tolist()
        found += [(float(room[position]), position, checks) for position in some]
    for _, position, checks in sorted(found, key=lambda item: item[0])[:TIGHTEST]:
        yield _reason(checks, position, None)


def _reason(checks: Checks, position: int, spenders: Spenders | None) -> Reason:
    number = int(checks.numbers[position])
    rule = described(checks.of, number)
    before, more = checks.spent[position], checks.cost[position]
    point, place = None, checks.at.get(position)
    if place:
        point, before = place.first
    rows = np.stack([before, more, added(before, more)])
    spent, cost, after = checks.of.readout_of(number).all(rows)
    lasting = spenders is not None and not rule["each_release"]
    return Reason(
        **rule,
        spent=spent,
        cost=cost,
        after=after,
        holds=bool(checks.holds[position]),
        spenders=spenders(number, point) if spenders and lasting else (),
        at=checks.of.layout.named(point, number, checks.cutoff) if point else {},
    )


@lru_cache(maxsize=16_384)
def described(of: Prepared, number: int) -> dict[str, Any]:
    """What a reason says of a rule whatever happens."""
    rule = of.section.rules[number]
    return {
        "rule": rule.name,
        "policies": rule.policies,
        "unit": rule.unit,
        "budget": as_json(rule.budget),
        "source": str(rule.base.span),
        "each_release": rule.each_release,
    }


def counter_offers(body: Body, fits: Callable[[Body], bool]) -> tuple[Mapping[str, Any], ...]:
    """What would fit instead, cheapest first."""
    offers: list[Mapping[str, Any]] = []
    many = len(body["mechanisms"])
    if many > MOST_MECHANISMS:
        return ()
    factor = _noise_that_fits(body, fits)
    if factor is not None:
        offers.append({"change": "scale every noise parameter by", "factor": float(factor)})
    attributes = sorted({a for said in body["mechanisms"] for a in said.get("attributes", ())})
    for attribute in attributes[:MOST_ATTRIBUTES]:
        if fits(without_attribute(body, attribute)):
            offers.append({"change": "leave out attribute", "attribute": attribute})
    for position, said in enumerate(body["mechanisms"]):
        if many > 1 and fits(without(body, position)):
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
        if high > 100 * MOST_NOISE:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return Fraction(high, 100)
