"""Counter-offers: smaller changes of a denied release that the policy would allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from dpolicy.balances.balances import Balances
from dpolicy.balances.enforced_policy import certificates_for
from dpolicy.decisions.decide import Verdict, decide
from dpolicy.decisions.resolution import resolve_release
from dpolicy.errors import (
    InvalidValue,
)
from dpolicy.releases.body import Body, release_from_body
from dpolicy.releases.edits import with_more_noise, without_attribute, without_mechanism
from dpolicy.rules.compiler import CompiledPolicy

#: To find what fits is to decide again and again, so only for releases of ordinary size,
MAX_OFFER_MECHANISMS = 64


#: and only so many attributes are left out in turn.
MAX_OFFER_ATTRIBUTES = 32


#: Noise past this factor is no counter-offer.
MAX_OFFER_NOISE_FACTOR = Fraction(1000)


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


def find_counter_offers(
    policy: CompiledPolicy, balances: Balances, today: int, body: Body, verdict: Verdict
) -> tuple[Mapping[str, Any], ...]:
    """What would fit instead of a release that does not."""
    if verdict.allowed or verdict.failed or verdict.uncovered:
        return ()

    def fits(changed: Body) -> bool:
        try:
            mechanisms, problems = resolve_release(
                release_from_body(changed), policy, certificates_for(policy)
            )
        except InvalidValue:
            return False
        return not problems and decide(policy, balances, mechanisms, today).allowed

    return search_counter_offers(body, fits)


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
