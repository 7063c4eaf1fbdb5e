"""Most accurate version: the least noise with which a release would be allowed now.

For a denied release it is the counter-offer of least total variance that keeps every mechanism and
attribute. For an allowed release the search scales all noise down by a common factor. `decide`
allowed every version that the search returns, and the number of decisions is limited.
"""

from __future__ import annotations

from fractions import Fraction

from dpolicy.decisions.counter_offers import MAX_OFFER_MECHANISMS, has_many_boxes
from dpolicy.decisions.denial_advice.advice import find_offers
from dpolicy.decisions.denial_advice.offers import Offer
from dpolicy.decisions.denial_advice.trials import DecisionTrials
from dpolicy.releases.body import Body
from dpolicy.releases.edits import has_noise, round_noise, total_variance, with_noise_factors

#: `change` of a version with less or the same noise.
SCALE = "scale every noise parameter by"

#: The search tries no smaller factor.
SMALLEST_FACTOR = Fraction(1, 1024)

#: Number of bisections between an allowed and a denied factor: three digits.
MAX_BISECTIONS = 12


def find_most_accurate(trials: DecisionTrials, body: Body) -> Offer | None:
    """Return the version of a release with the least noise that is allowed now.

    Return None if no version is known: nothing has noise that dpolicy can scale, no noise is
    enough, or the release is too large for the search.
    """
    if has_many_boxes(body) or len(body["mechanisms"]) > MAX_OFFER_MECHANISMS:
        return None
    trial = trials.decide(body)
    if trial is None:
        return None
    if trial.verdict.allowed:
        return _scale_down(trials, body)
    complete = [
        (total_variance(offer.body), offer)
        for offer in find_offers(trials, body)
        if offer.body is not None and not {"attribute", "mechanism"} & offer.outline.keys()
    ]
    return min(complete, key=lambda pair: pair[0])[1] if complete else None


def _scale_down(trials: DecisionTrials, body: Body) -> Offer | None:
    """Return an allowed release with the smallest common noise factor that is allowed."""
    scalable = [has_noise(request) for request in body["mechanisms"]]
    if not any(scalable):
        return None

    def scale(factor: Fraction) -> Body:
        return with_noise_factors(body, [factor if scales else 1 for scales in scalable])

    too_small, allowed = Fraction(1, 2), Fraction(1)
    while trials.is_allowed(scale(too_small)):
        allowed, too_small = too_small, too_small / 2
        if allowed <= SMALLEST_FACTOR:
            return Offer({"change": SCALE, "factor": float(allowed)}, scale(allowed))
    for _ in range(MAX_BISECTIONS):
        middle = round_noise((too_small + allowed) / 2, 1)
        if trials.is_allowed(scale(middle)):
            allowed = middle
        else:
            too_small = middle
    return Offer({"change": SCALE, "factor": float(allowed)}, scale(allowed))
