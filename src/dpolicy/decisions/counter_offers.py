"""Counter-offers: changes to a denied release with which the policy would allow it.

The search decides changed releases, cheapest change first: more noise, one attribute removed, one
mechanism removed. It does not read data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from dpolicy.balances.balances import Balances
from dpolicy.balances.enforced_policy import EnforcedPolicy
from dpolicy.decisions.decide import Verdict, decide
from dpolicy.decisions.resolution import resolve_release
from dpolicy.errors import InvalidValue
from dpolicy.releases.body import Body, release_from_body
from dpolicy.releases.edits import with_more_noise, without_attribute, without_mechanism

#: Largest number of mechanisms of a release for which counter-offers are searched. The search
#: decides many changed releases.
MAX_OFFER_MECHANISMS = 64

#: Number of attributes that the search removes in turn.
MAX_OFFER_ATTRIBUTES = 32

#: Largest number of selected boxes of a release for which counter-offers are searched: each
#: decision takes time in the boxes of all mechanisms.
MAX_OFFER_BOXES = 256

#: Largest noise factor of a counter-offer.
MAX_OFFER_NOISE_FACTOR = Fraction(1000)


def find_counter_offers(
    enforced: EnforcedPolicy,
    balances: Balances,
    today: int,
    body: Body,
    verdict: Verdict,
) -> tuple[Mapping[str, Any], ...]:
    """Return changes that make a denied release allowed.

    Return none if the release is allowed, uncovered, or a predicate failed on it.
    """
    if verdict.allowed or verdict.predicate_errors or verdict.uncovered or has_many_boxes(body):
        return ()

    def is_allowed(changed: Body) -> bool:
        try:
            release = release_from_body(changed)
            mechanisms, problems = resolve_release(release, enforced)
        except InvalidValue:
            return False
        return not problems and decide(enforced, balances, mechanisms, today).allowed

    return search_counter_offers(body, is_allowed)


def has_many_boxes(body: Body) -> bool:
    """Return whether a release selects too many boxes to search for counter-offers."""
    boxes = (len(fields.get("where", ())) for fields in body["mechanisms"])
    return sum(max(1, count) for count in boxes) > MAX_OFFER_BOXES


def search_counter_offers(
    body: Body, is_allowed: Callable[[Body], bool]
) -> tuple[Mapping[str, Any], ...]:
    """Return the changes of a release body that `is_allowed` accepts, cheapest first."""
    offers: list[Mapping[str, Any]] = []
    mechanisms = body["mechanisms"]
    if len(mechanisms) > MAX_OFFER_MECHANISMS:
        return ()
    factor = _smallest_noise_factor(body, is_allowed)
    if factor is not None:
        offers.append({"change": "scale every noise parameter by", "factor": float(factor)})
    attributes = sorted({name for fields in mechanisms for name in fields.get("attributes", ())})
    for attribute in attributes[:MAX_OFFER_ATTRIBUTES]:
        if is_allowed(without_attribute(body, attribute)):
            offers.append({"change": "leave out attribute", "attribute": attribute})
    for position, fields in enumerate(mechanisms):
        if len(mechanisms) > 1 and is_allowed(without_mechanism(body, position)):
            name = fields.get("name", f"mechanism {position + 1}")
            offers.append({"change": "leave out mechanism", "mechanism": name})
    return tuple(offers)


def _smallest_noise_factor(body: Body, is_allowed: Callable[[Body], bool]) -> Fraction | None:
    """Return the smallest factor, in hundredths, with which the release is allowed."""

    def is_enough(hundredths: int) -> bool:
        changed = with_more_noise(body, Fraction(hundredths, 100))
        return changed is not None and is_allowed(changed)

    low, high = 100, 101
    while not is_enough(high):
        low, high = high, 2 * high
        if high > 100 * MAX_OFFER_NOISE_FACTOR:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return Fraction(high, 100)
