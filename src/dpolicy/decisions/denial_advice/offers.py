"""Offers: complete counter-offers, each with the changed parameters and the changed release.

The ledger records counter-offers in outline (`counter_offers.py`). This module completes them for
the author of the release, and adds the noise of least total variance and the largest δ that fit.
Every offered release was allowed by `decide` on the same balances.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpolicy.decisions.counter_offers import MAX_OFFER_MECHANISMS
from dpolicy.decisions.denial_advice.largest_delta import (
    find_largest_delta,
    is_delta_used_up,
    without_delta,
)
from dpolicy.decisions.denial_advice.least_noise import find_least_noise
from dpolicy.decisions.denial_advice.trials import DecisionTrials
from dpolicy.releases.body import Body
from dpolicy.releases.edits import (
    changed_parameters,
    has_noise,
    total_variance,
    with_more_noise,
    with_noise_factors,
    without_attribute,
    without_mechanism,
)

#: Largest number of offers of one decision that carry their complete release.
MAX_COMPLETE_OFFERS = 8

#: Share of the total variance that the least noise must save to be an offer beside the factor.
LEAST_SAVING = 0.01

#: `change` of the offer with a noise parameter per mechanism.
LEAST_NOISE = "set noise parameters"

#: `change` of the offers about a stated δ. The second has no release: to leave out δ, the author
#: must state another loss of the same mechanism.
LESS_DELTA = "state a smaller delta"
NO_DELTA = "state rho or a pure epsilon instead of a delta"


@dataclass(frozen=True, slots=True)
class Offer:
    """A change of a denied release with which it would be allowed.

    `outline` has the JSON keys of the change. `body` is the changed release under its old id, None
    if the author must change the release in a way that dpolicy cannot.
    """

    outline: Mapping[str, Any]
    body: Body | None

    def as_json(self, original: Body, new_id: str | None) -> dict[str, Any]:
        """Return the offer as a JSON object; with `new_id`, with the complete release."""
        offer = dict(self.outline)
        if self.body is None:
            return offer
        if len(self.body["mechanisms"]) == len(original["mechanisms"]):
            changes = changed_parameters(original, self.body)
            if changes:
                offer["mechanisms"] = to_json(changes)
        if new_id is not None:
            release = {**self.body, "release": new_id}
            if _has_exact_json(release):
                offer["release"] = to_json(release)
        return offer


def complete_offers(
    trials: DecisionTrials, body: Body, outlines: tuple[Mapping[str, Any], ...]
) -> tuple[Offer, ...]:
    """Return complete offers for a denied release, least change first.

    `outlines` are the recorded counter-offers of the release on the same balances.
    """
    if len(body["mechanisms"]) > MAX_OFFER_MECHANISMS:
        return ()
    scaled = [_complete_factor(trials, body, o) for o in outlines if "factor" in o]
    reduced = [_complete_omission(trials, body, o) for o in outlines if "factor" not in o]
    noisier = _least_noise_offers(trials, body, scaled)
    return (*noisier, *scaled, *_delta_offers(trials, body), *reduced)


def _least_noise_offers(trials: DecisionTrials, body: Body, scaled: list[Offer]) -> Iterator[Offer]:
    """Yield the offer of least noise if it saves variance compared with scaling everything."""
    if scaled and len(body["mechanisms"]) == 1:
        return
    changed = find_least_noise(trials, body)
    if changed is None:
        return
    saved = (1 - LEAST_SAVING) * min(
        (total_variance(offer.body) for offer in scaled if offer.body), default=float("inf")
    )
    if total_variance(changed) < saved:
        yield Offer({"change": LEAST_NOISE}, changed)


def _delta_offers(trials: DecisionTrials, body: Body) -> Iterator[Offer]:
    """Yield the offer of a smaller δ, or of none if a rule leaves nothing to stated δ."""
    if without_delta(body) is None:
        return
    changed = find_largest_delta(trials, body)
    if changed is not None:
        yield Offer({"change": LESS_DELTA}, changed)
    elif is_delta_used_up(trials, body):
        yield Offer({"change": NO_DELTA}, None)


def _complete_factor(trials: DecisionTrials, body: Body, outline: Mapping[str, Any]) -> Offer:
    """Complete an offer of more noise.

    Scale restatements too and use short parameters, if that is allowed. Otherwise, the offer is the
    release for which the search accepted the factor.
    """
    short = _scale_all(body, outline["factor"])
    if trials.is_allowed(short):
        return Offer(outline, short)
    return Offer(outline, with_more_noise(body, Fraction(repr(outline["factor"]))) or body)


def _scale_all(body: Body, factor: float) -> Body:
    """Return the body with all noise scaled and rounded, with the noise of restatements."""
    if not all(map(has_noise, body["mechanisms"])):
        return body
    return with_noise_factors(body, [Fraction(repr(factor))] * len(body["mechanisms"]))


def _complete_omission(trials: DecisionTrials, body: Body, outline: Mapping[str, Any]) -> Offer:
    """Complete an offer that leaves out an attribute or a mechanism.

    Of several mechanisms with the name in the outline, the first that makes it allowed is left out.
    """
    if "attribute" in outline:
        return Offer(outline, without_attribute(body, outline["attribute"]))
    names = [fields.get("name", f"mechanism {n}") for n, fields in enumerate(body["mechanisms"], 1)]
    positions = [n for n, name in enumerate(names) if name == outline["mechanism"]]
    reduced = [without_mechanism(body, position) for position in positions]
    if len(reduced) == 1:
        return Offer(outline, reduced[0])
    return Offer(outline, next(filter(trials.is_allowed, reduced), None))


def to_json(value: Any) -> Any:
    """Return plain values with floats and integers instead of fractions."""
    match value:
        case Fraction():
            return int(value) if value.denominator == 1 else float(value)
        case Mapping():
            return {key: to_json(item) for key, item in value.items()}
        case list() | tuple():
            return [to_json(item) for item in value]
    return value


def _has_exact_json(value: Any) -> bool:
    """Return whether the JSON of plain values states every number exactly."""
    match value:
        case Fraction():
            return value.denominator == 1 or Fraction(repr(float(value))) == value
        case Mapping():
            return all(map(_has_exact_json, value.values()))
        case list() | tuple():
            return all(map(_has_exact_json, value))
    return True
