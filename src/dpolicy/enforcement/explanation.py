"""A verdict → reasons that people can read, and what would fit instead.

Counter-offers are found by asking `decide` about the changed release, cheapest change first: more
noise, one attribute left out, one mechanism left out. None of them looks at data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from dpolicy.enforcement.check import RuleCheck, Verdict
from dpolicy.enforcement.readout import amount_at
from dpolicy.privacy.budget import as_json
from dpolicy.releases.body import Body, with_more_noise, without, without_attribute
from dpolicy.releases.decision import Reason

#: An allowed release shows this many of its tightest rules; a denied one all that are broken.
TIGHTEST = 5
#: Noise past this factor is no counter-offer.
MOST_NOISE = Fraction(1000)


def reasons(
    verdict: Verdict, spenders: Callable[[RuleCheck], tuple[str, ...]]
) -> tuple[Reason, ...]:
    """Every broken rule, or the tightest rules of a release that fits."""
    broken = [check for check in verdict.checks if not check.holds]
    if broken:
        return tuple(_reason(check, spenders(check)) for check in broken)
    tightest = sorted(verdict.checks, key=_room)[:TIGHTEST]
    return tuple(_reason(check, ()) for check in tightest)


def _room(check: RuleCheck) -> float:
    """The share of its budget that a rule has left, at the certificate that leaves most."""
    rooms = [
        min(
            (
                -1.0
                if (amount := amount_at(check.after, at)) is None or amount > most
                else 1 - amount / most
                if most
                else 0.0
                for at, most in clause
            ),
            default=2.0,
        )
        for clause in check.of.gate_of(check.number).clauses
    ]
    return max(rooms, default=-1.0)


def _reason(check: RuleCheck, spenders: tuple[str, ...]) -> Reason:
    rule = check.of.section.rules[check.number]
    return Reason(
        rule=rule.name,
        policies=rule.policies,
        unit=rule.unit,
        budget=as_json(rule.budget),
        spent=check.of.shown(check.number, check.spent),
        cost=check.of.shown(check.number, check.cost),
        after=check.of.shown(check.number, check.after),
        holds=check.holds,
        source=str(rule.base.span),
        each_release=rule.each_release,
        spenders=spenders,
    )


def counter_offers(body: Body, fits: Callable[[Body], bool]) -> tuple[Mapping[str, Any], ...]:
    """What would fit instead, cheapest first."""
    offers: list[Mapping[str, Any]] = []
    factor = _noise_that_fits(body, fits)
    if factor is not None:
        offers.append({"change": "scale every noise parameter by", "factor": float(factor)})
    attributes = sorted({a for said in body["mechanisms"] for a in said.get("attributes", ())})
    for attribute in attributes:
        if fits(without_attribute(body, attribute)):
            offers.append({"change": "leave out attribute", "attribute": attribute})
    for position, said in enumerate(body["mechanisms"]):
        if len(body["mechanisms"]) > 1 and fits(without(body, position)):
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
