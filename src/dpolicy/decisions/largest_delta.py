"""Largest δ: the largest stated δ with which a release fits, where a stated δ is exceeded."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

from dpolicy.decisions.rule_limits import exceeded_limits
from dpolicy.decisions.trials import DecisionTrials
from dpolicy.releases.body import Body

#: Largest number of decisions of the search.
MAX_DELTA_TRIALS = 12

#: Significant digits of an offered δ, and the relative precision of the search.
_DIGITS, _PRECISION = 3, 1.005


def find_largest_delta(trials: DecisionTrials, body: Body) -> Body | None:
    """Return the denied release with its stated δ lowered by the same factor, as little as fits.

    Return None if no rule is exceeded in δ, or if no positive δ fits.
    """
    trial = trials.decide(body)
    if trial is None:
        return None
    shares = [limit.delta_share for limit in exceeded_limits(trial.verdict)]
    share = min(shares, default=1.0)
    if share in (0.0, 1.0):
        return None
    low, high, part = 0.0, 1.0, share
    allowed: Body | None = None
    for _ in range(MAX_DELTA_TRIALS):
        changed = with_less_delta(body, Fraction(part))
        if changed is None:
            return None
        if trials.is_allowed(changed):
            allowed, low = changed, part
        else:
            high = part
        if high <= low * _PRECISION:
            break
        near = low * _PRECISION if allowed is not None else high / _PRECISION
        part = near if part == share else (low + high) / 2
    return allowed


def is_delta_used_up(trials: DecisionTrials, body: Body) -> bool:
    """Return whether a rule leaves nothing to stated δ, and the release fits without its δ."""
    trial, without = trials.decide(body), without_delta(body)
    if trial is None or without is None:
        return False
    shares = [limit.delta_share for limit in exceeded_limits(trial.verdict)]
    return min(shares, default=1.0) == 0.0 and trials.is_allowed(without)


def with_less_delta(body: Body, factor: Fraction) -> dict[str, Any] | None:
    """Return the body with every stated δ multiplied by a factor and rounded down.

    Return None if there is no δ, or if a mechanism would state neither ε nor δ.
    """
    mechanisms = [_lower_delta(request, factor) for request in body["mechanisms"]]
    if mechanisms == list(body["mechanisms"]) or any(
        not parameters.get("epsilon", 1) and not parameters.get("delta")
        for request in mechanisms
        for parameters in (request["mechanism"], *request.get("also", {}).values())
    ):
        return None
    return {**body, "mechanisms": mechanisms}


def without_delta(body: Body) -> dict[str, Any] | None:
    """Return the body without stated δ; None if there is none, or nothing else is stated."""
    return with_less_delta(body, Fraction(0))


def _lower_delta(request: Body, factor: Fraction) -> dict[str, Any]:
    lowered = {**request, "mechanism": _lower_parameter(request["mechanism"], factor)}
    if "also" in request:
        lowered["also"] = {
            unit: _lower_parameter(fields, factor) for unit, fields in request["also"].items()
        }
    return lowered


def _lower_parameter(fields: Mapping[str, Any], factor: Fraction) -> dict[str, Any]:
    if not fields.get("delta"):
        return dict(fields)
    exact = fields["delta"] * factor
    context = Context(prec=_DIGITS, rounding=ROUND_FLOOR)
    delta = Fraction(context.divide(Decimal(exact.numerator), Decimal(exact.denominator)))
    kept = {name: value for name, value in fields.items() if name != "delta"}
    return {**kept, "delta": delta} if delta else kept
